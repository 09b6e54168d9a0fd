"""What one snapshot is to do to a table: plain data, planned once, tried until it is settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icestream.write.target import WriteTarget

Key = tuple[Any, ...]


def comparable(key: Key) -> Key:
    """Partition values such that every NaN equals every other."""
    return tuple("NaN" if value != value else value for value in key)


def partition_values(file: DataFile) -> Key:
    """A file's partition as a tuple that compares."""
    return comparable(tuple(file.partition[n] for n in range(len(file.partition))))


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A schema that the same commit makes the table's current one.

    Attributes:
        schema: The new schema; files of the change were written with its field ids.
        base_schema_id: The table's current schema when the new one was derived.
        base_last_column_id: The table's highest field id then.
    """

    schema: Schema
    base_schema_id: int
    base_last_column_id: int

    @classmethod
    def of(cls, target: WriteTarget, schema: Schema) -> SchemaChange:
        """The change to a schema that was derived from the target's table."""
        metadata = target.metadata
        return cls(schema, metadata.current_schema_id, metadata.last_column_id)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a change amounts to; remembered with its load id.

    Attributes:
        rows_inserted: Rows that are new to the table.
        rows_updated: Rows that were given other values.
        rows_unchanged: Rows that a merge found as they were to be.
        rows_deleted: Rows that are gone from it.
        files_added: Data files added.
        files_removed: Data files removed.
        bytes_written: The size of the files added.
    """

    rows_inserted: int = 0
    rows_updated: int = 0
    rows_unchanged: int = 0
    rows_deleted: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One snapshot's worth of changes.

    Attributes:
        operation: How the snapshot calls itself.
        branch: Where it goes.
        added: Data files to add, each under its own partition spec.
        removed: Data files to remove; each must still be there at commit time.
        added_deletes: Position delete files to add.
        deleted_from: The data files that these are about; each must still be there at commit time,
            and nobody else may have deleted rows of it.
        removed_deletes: Delete files to remove.
        base_snapshot_id: The branch's head when the change was planned; None for an empty one.
        conflict_filter: The rows that the change was computed from. Data added since
            `base_snapshot_id` that might match is a conflict. None: nothing added conflicts.
        conflict_partitions: The same for whole partitions, by their values.
        conflict_schema_id: The schema that names the filter's columns; None: the current one.
        conflict_spec_id: The spec of those values; None: the current one.
        schema: A schema change that belongs to it.
        properties: For the snapshot's summary.
        load_id: Makes a second commit with the same id a no-op.
        write_ids: The earlier writes, by `write_files`, of which it commits files.
        handed_over: The paths of those files; they are not committed again.
        counts: What to remember with the load id.
    """

    operation: Operation
    branch: str = MAIN_BRANCH
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    added_deletes: tuple[DataFile, ...] = ()
    deleted_from: tuple[DataFile, ...] = ()
    removed_deletes: tuple[DataFile, ...] = ()
    base_snapshot_id: int | None = None
    conflict_filter: BooleanExpression | None = None
    conflict_partitions: frozenset[Key] | None = None
    conflict_schema_id: int | None = None
    conflict_spec_id: int | None = None
    schema: SchemaChange | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    load_id: str | None = None
    write_ids: tuple[str, ...] = ()
    handed_over: frozenset[str] = frozenset()
    counts: Counts = Counts()

    @property
    def changes_something(self) -> bool:
        """Whether it is worth a snapshot."""
        files = self.added or self.removed or self.added_deletes
        return bool(files or self.schema or self.load_id)

    @property
    def only_adds(self) -> bool:
        """Whether it can't conflict with anything: a plain append."""
        reads = self.conflict_filter is not None or self.conflict_partitions is not None
        return not self.removed and not self.added_deletes and not reads
