"""A change that waits in a PyIceberg transaction for its owner to commit."""

from __future__ import annotations

from pyiceberg.table import CreateTableTransaction, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from icestream.commit.change import Change
from icestream.commit.cleanup import delete_files
from icestream.commit.in_flight import InFlightWrite
from icestream.commit.load_id import remember_load
from icestream.commit.producer import Produced, Producer
from icestream.commit.schema_change import apply_schema_change
from icestream.commit.validate import validate


class StagedChange:
    """Writes the change's metadata each time the transaction is tried, and tidies up after it.

    Args:
        table: The transaction's table.
        change: What to do.
        in_flight: The write whose files the change adds.
        transaction: Where it waits.
    """

    def __init__(
        self,
        table: Table,
        change: Change,
        in_flight: InFlightWrite | None,
        transaction: Transaction,
    ) -> None:
        self._table = table
        self._name = ".".join(table.name())
        self._change = change
        self._in_flight = in_flight
        self._attempts: list[Produced] = []
        self.snapshot_id = transaction.table_metadata.new_snapshot_id()
        if in_flight is not None and isinstance(transaction, CreateTableTransaction):
            in_flight.committed()  # such a transaction does not say how it ended

    @property
    def base_snapshot_id(self) -> int | None:
        """Where the change was planned."""
        return self._change.base_snapshot_id

    @property
    def branch(self) -> str:
        """Where it goes."""
        return self._change.branch

    def lasting(
        self, metadata: TableMetadata
    ) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
        """What is staged once: the schema, and the load id."""
        _, updates, requirements = apply_schema_change(
            self._change.schema, metadata, table=self._name
        )
        if self._change.load_id is not None:
            updates += remember_load(
                metadata,
                branch=self._change.branch,
                load_id=self._change.load_id,
                snapshot_id=self.snapshot_id,
                counts=self._change.counts,
            )
        return updates, requirements

    def produce(
        self, metadata: TableMetadata
    ) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
        """What is staged anew for each try: the snapshot."""
        validate(self._change, metadata, self._table.io, table=self._name)
        producer = Producer(
            self._change, metadata, self._table.io, self.snapshot_id, table=self._name
        )
        try:
            produced = producer.produce()
        except BaseException:
            delete_files(self._table.io, producer.paths)
            raise
        self._attempts.append(produced)
        return produced.updates, produced.requirements

    def landed(self) -> None:
        """The transaction was committed."""
        snapshot = self._table.metadata.snapshot_by_id(self.snapshot_id)
        kept = snapshot.manifest_list if snapshot else None
        lost = [a for a in self._attempts if a.manifest_list != kept] if kept else []
        delete_files(self._table.io, [path for attempt in lost for path in attempt.paths])
        if self._in_flight is not None:
            self._in_flight.committed()

    def failed(self) -> None:
        """The transaction was refused: nothing of it is in the table."""
        delete_files(self._table.io, [p for attempt in self._attempts for p in attempt.paths])
        if self._in_flight is not None:
            self._in_flight.abandon()
