"""The commit loop: tries one change until its outcome is known."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, TableRequirement, TableUpdate

from icestream.catalogs._pyiceberg.commits import commit_to_catalog
from icestream.catalogs.redaction import error_text
from icestream.commit.attempt import attempt, delete_lost
from icestream.commit.change import Change
from icestream.commit.cleanup import delete_files
from icestream.commit.in_flight import InFlightWrite
from icestream.commit.observed_commit import ObservedCommit
from icestream.commit.outcome.load_id import (
    REPLACED_KEY,
    CommittedWrite,
    find_committed,
    forget_loads,
    remember_change,
)
from icestream.commit.outcome.retry import Backoff, Outcome, classify, is_busy
from icestream.commit.outcome.unknown_outcome import CommitRequests, refreshed
from icestream.commit.schema_change import apply_schema_change
from icestream.commit.snapshot.producer import Produced
from icestream.errors import CatalogError, CommitConflictError, CommitError, CommitUnknownError

Updates = tuple[TableUpdate, ...]
Requirements = tuple[TableRequirement, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit whose snapshot is in the table.

    Attributes:
        snapshot_id: The change's snapshot.
        attempts: Number of tries.
        already: The earlier commit with the same load id, if there is one; nothing was changed.
    """

    snapshot_id: int
    attempts: int
    already: CommittedWrite | None = None


