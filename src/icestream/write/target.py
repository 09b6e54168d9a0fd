"""Which table a write is for, and how its files are made: plain data for any worker."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder

from icestream.credentials import access_to
from icestream.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """A table as its writers see it: no catalog, no open handle.

    Attributes:
        table: The table's name, for messages.
        metadata: The table when the write was planned: location, properties, spec, sort order.
        io: How files are opened: properties, no open handles.
        schema: The schema that files are written with: the table's, or one evolved from it.
        write_id: Part of every file name of this write, in all its workers.
        task: Which worker of the write this is.
        attempt: Which try of that worker.
    """

    table: str
    metadata: TableMetadata = field(repr=False)
    io: FileIO = field(repr=False)
    schema: Schema = field(repr=False)
    write_id: str
    task: int = 0
    attempt: int = 0

    @classmethod
    def of(cls, table: Table, write_id: str | None = None) -> WriteTarget:
        """The target for a new write into a table, as the table object is now.

        Raises:
            InvalidArgumentError: If it is no table.
        """
        if not isinstance(table, Table):
            raise InvalidArgumentError(
                f"the table is a {type(table).__name__}: give a PyIceberg Table, such as "
                "catalog.load_table('db.table')"
            )
        return cls(
            table=".".join(table.name()),
            metadata=table.metadata,
            io=access_to(table.io, table.catalog, table.name(), table.metadata.location),
            schema=table.metadata.schema(),
            write_id=write_id or str(uuid.uuid4()),
        )

    @property
    def properties(self) -> dict[str, str]:
        """The table's properties."""
        return self.metadata.properties

    @property
    def spec(self) -> PartitionSpec:
        """The partition spec that files are written under."""
        return self.metadata.spec()

    @property
    def sort_order(self) -> SortOrder:
        """The order in which the table wants rows."""
        return self.metadata.sort_order()

    def with_schema(self, schema: Schema) -> WriteTarget:
        """The same target for files with another schema."""
        return replace(self, schema=schema)

    def for_task(self, task: int, attempt: int = 0) -> WriteTarget:
        """The same target for one of several workers."""
        return replace(self, task=task, attempt=attempt)
