"""The change that one snapshot makes to a table: plain data, planned once, tried until settled."""

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
    """Partition values in which all NaNs are equal."""
    return tuple("NaN" if value != value else value for value in key)


def partition_values(file: DataFile) -> Key:
    """A file's partition values as a tuple that can be compared."""
    return comparable(tuple(file.partition[n] for n in range(len(file.partition))))


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A new schema that becomes the table's current one in the same commit.

    Attributes:
        schema: The new schema; files of the change were written with its field ids.
        base_schema_id: The current schema of the table that the new one was derived from.
        base_last_column_id: The highest field id of that table.
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
    """Counts of a change, stored with its load id.

    Attributes:
        rows_inserted: Rows added to the table.
        rows_updated: Rows whose values changed.
        rows_unchanged: Matching rows of a merge that already had the stream's values.
        rows_deleted: Rows deleted from the table.
        files_added: Data files added.
        files_removed: Data files removed.
        bytes_written: Total size of the added files.
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
    """Everything that one snapshot changes.

    Attributes:
        operation: The snapshot's operation.
        branch: The branch to commit to.
        added: Data files to add, each under its own partition spec.
        removed: Data files to remove; each must still be in the table at commit time.
        added_deletes: Position delete files to add.
        deleted_from: The data files that they apply to. Each must still be in the table at commit
            time, and no other commit may have deleted rows of it.
        removed_deletes: Delete files to remove.
        base_snapshot_id: The branch's head when the change was planned; None for an empty branch.
        conflict_filter: The rows that the change was computed from. Data added since
            `base_snapshot_id` that may match is a conflict; with None, added data never is.
        conflict_partitions: The same for whole partitions, by their values.
        conflict_schema_id: The schema of the filter's columns; None for the current one.
        conflict_spec_id: The spec of those partitions; None for the current one.
        schema: A schema change in the same commit.
        properties: Further properties of the snapshot's summary.
        load_id: Makes a second commit with the same id a no-op.
        write_ids: Ids of earlier writes by `write_files` whose files it commits.
        written_paths: The paths of those files; they are not committed again.
        counts: Counts to store with the load id.
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
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    load_id: str | None = None
    write_ids: tuple[str, ...] = ()
    written_paths: frozenset[str] = frozenset()
    counts: Counts = Counts()

    @property
    def changes_something(self) -> bool:
        """Whether it is worth a snapshot."""
        files = self.added or self.removed or self.added_deletes
        return bool(files or self.schema or self.load_id)

    @property
    def only_adds(self) -> bool:
        """Whether it is a plain append, which never conflicts."""
        reads = self.conflict_filter is not None or self.conflict_partitions is not None
        return not self.removed and not self.added_deletes and not reads
