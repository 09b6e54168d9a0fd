"""A change that waits in a PyIceberg transaction for its owner to commit."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId, UpdatesAndRequirements

from icestream.commit.attempt import attempt, delete_lost
from icestream.commit.change import Change
from icestream.commit.cleanup import delete_files
from icestream.commit.in_flight import InFlightWrite, InFlightWrites
from icestream.commit.outcome.load_id import find_committed, remember_change
from icestream.commit.outcome.retry import Backoff
from icestream.commit.outcome.unknown_outcome import CommitRequests, refreshed
from icestream.commit.schema_change import apply_schema_change
from icestream.commit.snapshot.conflicts import validate
from icestream.commit.snapshot.producer import Produced
from icestream.errors import (
    CommitConflictError,
    CommitError,
    CommitUnknownError,
    InvalidArgumentError,
)


class StagedChange:
    """Writes the change's metadata each time the transaction is tried, and cleans up afterwards.

    Args:
        table: The transaction's table.
        change: The change.
        in_flight: The write whose files the change adds.
        base_snapshot_id: The head of the branch in the catalog when the change was planned, without
            snapshots that are only staged.
        snapshot_id: The id of the snapshot; a new one by default.
    """

    makes_snapshot = True

    def __init__(
        self,
        table: Table,
        change: Change,
        in_flight: InFlightWrite | InFlightWrites | None,
        *,
        base_snapshot_id: int | None,
        snapshot_id: int | None = None,
    ) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._change = change
        self._in_flight = in_flight
        self._attempts: list[Produced] = []
        self._parents: list[int | None] = []  # the head in the catalog at each try
        self.base_snapshot_id = base_snapshot_id
        self.snapshot_id = snapshot_id or table.metadata.new_snapshot_id()

    @property
    def branch(self) -> str:
        """The branch of the change."""
        return self._change.branch

    def lasting(self, metadata: TableMetadata) -> UpdatesAndRequirements:
        """Updates that are staged once: the schema, and the load id."""
        _, updates, requirements = apply_schema_change(
            self._change.schema, metadata, table=self._name
        )
        return updates + remember_change(self._change, metadata, self.snapshot_id), requirements

    def produce(self, metadata: TableMetadata) -> UpdatesAndRequirements:
        """Updates that are staged anew for each try: the snapshot.

        Conflicts are searched between the head at planning time and the current head in the
        catalog. Snapshots that the transaction has staged before come on top.
        """
        self._refuse_if_committed()
        head = self._table.metadata.snapshot_by_name(self._change.branch)
        produced = attempt(
            self._change,
            metadata,
            self._table.io,
            base_id=self.base_snapshot_id,
            head=head,
            snapshot_id=self.snapshot_id,
            table=self._name,
        )
        self._attempts.append(produced)
        self._parents.append(head.snapshot_id if head else None)
        return produced.updates, produced.requirements

    def _refuse_if_committed(self) -> None:
        """Refuse a load that the catalog's table has; the transaction's table always has it."""
        try:
            already = find_committed(self._change, self._table.metadata, self._table.io)
        except InvalidArgumentError as error:
            self._keep_written_files()
            raise CommitConflictError(str(error)) from error
        if already is not None:
            self._keep_written_files()
            raise CommitConflictError(
                f"the same load was committed to {self._name} concurrently, by snapshot "
                f"{already.snapshot_id}. Nothing was changed"
            )

    def _keep_written_files(self) -> None:
        if self._in_flight is not None:
            self._in_flight.give_back()

    def landed(self) -> None:
        """Clean up after the transaction was committed."""
        snapshot = self._table.metadata.snapshot_by_id(self.snapshot_id)
        kept = snapshot.manifest_list if snapshot else None
        delete_lost(self._table.io, self._attempts, kept)
        if self._in_flight is not None:
            self._in_flight.committed()

    def failed(self, error: BaseException | None) -> None:
        """Delete the files of a failed transaction if its snapshot can't be in the table.

        Raises:
            CommitUnknownError: If it was committed nevertheless, or if that is not known.
        """
        if self.has_landed(error):
            raise CommitUnknownError(
                f"the catalog said that the transaction on {self._name} was refused, but its "
                f"snapshot {self.snapshot_id} is in the table: the commit happened. Do not repeat "
                "it",
                snapshot_id=self.snapshot_id,
            ) from error

    def has_landed(self, error: BaseException | None) -> bool:
        """Whether the snapshot is in the table although the commit ended with an error.

        Its files are deleted if it can't be there.

        Raises:
            CommitUnknownError: If that is not known. The files stay.
        """
        catalog, branch = self._table.catalog, self._change.branch
        requests = CommitRequests(catalog, self._name, branch, self.snapshot_id)
        for produced, parent_id in zip(self._attempts, self._parents, strict=True):
            requests.add(parent_id, produced.sequence_number, error)
        if self._in_flight is not None:
            self._in_flight.requests = requests
        backoff = Backoff.of(self._table.metadata.properties)
        trouble = error if isinstance(error, Exception) else CommitError("it was refused")
        snapshot = requests.settle(
            trouble, lambda: requests.found_in(refreshed(self._table)), backoff
        )
        if snapshot is None:
            self.discard()
            return False
        self.landed()
        return True

    def discard(self) -> None:
        """Delete the files of a transaction that was certainly refused."""
        delete_files(self._table.io, [path for a in self._attempts for path in a.paths])
        if self._in_flight is not None:
            self._in_flight.abandon()


class StagedCheck:
    """A change without effect. Data that others add before the commit may be a conflict.

    Args:
        table: The transaction's table.
        change: The change.
        base_snapshot_id: The head of the branch in the catalog when the change was planned.
    """

    makes_snapshot = False

    def __init__(self, table: Table, change: Change, *, base_snapshot_id: int | None) -> None:
        self._table = table
        self._change = change
        self.base_snapshot_id = base_snapshot_id
        self.branch = change.branch
        self.snapshot_id = table.metadata.new_snapshot_id()  # never in a table

    def lasting(self, metadata: TableMetadata) -> UpdatesAndRequirements:
        """Nothing."""
        return (), ()

    def produce(self, metadata: TableMetadata) -> UpdatesAndRequirements:
        """Only the requirement that the branch has not moved since the check.

        Raises:
            CommitConflictError: If others have added data that the change should have seen.
        """
        head = self._table.metadata.snapshot_by_name(self.branch)
        validate(
            self._change,
            self._table.metadata,
            self._table.io,
            base_id=self.base_snapshot_id,
            head=head,
            table=".".join(self._table.name()),
        )
        ref = metadata.refs.get(self.branch)
        return (), (
            AssertRefSnapshotId(ref=self.branch, snapshot_id=ref.snapshot_id if ref else None),
        )

    def landed(self) -> None:
        """Do nothing: no file was written."""

    def failed(self, error: BaseException | None) -> None:
        """Do nothing: no file was written."""

    def has_landed(self, error: BaseException | None) -> bool:
        """Always false: it makes no snapshot."""
        return False

    def discard(self) -> None:
        """Do nothing: no file was written."""
