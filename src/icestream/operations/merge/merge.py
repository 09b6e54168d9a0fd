"""`merge`: update, delete and insert rows of a table by key, from a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.snapshots import Operation

from icestream.catalogs.lookup import resolve_table
from icestream.memory.allocator import trim_heap
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget
from icestream.operations.kept_tasks import KeptTasks
from icestream.operations.live_files import LiveFiles
from icestream.operations.merge.apply.copy_on_write import CopyOnWrite
from icestream.operations.merge.apply.merge_on_read import MergeOnRead
from icestream.operations.merge.apply.row_change import Applied, RowChange
from icestream.operations.merge.intake.incoming import Incoming
from icestream.operations.merge.intake.stream_rows import StreamRows
from icestream.operations.merge.keys.key_columns import KeyColumns
from icestream.operations.merge.keys.key_hash import KeyHash
from icestream.operations.merge.match.candidates import KeyGaps
from icestream.operations.merge.match.matched_in_memory import MatchedInMemory
from icestream.operations.merge.match.matched_on_disk import MatchedOnDisk
from icestream.operations.merge.match.matches import Matches, keys_of_files
from icestream.operations.merge.merge_options import (
    Isolation,
    MergeOptions,
    NullKeys,
    OnDuplicate,
    WhenMatched,
    WhenNotMatched,
    WriteMode,
)
from icestream.operations.merge.merge_plan import MergePlan, written_columns
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_options import WriteOptions
from icestream.operations.write_parts import AppliedChanges, Base
from icestream.report.write_report import MergeReport
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.sources.arrow_source import ArrowSource
from icestream.write.table_writer import TableWriter
from icestream.write.target import WriteTarget


def merge(
    table: str | Table | Transaction,
    source: object,
    *,
    catalog: str | Catalog | None = None,
    on: Sequence[str] | str | None = None,
    when_matched: WhenMatched = "update",
    when_not_matched: WhenNotMatched = "insert",
    update_columns: Sequence[str] | None = None,
    delete_when: str | BooleanExpression | None = None,
    on_duplicate: OnDuplicate = "error",
    last_by: str | None = None,
    null_keys: NullKeys = "error",
    skip_unchanged: bool = True,
    write_mode: WriteMode | None = None,
    isolation: Isolation | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
    dry_run: bool = False,
) -> MergeReport:
    """Merge a stream into a table by a key, as exactly one snapshot.

    A row of the stream matches all rows of the table with the same key. If the stream lacks a
    column, updated rows keep their value and new rows get null. Only files with changed rows are
    rewritten. For other files at most the key columns are read, and files that statistics rule out
    are not read at all. If nothing changes, there is no snapshot.

    Args:
        table: A table's name such as `"db.t"`, a PyIceberg table, or an open transaction in which
            the merge is staged.
        source: Any Arrow stream, or a callable that opens one, see `append`. It is read once.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        on: The key: one or several columns, with dots for fields of structs; the table's identifier
            fields by default. 0.0 equals -0.0, and NaN equals NaN.
        when_matched: What to do with rows of the table that match: `"update"`, `"ignore"` or
            `"delete"`.
        when_not_matched: What to do with rows of the stream that match nothing: `"insert"` or
            `"ignore"`.
        update_columns: The columns that an update sets; all columns of the stream by default.
        delete_when: A filter over the stream's columns. Rows for which it is true delete the rows
            that they match, and are never inserted. Columns that only this filter uses are not
            written.
        on_duplicate: What to do if rows of the stream have the same key: `"error"`, or `"last"` to
            use the last one.
        last_by: The column that decides which row is the last; by default the order of the stream
            decides. Null is lowest, and among equal values the later row is used.
        null_keys: What to do with rows of the stream that have a null in their key: `"error"`, or
            `"insert"` to insert them without looking for matches. Null keys of the table never
            match.
        skip_unchanged: Whether to skip rows that already have the values of the stream. This reads
            the columns to compare. If false, every match counts as an update.
        write_mode: `"copy-on-write"`, or `"merge-on-read"`, which deletes changed rows by position:
            quick to write, but slower to read until `compact`. The default is the table property
            `write.merge.mode`, or copy-on-write.
        isolation: `"serializable"` refuses the merge if concurrent commits added rows whose keys
            might match. `"snapshot"` refuses it only if they changed the same files. The default is
            the table property `write.merge.isolation-level`, or serializable.
        memory: Maximum number of bytes held: half for the stream's rows, a quarter each for reading
            and writing. Rows that do not fit are spilled to temporary files (`TMPDIR`).
        schema_mode: What to do if the stream's columns differ from the table's, see `append`.
        branch: The branch that gets the snapshot; it must exist.
        properties: Properties for the snapshot's summary.
        load_id: Identifies this merge: a second call with the same id does nothing.
        dry_run: Whether to count what would change, and write and commit nothing. The whole stream
            is read, and the rows of the table that match.

    Returns:
        A report.

    Raises:
        DuplicateKeysError: If rows of the stream have the same key.
        InvalidDataError: If a key is null.
        CommitConflictError: If a concurrent commit changed the same rows. Nothing was changed.

    Memory: Arrow bytes held stay within `memory`, whatever the size of stream and table.
    """
    options = MergeOptions(
        on=on,
        when_matched=when_matched,
        when_not_matched=when_not_matched,
        update_columns=update_columns,
        delete_when=delete_when,
        on_duplicate=on_duplicate,
        last_by=last_by,
        null_keys=null_keys,
        skip_unchanged=skip_unchanged,
        write_mode=write_mode,
        isolation=isolation,
        schema_mode=schema_mode,
    )
    options.check()
    into: Table | Transaction = resolve_table(table, catalog)
    work = LocalMerge(options)
    write_options = WriteOptions(
        memory=memory,
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
        dry_run=dry_run,
    )
    operation = WriteOperation(
        into, Operation.OVERWRITE, work, write_options, intake=work, verb="merge"
    )
    report = operation.run(source)
    return MergeReport(**{**asdict(report), "operation": "merge"}, **work.facts())


class LocalMerge:
    """Takes in the stream, finds the rows that it matches, and changes them."""

    shares = 3
    looks_late = True

    def __init__(self, options: MergeOptions) -> None:
        self._options = options
        self._incoming: Incoming | None = None
        self._matches: Matches | None = None
        self._tasks: Sequence[FileScanTask] = ()
        self._bytes_read = 0
        self._applied = Applied()
        self._on_read = False
        self._files_before = 0

    def columns(self, stream: pa.Schema, target: WriteTarget) -> pa.Schema:
        """The columns of the stream to write."""
        return written_columns(self._options, stream, target)

    def take(self, stream: ArrowSource, base: Base, writer: TableWriter) -> None:
        """Take in all rows."""
        self._on_read = self._options.merges_on_read(base.target)
        self._files_before = LiveFiles(base.target, base.branch, base.budgets.scan).count_files()
        if stream.schema is None:
            KeyColumns.of(writer.target.schema, self._options.on, table=base.target.table)
            return
        plan = MergePlan.of(self._options, stream.schema, base.target, writer.target.schema)
        self._incoming = Incoming(StreamRows(plan, writer, KeyHash()), base.budgets.rows)
        try:
            for batch in stream:
                self._incoming.take(batch)
                del batch  # before the next one is made
        except BaseException:
            self._incoming.close()
            raise

    def apply(self, base: Base, writer: TableWriter) -> AppliedChanges:
        """Change the table's matching rows, and insert the stream's rows without a match."""
        incoming = self._incoming
        if incoming is None or not incoming.rows:
            return AppliedChanges()
        plan = incoming.rows_of.plan
        live = LiveFiles(base.target, base.branch, base.budgets.scan)
        # A column that this merge adds is null in every row of the table.
        is_new = not plan.key.ids <= set(live.schema.field_ids)
        row_filter = AlwaysFalse() if is_new else incoming.range.filter()
        tasks = KeptTasks(live.budget, columns=plan.key.ids, column_sizes=self._on_read)
        self._tasks = tasks
        try:
            tasks.extend(live.tasks(live.ask(row_filter)))
            matches = self._matches = _match(incoming, live, tasks, base.budgets.rows)
            trim_heap()  # The index is no longer needed.
            if isinstance(matches, MatchedInMemory):
                base.budgets.share_what_rows_left()
            change = RowChange(incoming.rows_of)
            apply = (MergeOnRead if self._on_read else CopyOnWrite)(live, writer, change)
            self._applied = apply.run(tasks, matches)
            matches.finish()
            rewritten = [*self._applied.removed, *self._applied.deleted_from]
            self._bytes_read = bytes_read(tasks, plan, rewritten)
        finally:
            tasks.close()
            incoming.close()
            if self._matches is not None:
                self._matches.close()
        spilled_bytes = incoming.spilled_bytes + matches.spilled_bytes
        return self._changes(base, row_filter, spilled_bytes)

    def facts(self) -> dict[str, Any]:
        """The fields that only the report of a merge has."""
        applied = self._applied
        return {
            "write_mode": self._options.write_mode
            or ("merge-on-read" if self._on_read else "copy-on-write"),
            "files_read": len(self._tasks),
            "files_kept": self._files_before - len(applied.removed),
            "bytes_read": self._bytes_read,
            "rows_superseded": self._incoming.duplicates.rows_superseded if self._incoming else 0,
            "target_duplicates": self._matches.duplicates if self._matches else 0,
        }

    def _changes(
        self, base: Base, row_filter: BooleanExpression, spilled_bytes: int
    ) -> AppliedChanges:
        applied = self._applied
        return AppliedChanges(
            files=tuple(applied.removed),
            deleted_from=tuple(applied.deleted_from),
            rows=applied.deleted,
            rows_kept=applied.written,
            rows_updated=applied.updated,
            rows_unchanged=applied.unchanged,
            bytes_spilled=spilled_bytes,
            conflict_filter=row_filter if self._options.is_serializable(base.target) else None,
        )


def _match(incoming: Incoming, live: LiveFiles, tasks: KeptTasks, budget: MemoryBudget) -> Matches:
    """Find the matches of the stream; `tasks` keeps only the files that may have some."""
    rows_of, key = incoming.rows_of, incoming.rows_of.plan.key
    bucket = None if incoming.is_spilled else next(incoming.buckets())
    if bucket is not None:
        tasks.keep_only(KeyGaps(key, rows_of.key_columns(bucket.rows)).may_hold)
    keys = keys_of_files(live, tasks, key, rows_of.hash, incoming.sieve)
    if bucket is not None:
        return MatchedInMemory(bucket, rows_of, keys, budget)
    return MatchedOnDisk(incoming, keys, budget)


def bytes_read(
    tasks: Sequence[FileScanTask], plan: MergePlan, rewritten: Sequence[DataFile]
) -> int:
    """The stored bytes that a merge reads: the key columns of all tasks, and rewritten files."""
    key_ids = plan.key.ids
    sizes = (size for t in tasks for size in (t.file.column_sizes or {}).items())
    key_bytes = sum(size for field_id, size in sizes if field_id in key_ids)
    return key_bytes + sum(file.file_size_in_bytes for file in rewritten)
