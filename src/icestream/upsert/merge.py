"""`merge`: rows of a stream update, delete or join the rows of a table, in one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.snapshots import Operation

from icestream.allocator import trim_heap
from icestream.commit.kept_tasks import KeptTasks
from icestream.commit.live_files import LiveFiles
from icestream.commit.load import Base, Load, Removed
from icestream.memory import DEFAULT_MEMORY, MemoryBudget
from icestream.report import MergeReport
from icestream.upsert.applied import Applied
from icestream.upsert.candidates import KeyGaps
from icestream.upsert.copy_on_write import CopyOnWrite
from icestream.upsert.incoming import Bucket, Incoming
from icestream.upsert.key_columns import KeyColumns
from icestream.upsert.key_hash import KeyHash
from icestream.upsert.matched_in_memory import MatchedInMemory
from icestream.upsert.matched_on_disk import MatchedOnDisk
from icestream.upsert.matches import KeysOfFile, Matches, keys_of_files
from icestream.upsert.merge_on_read import MergeOnRead
from icestream.upsert.merge_plan import MergePlan, written_columns
from icestream.upsert.options import (
    Isolation,
    MergeOptions,
    NullKeys,
    OnDuplicate,
    WhenMatched,
    WhenNotMatched,
    WriteMode,
)
from icestream.upsert.row_change import RowChange
from icestream.upsert.stream_rows import StreamRows
from icestream.write.schema import SchemaMode
from icestream.write.source import ArrowSource
from icestream.write.table_writer import TableWriter
from icestream.write.target import WriteTarget


def merge(
    table: Table | Transaction,
    source: object,
    *,
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
) -> MergeReport:
    """Merge a stream into a table by a key, as exactly one snapshot.

    A row of the stream matches the rows of the table that have the same key. Of a column that the
    stream does not have, rows of the table keep their value when they are updated, and new rows get
    null. Only files with rows that change are written again; of the others no more than their keys
    are read, and of files that statistics rule out nothing. Nothing to change, no snapshot.

    Args:
        table: A PyIceberg table; or an open transaction, in which the merge is staged.
        source: Any stream of Arrow batches, as of `append`; it is read once.
        on: The key: one or several columns, with dots for fields of structs; the table's identifier
            fields by default. 0.0 equals -0.0, and NaN equals NaN.
        when_matched: What becomes of rows that match: `"update"`, `"ignore"` or `"delete"`.
        when_not_matched: What becomes of the stream's other rows: `"insert"` or `"ignore"`.
        update_columns: The columns that an update sets; all of the stream's by default.
        delete_when: A filter over the stream's columns: its rows for which it is true delete what
            they match, and are never inserted. Columns that only it needs are not written.
        on_duplicate: What to do if rows of the stream have the same key: `"error"`, or `"last"` to
            let the last one count.
        last_by: The column by whose value a row is the last; the order of the stream by default.
            Null is lowest, and of equal values the later row counts.
        null_keys: What to do with rows of the stream that have a null in their key: `"error"`, or
            `"insert"` to insert them without looking for matches. Null keys of the table never
            match.
        skip_unchanged: Whether rows that are as they were to be are left alone. That means reading
            the columns that are compared; without it every match counts as an update.
        write_mode: `"copy-on-write"`, or `"merge-on-read"`: changed rows are deleted by position,
            which is quick to write and slower to read until `compact`. By default what the table
            property `write.merge.mode` says, or copy-on-write.
        isolation: `"serializable"` refuses the merge if others have added rows meanwhile whose keys
            might match; `"snapshot"` only if they have changed the same files. By default what the
            table property `write.merge.isolation-level` says, or serializable.
        memory: The most bytes held: half for the stream's rows, a quarter each for reading and
            writing. Rows that do not fit are spilled to temporary files (`TMPDIR`).
        schema_mode: As of `append`; likewise branch, properties and load_id.

    Returns:
        What happened.

    Raises:
        DuplicateKeysError: If rows of the stream have the same key.
        InvalidDataError: If a key is null.
        CommitConflictError: If others have changed the same rows meanwhile. Nothing was changed.

    Memory: Arrow bytes held stay within `memory`, however long the stream and large the table.
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
    work = _Merge(options)
    load = Load(
        table,
        Operation.OVERWRITE,
        work,
        memory=memory,
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
        intake=work,
        verb="merge",
    )
    report = load.run(source)
    known: dict[str, Any] = {each.name: getattr(report, each.name) for each in fields(report)}
    return MergeReport(**{**known, "operation": "merge"}, **work.facts())


