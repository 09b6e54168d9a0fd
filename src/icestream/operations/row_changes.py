"""The rows that an overwrite or a delete removes: all, those matching a filter, or partitions.

Files that lose all of their rows are removed from the metadata without being read. Files that lose
some rows are rewritten without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import IsolationLevel, Operation
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType

from icestream.catalogs._pyiceberg.manifests import strict_metrics_evaluator
from icestream.commit.change import Key, comparable, partition_values
from icestream.errors import CommitConflictError, InvalidArgumentError
from icestream.memory.budget import MemoryBudget
from icestream.operations.kept_tasks import KeptTasks
from icestream.operations.live_files import LiveFiles
from icestream.operations.write_parts import AppliedChanges, Base, WorkerPart
from icestream.read.plan.file_predicate import all_rows_match
from icestream.read.plan.found_files import ManifestWorkers, Statistics
from icestream.read.project.row_filter import compile_filter, null_stays
from icestream.read.request import ScanRequest
from icestream.write.new_file import NewFile
from icestream.write.table_writer import TableWriter
from icestream.write.target import WriteTarget

COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
_DELETE_MODE = "write.delete.mode"
_Goes = Callable[[pa.RecordBatch], pa.Array]


class NoRowChanges:
    """The row changes of an append: none."""

    shares = 1

    def apply(self, base: Base, writer: TableWriter) -> AppliedChanges:
        """Change nothing."""
        return AppliedChanges()


@dataclass(frozen=True, slots=True)
class EverythingRemoved:
    """Removes all rows.

    Args:
        workers: Read manifests; by default this process does.
    """

    workers: Workers | None = None
    shares = 1

    def apply(self, base: Base, writer: TableWriter) -> AppliedChanges:
        """Remove every data file, together with its delete files."""
        live = live_files(base, self.workers)
        with closing(KeptTasks(live.budget)) as tasks:
            tasks.extend(live.tasks(live.ask()))
            return AppliedChanges(
                files=tuple(task.file for task in tasks),
                rows=live.count(tasks),
                conflict_filter=seen(base, AlwaysTrue()),
                everything=True,
            )


class RemovedRows(Protocol):
    """The rows to remove from files: plain data for any worker."""

    def remove(
        self, live: LiveFiles, writer: TableWriter, undecided: KeptTasks, whole: KeptTasks
    ) -> AppliedChanges:
        """Remove the rows.

        Args:
            live: The table's files.
            writer: Writes the rows that stay, or position deletes.
            undecided: Files that must be read.
            whole: Files whose rows are all removed. Files that turn out to be such are added.
        """
        ...


class Workers(Protocol):
    """Removes rows of files in other processes.

    Attributes:
        manifests: Reads data manifests in other processes.
    """

    @property
    def manifests(self) -> ManifestWorkers: ...

    def remove(
        self, rows: RemovedRows, base: Base, files: KeptTasks, first_whole: int
    ) -> WorkerPart:
        """Remove rows, and write those that stay under the operation's id.

        Args:
            rows: The rows.
            base: The table that the operation starts from.
            files: The files. The result has their numbers.
            first_whole: The number of the first file whose rows are all removed.

        Returns:
            The result of all workers. After an error, no file is left.
        """
        ...


@dataclass(frozen=True, slots=True)
class MatchingRemoved:
    """Removes the rows for which a filter is true. Rows for which it is null stay.

    Args:
        where: The filter.
        workers: Reads and rewrites files; by default this process does.
    """

    where: str | BooleanExpression
    workers: Workers | None = None

    @property
    def shares(self) -> int:
        """Two, for reading and writing, unless workers do both."""
        return 2 if self.workers is None else 1

    def apply(self, base: Base, writer: TableWriter) -> AppliedChanges:
        """Remove files whose rows all match; rewrite the others without the matching rows.

        In merge-on-read mode, a delete keeps these others and deletes matching rows by position.
        """
        live = live_files(base, self.workers)
        scan = live.ask(null_stays(live.ask(self.where).context.row_filter))
        row_filter = scan.context.row_filter
        conflict_filter = seen(base, row_filter)
        by_position = base.operation == Operation.DELETE and merges_on_read(
            base.target, _DELETE_MODE
        )
        removal = MatchingRows(row_filter, by_position)
        used = extract_field_ids(bind(live.schema, row_filter, True))
        statistics = Statistics(columns=frozenset(used))
        with closing(KeptTasks(live.budget)) as whole, closing(KeptTasks(live.budget)) as undecided:
            for task in live.tasks(scan, statistics):
                (whole if _all_go(scan, task, live.schema) else undecided).add(task)
            applied = _removed(removal, self.workers, base, live, writer, undecided, whole)
            return replace(applied, conflict_filter=conflict_filter)


@dataclass(frozen=True, slots=True)
class MatchingRows:
    """The rows that a filter selects.

    Attributes:
        row_filter: The filter, which is false where it is null.
        by_position: Whether files that keep rows stay, with position deletes.
    """

    row_filter: BooleanExpression
    by_position: bool

    def remove(
        self, live: LiveFiles, writer: TableWriter, undecided: KeptTasks, whole: KeptTasks
    ) -> AppliedChanges:
        """Remove the rows: see `RemovedRows`."""
        columns = filter_columns(live.schema, self.row_filter)
        matches = compile_filter(self.row_filter, live.schema.select(*columns), True)
        with _LosingFiles(live.budget, whole) as files:
            if self.by_position:
                return files.delete_by_position(live, writer, undecided, columns, matches)
            for task in undecided:
                files.add(task, *_tally(live, task, columns, matches))
            return files.rewrite(live, writer, compile_filter(self.row_filter, live.schema, True))


@dataclass(frozen=True, slots=True)
class WrittenPartitionsRemoved:
    """Removes the previous rows of the partitions that the operation writes to.

    A row is removed if the operation wrote to its partition under the current spec, even if its
    file has another spec. An empty stream removes nothing.

    Args:
        workers: Read manifests, and rewrite files of other specs. By default this process does.
    """

    workers: Workers | None = None

    @property
    def shares(self) -> int:
        """Two, for reading and writing, unless workers do both."""
        return 2 if self.workers is None else 1

    def apply(self, base: Base, writer: TableWriter) -> AppliedChanges:
        """Remove files of these partitions; read the files that have another spec."""
        partitioner, spec_id = writer.partitioner, base.target.spec.spec_id
        keys = {comparable(partitioner.key(number)) for number in range(len(partitioner))}
        keys |= _keys_of(base.files, spec_id, base.target.table)
        live = live_files(base, self.workers)
        removal = RowsOfPartitions(frozenset(keys))
        with closing(KeptTasks(live.budget)) as whole, closing(KeptTasks(live.budget)) as undecided:
            for task in live.tasks(live.ask()) if keys else ():
                if task.file.spec_id != spec_id:
                    undecided.add(task)
                elif partition_values(task.file) in keys:
                    whole.add(task)
            applied = _removed(removal, self.workers, base, live, writer, undecided, whole)
            return replace(applied, conflict_partitions=_seen_keys(base, keys))


@dataclass(frozen=True, slots=True)
class RowsOfPartitions:
    """The rows of some partitions of the current spec, in files of any spec.

    Attributes:
        keys: The comparable values of the partitions.
    """

    keys: frozenset[Key]

    def remove(
        self, live: LiveFiles, writer: TableWriter, undecided: KeptTasks, whole: KeptTasks
    ) -> AppliedChanges:
        """Remove the rows: see `RemovedRows`."""
        partitioner = writer.partitioner

        def goes(batch: pa.RecordBatch) -> pa.Array:
            numbers, rows = np.unique(partitioner.ids(writer.conform(batch)), return_inverse=True)
            keys = (comparable(partitioner.key(number)) for number in numbers)
            return pa.array([key in self.keys for key in keys]).take(rows)

        with _LosingFiles(live.budget, whole) as files:
            for task in undecided:
                files.add(task, *_tally(live, task, None, goes))
            return files.rewrite(live, writer, goes)


def _removed(
    rows: RemovedRows,
    workers: Workers | None,
    base: Base,
    live: LiveFiles,
    writer: TableWriter,
    undecided: KeptTasks,
    whole: KeptTasks,
) -> AppliedChanges:
    """Remove rows of files here or in workers.

    Workers get the files that must be read, and those of the others whose rows must be counted.
    """
    if workers is None:
        return rows.remove(live, writer, undecided, whole)
    first_whole = len(undecided)
    undecided.extend(task for task in whole if task.delete_files)
    whole.keep_only(lambda task: not task.delete_files)
    part = WorkerPart()
    if undecided:
        part = workers.remove(rows, base, undecided, first_whole)
    gone = [undecided[number] for number in part.removed]
    return AppliedChanges(
        files=tuple(task.file for task in chain(whole, gone)),
        deleted_from=tuple(undecided[number].file for number in part.deleted_from),
        written=part.written,
        rows=part.deleted + sum(task.file.record_count for task in whole),
        rows_kept=part.kept,
    )


class _LosingFiles:
    """Files that lose all or some of their rows.

    Args:
        budget: The memory budget.
        whole: Files that lose all rows. More are added; the caller closes the list.
    """

    def __init__(self, budget: MemoryBudget, whole: KeptTasks) -> None:
        self.whole = whole
        self.partly = KeptTasks(budget)
        self.rows = 0

    def __enter__(self) -> _LosingFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.partly.close()

    def add(self, task: FileScanTask, going: int, staying: int) -> None:
        """Add a file whose rows were counted, if it loses any."""
        if going and staying:
            self.partly.add(task)
            self.rows += going
        elif going:
            self.whole.add(task)

    def rewrite(self, live: LiveFiles, writer: TableWriter, goes: _Goes) -> AppliedChanges:
        """Write the rows that stay to new files."""
        kept = 0
        for batch in live.rows(self.partly):
            staying = batch.filter(pc.invert(pc.fill_null(goes(batch), False)))
            kept += staying.num_rows
            writer.write(staying)
            del batch, staying  # before the next one is read
        return AppliedChanges(
            files=tuple(task.file for task in chain(self.whole, self.partly)),
            rows=self.rows + live.count(self.whole),
            rows_kept=kept,
        )

    def delete_by_position(
        self,
        live: LiveFiles,
        writer: TableWriter,
        tasks: Sequence[FileScanTask],
        columns: Sequence[str],
        goes: _Goes,
    ) -> AppliedChanges:
        """Keep the files, and write position deletes for the rows that they lose."""
        deleted_from: list[DataFile] = []
        rows = 0
        reading = -1
        for located in live.located(tasks, columns):
            mask = pc.fill_null(goes(located.rows), False).to_numpy(zero_copy_only=False)
            positions = located.positions[mask]
            if len(positions):
                if located.number != reading:
                    reading = located.number
                    deleted_from.append(tasks[reading].file)
                writer.delete_rows(deleted_from[-1], positions)
                rows += len(positions)
        return AppliedChanges(
            files=tuple(task.file for task in self.whole),
            deleted_from=tuple(deleted_from),
            rows=rows + live.count(self.whole),
        )


def live_files(base: Base, workers: Workers | None = None) -> LiveFiles:
    """The files of the table that an operation starts from.

    Args:
        base: The table.
        workers: Read manifests; by default this process does.
    """
    manifests = None if workers is None else workers.manifests
    return LiveFiles(base.target, base.branch, base.budgets.scan, manifests)


def merges_on_read(target: WriteTarget, mode_property: str) -> bool:
    """Whether a table property selects merge-on-read; always false for format version 1.

    Raises:
        InvalidArgumentError: If the property has an unknown value.
    """
    mode = target.properties.get(mode_property, COPY_ON_WRITE)
    if mode not in (COPY_ON_WRITE, MERGE_ON_READ):
        raise InvalidArgumentError(
            f"the table property {mode_property} of {target.table} is {mode!r}: set it to "
            f"{COPY_ON_WRITE!r} or {MERGE_ON_READ!r}"
        )
    return mode == MERGE_ON_READ and target.metadata.format_version >= 2


def is_partitioned(spec: PartitionSpec) -> bool:
    """Whether the spec partitions rows; dropped fields do not count."""
    return any(not isinstance(field.transform, VoidTransform) for field in spec.fields)


def _keys_of(files: Sequence[NewFile], spec_id: int, table: str) -> set[Key]:
    if any(file.spec_id != spec_id for file in files):
        raise CommitConflictError(
            f"the partition spec of {table} was changed since the files were written, so the "
            "partitions that they replace are not known. Nothing was changed; write the files again"
        )
    return {comparable(file.partition) for file in files}


def filter_columns(schema: Schema, row_filter: BooleanExpression) -> list[str]:
    """The top-level columns that a filter needs."""
    ids = extract_field_ids(bind(schema, row_filter, True))
    needed = [f.name for f in schema.fields if not ids.isdisjoint(Schema(f).field_ids)]
    return needed or [schema.fields[0].name]


def _all_go(scan: ScanRequest, task: FileScanTask, schema: Schema) -> bool:
    """Whether the metadata shows that every row of a file matches."""
    row_filter = scan.context.row_filter
    if all_rows_match(scan, task):
        return True
    columns = {field.field_id: field.field_type for field in schema.fields}
    for field_id in extract_field_ids(bind(schema, row_filter, True)):
        if isinstance(columns.get(field_id), (FloatType, DoubleType, type(None))):
            return False  # Bounds ignore NaN, and PyIceberg has no bounds for nested fields.
        if field_id not in (task.file.null_value_counts or {}):
            return False  # PyIceberg would assume that there are no nulls.
    return strict_metrics_evaluator(schema, row_filter)(task.file)


def _tally(
    live: LiveFiles, task: FileScanTask, columns: Sequence[str] | None, goes: _Goes
) -> tuple[int, int]:
    """The number of rows that a file loses, and the number that stay."""
    going = total = 0
    for batch in live.rows([task], columns):
        total += batch.num_rows
        going += pc.sum(pc.fill_null(goes(batch), False)).as_py() or 0
    return going, total - going


def _is_serializable(base: Base) -> bool:
    try:
        level = base.target.metadata.isolation_level(base.operation)
    except ValueError as error:
        table = base.target.table
        raise InvalidArgumentError(f"{table} has an invalid isolation level: {error}") from error
    return level == IsolationLevel.SERIALIZABLE


def seen(base: Base, row_filter: BooleanExpression) -> BooleanExpression | None:
    """The filter of concurrently added rows that are a conflict; None if none are."""
    return row_filter if _is_serializable(base) else None


def _seen_keys(base: Base, keys: set[Key]) -> frozenset[Key] | None:
    return frozenset(keys) if keys and _is_serializable(base) else None
