"""The table of a write: plain data for any worker."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field, replace

from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder

from icestream.catalogs.credentials import renewing, table_access
from icestream.errors import InvalidArgumentError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """A table for writers, without a catalog and without open handles.

    Attributes:
        table: The table's name, for messages.
        metadata: The table when the write was planned: location, properties, spec, sort order.
        io: Opens files; holds properties, no open handles.
        schema: The schema of the files: the table's, or one evolved from it.
        write_id: Part of every file name of this write, in all its workers.
        task: The number of this worker.
        attempt: The number of this worker's attempt.
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
        """The target for a new write to a table, with the current metadata of the table object.

        Raises:
            InvalidArgumentError: If it is not a PyIceberg table.
        """
        if not isinstance(table, Table):
            raise InvalidArgumentError(
                f"the table is a {type(table).__name__}: give a PyIceberg Table, such as "
                "catalog.load_table('db.table')"
            )
        return cls(
            table=".".join(table.name()),
            metadata=table.metadata,
            io=table_access(table),
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
        """The table's sort order."""
        return self.metadata.sort_order()

    def with_schema(self, schema: Schema) -> WriteTarget:
        """The same target for files with another schema."""
        return replace(self, schema=schema)

    def for_task(self, task: int, attempt: int = 0) -> WriteTarget:
        """The same target for one of several workers."""
        return replace(self, task=task, attempt=attempt)


def delete_file(io: FileIO, path: str) -> None:
    """Delete a file of a write. Failures are only logged: it may be gone already."""
    try:
        renewing(io, lambda: io.delete(path), path=path)
    except Exception as error:
        _log.debug("could not delete %s: %s", path, error)


def without_history(target: WriteTarget) -> WriteTarget:
    """The same target for workers, which need no snapshots except the newest of each branch.

    The metadata of a table with thousands of snapshots takes megabytes.
    """
    metadata = target.metadata
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    heads.add(metadata.current_snapshot_id or 0)
    kept = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in heads]
    nothing: list[object] = []
    shorter = {"snapshots": kept, "snapshot_log": nothing, "metadata_log": nothing}
    return replace(target, metadata=metadata.model_copy(update=shorter))
