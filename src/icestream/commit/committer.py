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
from icestream.commit.load_id import (
    REPLACED_KEY,
    CommittedLoad,
    Position,
    forget_loads,
    remember_load,
)
from icestream.commit.observed_commit import ObservedCommit
from icestream.commit.producer import Produced
from icestream.commit.retry import Backoff, Outcome, classify
from icestream.commit.schema_change import apply_schema_change
from icestream.commit.sent import SentCommit, refreshed
from icestream.errors import CatalogError, CommitConflictError, CommitError, CommitUnknownError
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
        in_flight: The write whose files the change adds. It knows what was sent, so that nothing is
            deleted that a snapshot may refer to.
    """

    def __init__(self, table: Table, change: Change, in_flight: InFlightWrite | None) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._change = change
        self._metadata = table.metadata  # as the last look gave it: threads may share the table
        self._snapshot_id = self._metadata.new_snapshot_id()
        self._attempts: list[Produced] = []
        self._trouble: Exception | None = None  # what the last request ended with
        self._backoff = Backoff.of(self._metadata.properties)
        self._sent = SentCommit(table.catalog, self._name, change.branch, self._snapshot_id)
        if in_flight is not None:
            in_flight.sent = self._sent

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
            except Exception as error:
                found = self._settle_after(error)
                if found is None:
                    self._delete_metadata()
                    raise
                committed = found
            except BaseException:
                self._look_after_interrupt()
                raise
            observed.settled(already=committed.already is not None)
            return committed

    def _loop(self, observed: ObservedCommit) -> Committed:
        while True:
            try:
                self._refresh()
            except CatalogError as error:
                if not self._may_ask_again(error):
                    raise
                continue
            if (settled := self._settled()) is not None:
                return settled
            try:
                produced, updates, requirements = self._prepare()
            except CommitConflictError:
                observed.refused()
                raise
            observed.sent()
            try:
                with self._sent.request(produced.parent_id, produced.sequence_number):
                    commit_to_catalog(self._table, updates, requirements)
            except Exception as error:
                self._trouble, outcome = error, classify(error, self._table.catalog)
                observed.lost(error, conflict=outcome is Outcome.CONFLICT)
                if outcome is Outcome.REFUSED or not self._backoff.wait(outcome):
                    raise self._given_up(error, outcome) from error
            else:
                return self._answered()

    def _answered(self) -> Committed:
        """The catalog said yes: see in its answer which of the tries it took.

        Raises:
            CommitError: If there is none of them in it.
        """
        snapshot = self._table.metadata.snapshot_by_id(self._snapshot_id)
        if snapshot is None:  # a thread that shares the table has just set another one's answer?
            self._refresh()
            snapshot = self._metadata.snapshot_by_id(self._snapshot_id)
        if snapshot is None:
            raise CommitError("it said yes, and the snapshot is not in the table")
        return self._done(snapshot.manifest_list)

    def _may_ask_again(self, error: CatalogError) -> bool:
        """Whether to ask a catalog again that could not be asked for the table."""
        if self._sent.may_be_in_table:
            return self._backoff.wait(Outcome.UNKNOWN)
        return self._is_busy(error) and self._backoff.wait(Outcome.CONFLICT)

    def _settle_after(self, error: Exception) -> Committed | None:
        """After any error: find the snapshot, or make sure that it can't land any more.

        Raises:
            CommitUnknownError: If neither can be said.
        """

        def look() -> Committed | None:
            self._refresh()
            return self._landed()

        try:
            return self._sent.settle(self._trouble or error, look, self._backoff)
        except CommitUnknownError as unknown:
            raise unknown from unknown.__cause__ or error

    def _look_after_interrupt(self) -> None:
        """After Ctrl-C: find out whether the files may be deleted."""
        try:
            if self._sent.may_be_in_table:
                self._refresh()
                self._landed()
        except Exception:
            return
        self._delete_metadata()

    def _prepare(self) -> tuple[Produced, Updates, Requirements]:
        """Write the metadata of one try; nothing is in the table yet."""
        metadata, updates, requirements = apply_schema_change(
            self._change.schema, self._metadata, table=self._name
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
                position=Position.next(metadata),
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

    def _settled(self) -> Committed | None:
        """Look whether the snapshot is in the table, or the load has been committed before."""
        if (landed := self._landed()) is not None:
            return landed
        already = find_committed(self._change, self._metadata, self._table.io)
        if already is None:
            if self._sent.is_lost:
                raise CommitError(
                    f"the history of {self._change.branch!r} of {self._name} no longer shows "
                    "whether the commit happened: snapshots have expired"
                )
            return None
        if already.snapshot_id == self._snapshot_id:  # it has expired
            self._sent.note_landing()
            return Committed(self._snapshot_id, self._sent.count)
        self._delete_metadata()
        return Committed(already.snapshot_id, self._sent.count, already)

    def _landed(self) -> Committed | None:
        """Whether the last look has found the snapshot in the table."""
        snapshot = self._sent.found_in(self._metadata)
        return None if snapshot is None else self._done(snapshot.manifest_list)

    def _done(self, manifest_list: str) -> Committed:
        """Delete the metadata of lost tries."""
        if any(produced.manifest_list == manifest_list for produced in self._attempts):
            lost = [a for a in self._attempts if a.manifest_list != manifest_list]
            delete_files(self._table.io, [path for a in lost for path in a.paths])
        return Committed(self._snapshot_id, self._sent.count)

    def _delete_metadata(self) -> None:
        """Delete the metadata of all tries, unless the snapshot may be in the table."""
        if not self._sent.may_be_in_table:
            delete_files(self._table.io, [path for a in self._attempts for path in a.paths])

    def _is_busy(self, error: CatalogError) -> bool:
        cause = error.__cause__
        return cause is not None and classify(cause, self._table.catalog) is Outcome.CONFLICT

    def _refresh(self) -> None:
        try:
            self._metadata = refreshed(self._table)
        except NoSuchTableError as error:
            raise CatalogError(
                f"table {self._name} does not exist (any more): {self._text(error)}"
            ) from error
        except Exception as error:
            raise CatalogError(
                f"the catalog could not be asked for {self._name}: {self._text(error)}"
            ) from error

    def _given_up(self, error: Exception, outcome: Outcome) -> CommitError:
        """What to raise if the snapshot turns out to be absent for good."""
        if outcome is Outcome.REFUSED:
            return CommitError(
                f"the catalog refused the commit to {self._name}: {self._text(error)}. Nothing was "
                "changed"
            )
        if outcome is Outcome.UNKNOWN:
            return CommitError(
                f"the catalog gave no clear answer to the commit to {self._name}, "
                f"{self._sent.count} times, and the snapshot is not in the table: "
                f"{self._text(error)}. Nothing was changed; start again"
            )
        return CommitConflictError(
            f"the commit to {self._name} lost against other commits {self._sent.count} times. "
            "Nothing was changed; start again, or raise commit.retry.num-retries and "
            "commit.retry.total-timeout-ms"
        )

    def _text(self, error: Exception) -> str:
        return error_text(error, self._table.catalog.properties)
