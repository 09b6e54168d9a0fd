"""A change that waits in a PyIceberg transaction for its owner to commit."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId, UpdatesAndRequirements

from icestream.commit.attempt import attempt
from icestream.commit.change import Change
from icestream.commit.cleanup import delete_files
from icestream.commit.handed_over import find_committed
from icestream.commit.in_flight import InFlightWrite
from icestream.commit.load_id import Position, remember_load
from icestream.commit.producer import Produced
from icestream.commit.retry import Backoff
from icestream.commit.schema_change import apply_schema_change
from icestream.commit.sent import SentCommit, refreshed
from icestream.commit.validate import validate
from icestream.errors import (
    CommitConflictError,
    CommitError,
    CommitUnknownError,
    InvalidArgumentError,
)


class StagedChange:
    """Writes the change's metadata each time the transaction is tried, and tidies up after it.

    Args:
        table: The transaction's table.
        change: What to do.
        in_flight: The write whose files the change adds.
        base_snapshot_id: The head of the branch in the catalog when the change was planned: not
            what the transaction has staged on top.
    """

    makes_snapshot = True

    def __init__(
        self,
        table: Table,
        change: Change,
        in_flight: InFlightWrite | None,
        *,
        base_snapshot_id: int | None,
    ) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._change = change
        self._in_flight = in_flight
        self._attempts: list[Produced] = []
        self._parents: list[int | None] = []  # of the transaction, in the catalog, for each try
        self.base_snapshot_id = base_snapshot_id
        self.snapshot_id = table.metadata.new_snapshot_id()

    @property
    def branch(self) -> str:
        """Where it goes."""
        return self._change.branch

    def lasting(self, metadata: TableMetadata) -> UpdatesAndRequirements:
        """What is staged once: the schema, and the load id."""
        _, updates, requirements = apply_schema_change(
            self._change.schema, metadata, table=self._name
        )
        if self._change.load_id is not None:
            updates += remember_load(
                branch=self._change.branch,
                load_id=self._change.load_id,
                snapshot_id=self.snapshot_id,
                counts=self._change.counts,
                position=Position.next(metadata),
            )
        return updates, requirements

    def produce(self, metadata: TableMetadata) -> UpdatesAndRequirements:
        """What is staged anew for each try: the snapshot.

        What others have committed since the change was planned lies below what the transaction has
        staged before: that is where to look for conflicts.
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
        """Look in the catalog's table: in the transaction's, the load itself is remembered."""
        try:
            already = find_committed(self._change, self._table.metadata, self._table.io)
        except InvalidArgumentError as error:
            self._keep_handed_over()
            raise CommitConflictError(str(error)) from error
        if already is not None:
            self._keep_handed_over()
            raise CommitConflictError(
                f"the same load was committed to {self._name} meanwhile, by snapshot "
                f"{already.snapshot_id}. Nothing was changed"
            )

    def _keep_handed_over(self) -> None:
        if self._in_flight is not None:
            self._in_flight.give_back()

    def landed(self) -> None:
        """The transaction was committed."""
        snapshot = self._table.metadata.snapshot_by_id(self.snapshot_id)
        kept = snapshot.manifest_list if snapshot else None
        if any(produced.manifest_list == kept for produced in self._attempts):
            lost = [a for a in self._attempts if a.manifest_list != kept]
            delete_files(self._table.io, [path for a in lost for path in a.paths])
        if self._in_flight is not None:
            self._in_flight.committed()

    def failed(self, error: BaseException | None) -> None:
        """The transaction says that it was refused. Delete its files if that is so for certain.

        Raises:
            CommitUnknownError: If it was committed all the same, or if that is not known.
        """
        sent = SentCommit(self._table.catalog, self._name, self._change.branch, self.snapshot_id)
        for produced, parent_id in zip(self._attempts, self._parents, strict=True):
            sent.add(parent_id, produced.sequence_number, error)
        if self._in_flight is not None:
            self._in_flight.sent = sent
        backoff = Backoff.of(self._table.metadata.properties)
        trouble = error if isinstance(error, Exception) else CommitError("it was refused")
        if sent.settle(trouble, lambda: sent.found_in(refreshed(self._table)), backoff) is None:
            self.discard()
            return
        self.landed()
        raise CommitUnknownError(
            f"the catalog said that the transaction on {self._name} was refused, but its snapshot "
            f"{self.snapshot_id} is in the table: the commit happened. Do not repeat it",
            snapshot_id=self.snapshot_id,
        ) from error

    def discard(self) -> None:
        """The transaction was refused for certain: nothing of it is in the table."""
        delete_files(self._table.io, [path for a in self._attempts for path in a.paths])
        if self._in_flight is not None:
            self._in_flight.abandon()


class StagedLook:
    """A change that found nothing to do: what others add until the commit may prove it wrong.

    Args:
        table: The transaction's table.
        change: What it would have done.
        base_snapshot_id: As of `StagedChange`.
    """

    makes_snapshot = False

    def __init__(self, table: Table, change: Change, *, base_snapshot_id: int | None) -> None:
        self._table = table
        self._change = change
        self.base_snapshot_id = base_snapshot_id
        self.branch = change.branch
        self.snapshot_id = table.metadata.new_snapshot_id()  # is in no table

    def lasting(self, metadata: TableMetadata) -> UpdatesAndRequirements:
        """Nothing."""
        return (), ()

    def produce(self, metadata: TableMetadata) -> UpdatesAndRequirements:
        """Nothing but the requirement that the branch is where it was looked at.

        Raises:
            CommitConflictError: If others have added what the change would have had to see.
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
        """There is nothing to tidy up."""

    def failed(self, error: BaseException | None) -> None:
        """There is nothing to delete."""

    def discard(self) -> None:
        """There is nothing to delete."""