class Committer:
    """Commits one change to one table.

    Args:
        table: The table. It is refreshed before each try, and has the new metadata afterwards.
        change: The change to commit.
        in_flight: The write whose files the change adds. It records what was sent to the catalog,
            so that no file is deleted that a snapshot may refer to.
    """

    def __init__(self, table: Table, change: Change, in_flight: InFlightWrite | None) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._change = change
        self._metadata = table.metadata  # of the last refresh: threads may share the table object
        self._snapshot_id = self._metadata.new_snapshot_id()
        self._attempts: list[Produced] = []
        self._trouble: Exception | None = None  # the error of the last request
        self._backoff = Backoff.of(self._metadata.properties)
        self._requests = CommitRequests(table.catalog, self._name, change.branch, self._snapshot_id)
        if in_flight is not None:
            in_flight.requests = self._requests

    def commit(self) -> Committed:
        """Try until the snapshot is in the table or can no longer land.

        Raises:
            CommitConflictError: If it conflicts with another commit.
            CommitUnknownError: If it is not known whether it was committed.
            CommitError: If the catalog refused it.
        """
        with ObservedCommit(self._name, self._change, self._snapshot_id) as observed:
            try:
                committed = self._loop(observed)
            except Exception as error:
                settled = self._settle_after(error)
                if settled is None:
                    self._delete_metadata()
                    raise
                committed = settled
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
                with self._requests.sending(produced.parent_id, produced.sequence_number):
                    commit_to_catalog(self._table, updates, requirements)
            except Exception as error:
                self._trouble, outcome = error, classify(error, self._table.catalog)
                observed.lost(error, conflict=outcome is Outcome.CONFLICT)
                if outcome is Outcome.REFUSED or not self._backoff.wait(outcome):
                    raise self._given_up(error, outcome) from error
            else:
                return self._answered()

    def _answered(self) -> Committed:
        """The catalog accepted: find out from its answer which try it committed.

        Raises:
            CommitError: If the snapshot is not in the table.
        """
        snapshot = self._table.metadata.snapshot_by_id(self._snapshot_id)
        if snapshot is None:  # another thread may have just replaced the table's metadata
            self._refresh()
            snapshot = self._metadata.snapshot_by_id(self._snapshot_id)
        if snapshot is None:
            raise CommitError("it said yes, and the snapshot is not in the table")
        return self._done(snapshot.manifest_list)

    def _may_ask_again(self, error: CatalogError) -> bool:
        """Whether to try again after the catalog failed to load the table."""
        if self._requests.may_be_in_table:
            return self._backoff.wait(Outcome.UNKNOWN)
        return is_busy(error, self._table.catalog) and self._backoff.wait(Outcome.CONFLICT)

    def _settle_after(self, error: Exception) -> Committed | None:
        """After an error: find the snapshot, or make sure that it can't land any more.

        Raises:
            CommitUnknownError: If neither is certain.
        """

        def look() -> Committed | None:
            self._refresh()
            return self._landed()

        try:
            return self._requests.settle(self._trouble or error, look, self._backoff)
        except CommitUnknownError as unknown:
            raise unknown from unknown.__cause__ or error

    def _look_after_interrupt(self) -> None:
        """After Ctrl-C: find out whether the files may be deleted."""
        try:
            if self._requests.may_be_in_table:
                self._refresh()
                self._landed()
        except Exception:
            return
        self._delete_metadata()

    def _prepare(self) -> tuple[Produced, Updates, Requirements]:
        """Write the metadata of one try, without committing it."""
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
        updates += remember_change(self._change, metadata, self._snapshot_id)
        updates += forget_loads(
            metadata.properties,
            branch=self._change.branch,
            load_id=self._change.load_id,
            replaced=REPLACED_KEY in self._change.properties,
        )
        same_table = AssertTableUUID(uuid=metadata.table_uuid)
        requirements = (*requirements, *produced.requirements, same_table)
        return produced, (*updates, *produced.updates), requirements

    def _settled(self) -> Committed | None:
        """Check whether the snapshot is in the table, or the load was committed before."""
        if (landed := self._landed()) is not None:
            return landed
        already = find_committed(self._change, self._metadata, self._table.io)
        if already is None:
            if self._requests.is_lost:
                raise CommitError(
                    f"the history of {self._change.branch!r} of {self._name} no longer shows "
                    "whether the commit happened: snapshots have expired"
                )
            return None
        if already.snapshot_id == self._snapshot_id:  # it has expired
            self._requests.note_landing()
            return Committed(self._snapshot_id, self._requests.count)
        self._delete_metadata()
        return Committed(already.snapshot_id, self._requests.count, already)

    def _landed(self) -> Committed | None:
        """The commit, if the snapshot was in the table at the last refresh."""
        snapshot = self._requests.found_in(self._metadata)
        return None if snapshot is None else self._done(snapshot.manifest_list)

    def _done(self, manifest_list: str) -> Committed:
        delete_lost(self._table.io, self._attempts, manifest_list)
        return Committed(self._snapshot_id, self._requests.count)

    def _delete_metadata(self) -> None:
        """Delete the metadata of all tries, unless the snapshot may be in the table."""
        if not self._requests.may_be_in_table:
            delete_files(self._table.io, [path for a in self._attempts for path in a.paths])

    def _refresh(self) -> None:
        try:
            self._metadata = refreshed(self._table)
        except NoSuchTableError as error:
            raise CatalogError(
                f"table {self._name} does not exist (or no longer): {self._text(error)}"
            ) from error
        except Exception as error:
            raise CatalogError(
                f"the catalog could not load {self._name}: {self._text(error)}"
            ) from error

    def _given_up(self, error: Exception, outcome: Outcome) -> CommitError:
        """The error to raise if the snapshot can't land any more."""
        if outcome is Outcome.REFUSED:
            return CommitError(
                f"the catalog refused the commit to {self._name}: {self._text(error)}. Nothing was "
                "changed"
            )
        if outcome is Outcome.UNKNOWN:
            return CommitError(
                f"the catalog gave no clear answer to the commit to {self._name}, "
                f"{self._requests.count} times, and the snapshot is not in the table: "
                f"{self._text(error)}. Nothing was changed; start again"
            )
        return CommitConflictError(
            f"the commit to {self._name} lost against other commits {self._requests.count} times. "
            "Nothing was changed; start again, or raise commit.retry.num-retries and "
            "commit.retry.total-timeout-ms"
        )

    def _text(self, error: Exception) -> str:
        return error_text(error, self._table.catalog.properties)