class _Merge:
    """Takes the stream in, finds what it matches, and changes that."""

    shares = 3
    looks_late = True

    def __init__(self, options: MergeOptions) -> None:
        self._options = options
        self._plan: MergePlan | None = None
        self._rows_of: StreamRows | None = None
        self._incoming: Incoming | None = None
        self._matches: Matches | None = None
        self._tasks: Sequence[FileScanTask] = ()
        self._bytes_read = 0
        self._applied = Applied()
        self._on_read = False
        self._files_before = 0

    def columns(self, stream: pa.Schema, target: WriteTarget) -> pa.Schema:
        """The columns of the stream that are written."""
        return written_columns(self._options, stream, target)

    def take(self, stream: ArrowSource, base: Base, writer: TableWriter) -> None:
        """Take all rows in."""
        self._on_read = self._options.merges_on_read(base.target)
        self._files_before = LiveFiles(base.target, base.branch, base.budgets.scan).count_files()
        if stream.schema is None:
            KeyColumns.of(writer.target.schema, self._options.on, table=base.target.table)
            return
        plan = MergePlan.of(self._options, stream.schema, base.target, writer.target.schema)
        self._plan, self._rows_of = plan, StreamRows(plan, writer, KeyHash())
        self._incoming = Incoming(plan, self._rows_of, base.budgets.rows)
        try:
            for batch in stream:
                self._incoming.take(batch)
                del batch  # before the next one is made
        except BaseException:
            self._incoming.close()
            raise

    def remove(self, base: Base, writer: TableWriter) -> Removed:
        """Change the rows that match, and write those that do not."""
        incoming, plan = self._incoming, self._plan
        if incoming is None or plan is None or not incoming.rows:
            return Removed()
        assert self._rows_of is not None
        live = LiveFiles(base.target, base.branch, base.budgets.scan)
        # A column that this very merge adds is null in every row of the table.
        is_new = not plan.key.ids <= set(live.schema.field_ids)
        row_filter = AlwaysFalse() if is_new else incoming.range.filter()
        tasks = KeptTasks(live.budget, columns=plan.key.ids, column_sizes=self._on_read)
        self._tasks = tasks
        try:
            tasks.extend(live.tasks(live.ask(row_filter)))
            self._matches = self._match(live, plan, self._rows_of, writer, base, tasks)
            trim_heap()  # Of the index, and of what it took to make it.
            if isinstance(self._matches, MatchedInMemory):
                base.budgets.share_what_rows_left()
            change = RowChange(
                plan, columns=writer.file_schema, is_deletion=self._rows_of.is_deletion
            )
            apply = (MergeOnRead if self._on_read else CopyOnWrite)(live, writer, change)
            self._applied = apply.run(self._tasks, self._matches)
            self._matches.finish()
            rewritten = [*self._applied.removed, *self._applied.deleted_from]
            self._bytes_read = bytes_read(tasks, plan, rewritten)
        finally:
            tasks.close()
            incoming.close()
            if self._matches is not None:
                self._matches.close()
        return self._removed(base, row_filter)

    def facts(self) -> dict[str, Any]:
        """What a report says of a merge alone."""
        applied = self._applied
        return {
            "write_mode": self._options.write_mode
            or ("merge-on-read" if self._on_read else "copy-on-write"),
            "files_read": len(self._tasks),
            "files_kept": self._files_before - len(applied.removed),
            "bytes_read": self._bytes_read,
            "rows_superseded": self._incoming.rows_superseded if self._incoming else 0,
            "target_duplicates": self._matches.duplicates if self._matches else 0,
        }

    def _match(
        self,
        live: LiveFiles,
        plan: MergePlan,
        rows_of: StreamRows,
        writer: TableWriter,
        base: Base,
        tasks: KeptTasks,
    ) -> Matches:
        incoming = self._incoming
        assert incoming is not None

        def insert(rows: pa.RecordBatch) -> None:
            new = rows_of.inserted(rows, writer.file_schema)
            if new is not None:
                writer.write_conformed(new)

        def keys() -> Iterator[KeysOfFile]:
            return keys_of_files(live, tasks, plan.key, rows_of.hash, incoming.sieve)

        rows_budget = base.budgets.rows
        if incoming.is_spilled:
            return MatchedOnDisk(incoming, rows_of.changes, keys(), insert, rows_budget)
        bucket: Bucket = next(incoming.buckets())
        gaps = KeyGaps(plan.key, rows_of.key_columns(bucket.rows))
        tasks.keep_only(gaps.may_hold)
        return MatchedInMemory(bucket, rows_of.changes, keys(), insert, rows_budget)

    def _removed(self, base: Base, row_filter: BooleanExpression) -> Removed:
        applied, matches, incoming = self._applied, self._matches, self._incoming
        assert matches is not None
        assert incoming is not None
        return Removed(
            files=tuple(applied.removed),
            deleted_from=tuple(applied.deleted_from),
            rows=applied.deleted,
            rows_kept=applied.written,
            rows_updated=applied.updated,
            rows_unchanged=applied.unchanged,
            bytes_spilled=incoming.spilled_bytes + matches.spilled_bytes,
            conflict_filter=row_filter if self._options.is_serializable(base.target) else None,
        )


def bytes_read(
    tasks: Sequence[FileScanTask], plan: MergePlan | None, rewritten: Sequence[DataFile]
) -> int:
    """Bytes in storage of what a merge reads: keys of some files, and others as a whole."""
    key_ids = plan.key.ids if plan else frozenset()
    sizes = (size for t in tasks for size in (t.file.column_sizes or {}).items())
    key_bytes = sum(size for field_id, size in sizes if field_id in key_ids)
    return key_bytes + sum(file.file_size_in_bytes for file in rewritten)
