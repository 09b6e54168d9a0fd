"""The commit loop: one change, tried until it is settled."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate

from icestream._pyiceberg import commit_to_catalog
from icestream.commit.attempt import attempt
from icestream.commit.change import Change
from icestream.commit.cleanup import delete_files
from icestream.commit.handed_over import find_committed
from icestream.commit.in_flight import InFlightWrite
from icestream.commit.load_id import REPLACED_KEY, CommittedLoad, forget_loads, remember_load
from icestream.commit.observed_commit import ObservedCommit
from icestream.commit.producer import Produced
from icestream.commit.retry import Backoff, Outcome, answers_at_once, classify
from icestream.commit.schema_change import apply_schema_change
from icestream.errors import (
    CatalogError,
    CommitConflictError,
    CommitError,
    CommitUnknownError,
    IcestreamError,
)
from icestream.redaction import error_text

Updates = tuple[TableUpdate, ...]
Requirements = tuple[TableRequirement, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """How a commit was settled.

    Attributes:
        snapshot_id: The change's snapshot, now in the table.
        attempts: How often it was tried.
        already: The load with the same id that was there before; then nothing was changed.
    """

    snapshot_id: int
    attempts: int
    already: CommittedLoad | None = None


class Committer:
    """Commits one change to one table.

    Args:
        table: Refreshed before each try; has the new metadata afterwards.
        change: What to commit.
        in_flight: The write whose files the change adds. It is told while the outcome is open, so
            that nothing is deleted that a snapshot may refer to.
    """

    def __init__(self, table: Table, change: Change, in_flight: InFlightWrite | None) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._change = change
        self._in_flight = in_flight
        self._snapshot_id = table.metadata.new_snapshot_id()
        self._attempts: list[Produced] = []
        self._uncertain = False
        self._ever_unknown = False

    def commit(self) -> Committed:
        """Try until the snapshot is in the table, or can't be.

        Raises:
            CommitConflictError: If it was refused beside another change.
            CommitUnknownError: If it is not known whether it was committed.
            CommitError: If the catalog refused it.
        """
        with ObservedCommit(self._name, self._change, self._snapshot_id) as observed:
            try:
                committed = self._loop(observed)
            except BaseException:
                if not self._uncertain:
                    delete_files(self._table.io, self._metadata_paths())
                raise
            observed.settled(already=committed.already is not None)
            return committed

    def _loop(self, observed: ObservedCommit) -> Committed:
        backoff = Backoff.of(self._table.metadata.properties)
        trouble: Exception | None = None
        while True:
            try:
                self._refresh()
            except CatalogError as error:
                if self._uncertain:
                    if not backoff.wait(Outcome.UNKNOWN):
                        raise self._unknown(trouble or error) from error
                elif not self._is_busy(error) or not backoff.wait(Outcome.CONFLICT):
                    raise
                continue
            if (settled := self._settled(backoff.tried)) is not None:
                return settled
            try:
                produced, updates, requirements = self._prepare()
            except CommitConflictError:
                observed.refused()
                raise
            observed.sent()
            try:
                self._send(updates, requirements)
            except Exception as error:
                trouble, outcome = error, classify(error, self._table.catalog)
                self._judge(error, outcome)
                observed.lost(error, conflict=outcome is Outcome.CONFLICT)
                if not backoff.wait(outcome):
                    raise self._given_up(error, backoff.tried) from error
            else:
                return self._done(produced.manifest_list, backoff.tried + 1)

    def _judge(self, error: Exception, outcome: Outcome) -> None:
        """Note what is known now; raise if there is no use in trying again."""
        if outcome is Outcome.UNKNOWN:
            self._ever_unknown = True
            return
        self._set_uncertain(self._ever_unknown)
        if outcome is Outcome.REFUSED and self._uncertain:
            raise self._unknown(error) from error
        if outcome is Outcome.REFUSED:
            raise CommitError(
                f"the catalog refused the commit to {self._name}: {self._text(error)}"
            ) from error

    def _prepare(self) -> tuple[Produced, Updates, Requirements]:
        """Write the metadata of one try; nothing is in the table yet."""
        metadata, updates, requirements = apply_schema_change(
            self._change.schema, self._table.metadata, table=self._name
        )
        produced = attempt(
            self._change,
            metadata,
            self._table.io,
            base_id=self._change.base_snapshot_id,
            head=metadata.snapshot_by_name(self._change.branch),
            snapshot_id=self._snapshot_id,
            table=self._name,
        )
        self._attempts.append(produced)
        if self._change.load_id is not None:
            updates += remember_load(
                branch=self._change.branch,
                load_id=self._change.load_id,
                snapshot_id=self._snapshot_id,
                counts=self._change.counts,
            )
        updates += forget_loads(
            metadata.properties,
            branch=self._change.branch,
            load_id=self._change.load_id,
            replaced=REPLACED_KEY in self._change.properties,
        )
        required = (*requirements, *produced.requirements)
        return (
            produced,
            (*updates, *produced.updates),
            (*required, AssertTableUUID(uuid=metadata.table_uuid)),
        )

    def _send(self, updates: Updates, requirements: Requirements) -> None:
        self._set_uncertain(True)
        try:
            commit_to_catalog(self._table, updates, requirements)
        except Exception:
            raise  # judged by the loop
        except BaseException:
            self._look_after_interrupt()
            raise

    def _look_after_interrupt(self) -> None:
        """After Ctrl-C in the middle of a commit: find out whether the files may be deleted."""
        try:
            self._refresh()
        except Exception:
            return
        if self._table.metadata.snapshot_by_id(self._snapshot_id) is None:
            self._note_absence()

    def _settled(self, tried: int) -> Committed | None:
        """Look whether the snapshot is in the table, or the load has been committed before."""
        metadata = self._table.metadata
        snapshot = metadata.snapshot_by_id(self._snapshot_id)
        if snapshot is not None:
            return self._done(snapshot.manifest_list, tried)
        self._note_absence()
        already = find_committed(self._change, metadata, self._table.io)
        if already is None:
            return None
        if not self._uncertain:
            delete_files(self._table.io, self._metadata_paths())
        return Committed(already.snapshot_id, tried, already)

    def _note_absence(self) -> None:
        """The snapshot is not in the table. See whether it may still come.

        It can't where the catalog had answered before its call ended, nor once the branch has moved
        on from where the snapshot was to go.
        """
        head = self._table.metadata.snapshot_by_name(self._change.branch)
        head_id = head.snapshot_id if head else None
        may_come = any(produced.parent_id == head_id for produced in self._attempts)
        if not may_come or answers_at_once(self._table.catalog):
            self._ever_unknown = False
            self._set_uncertain(False)

    def _done(self, manifest_list: str, tried: int) -> Committed:
        """Delete the metadata of lost tries. The commit stays uncertain: nobody may undo it."""
        if any(produced.manifest_list == manifest_list for produced in self._attempts):
            lost = [a for a in self._attempts if a.manifest_list != manifest_list]
            delete_files(self._table.io, [path for a in lost for path in a.paths])
        return Committed(self._snapshot_id, tried)

    def _is_busy(self, error: CatalogError) -> bool:
        cause = error.__cause__
        return cause is not None and classify(cause, self._table.catalog) is Outcome.CONFLICT

    def _refresh(self) -> None:
        try:
            self._table.refresh()
        except NoSuchTableError as error:
            raise CatalogError(
                f"table {self._name} does not exist (any more): {self._text(error)}"
            ) from error
        except Exception as error:
            raise CatalogError(
                f"the catalog could not be asked for {self._name}: {self._text(error)}"
            ) from error

    def _given_up(self, error: Exception, tried: int) -> IcestreamError:
        if self._uncertain:
            return self._unknown(error)
        return CommitConflictError(
            f"the commit to {self._name} lost against other commits {tried} times. Nothing was "
            "changed; start again, or raise commit.retry.num-retries and "
            "commit.retry.total-timeout-ms"
        )

    def _unknown(self, error: Exception) -> CommitUnknownError:
        return CommitUnknownError(
            f"the catalog did not say whether the commit to {self._name} happened "
            f"({self._text(error)}). No file was deleted: if the table has snapshot "
            f"{self._snapshot_id}, it did; if not, icestream.orphans finds the files",
            snapshot_id=self._snapshot_id,
        )

    def _text(self, error: Exception) -> str:
        return error_text(error, self._table.catalog.properties)

    def _set_uncertain(self, uncertain: bool) -> None:
        self._uncertain = uncertain
        if self._in_flight is not None:
            self._in_flight.uncertain = uncertain

    def _metadata_paths(self) -> list[str]:
        return [path for attempt in self._attempts for path in attempt.paths]
