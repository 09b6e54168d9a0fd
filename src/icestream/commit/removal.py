"""What a load takes out of a table: everything, what a filter selects, or whole partitions.

Files whose rows all go are removed by metadata alone. Of the others only those with rows that go
are written again, without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
)
from pyiceberg.expressions.visitors import bind, extract_field_ids, rewrite_not
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import IsolationLevel, Operation
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType

from icestream._pyiceberg import strict_metrics_evaluator
from icestream.commit.change import Key, comparable, partition_values
from icestream.commit.kept_tasks import KeptTasks
from icestream.commit.live_files import LiveFiles
from icestream.commit.load import Base, Removed
from icestream.errors import CommitConflictError, InvalidArgumentError
from icestream.memory import MemoryBudget
from icestream.read.file_test import all_rows_match
from icestream.read.request import ScanRequest
from icestream.read.rows import compile_filter
from icestream.write.new_file import NewFile
from icestream.write.table_writer import TableWriter
from icestream.write.target import WriteTarget

COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"
_DELETE_MODE = "write.delete.mode"
_Goes = Callable[[pa.RecordBatch], pa.Array]


class NothingRemoved:
    """An append."""

    shares = 1

    def remove(self, base: Base, writer: TableWriter) -> Removed:
        """Nothing."""
        return Removed()


class EverythingRemoved:
    """All rows, whoever wrote the files."""

    shares = 1

    def remove(self, base: Base, writer: TableWriter) -> Removed:
        """Every data file; delete files go with them."""
        live = LiveFiles(base.target, base.branch, base.budgets.scan)
        with closing(KeptTasks(live.budget)) as tasks:
            tasks.extend(live.tasks(live.ask()))
            return Removed(
                files=tuple(task.file for task in tasks),
                rows=live.count(tasks),
                conflict_filter=_seen(base, AlwaysTrue()),
                everything=True,
            )


@dataclass(frozen=True, slots=True)
class MatchingRemoved:
    """The rows for which a filter is true; where it is null they stay.

    Args:
        where: The filter.
    """

    where: str | BooleanExpression

    @property
    def shares(self) -> int:
        """Reading and writing."""
        return 2

    def remove(self, base: Base, writer: TableWriter) -> Removed:
        """Remove files whose rows all match; write the others again, without the matching rows.

        A delete from a table that asks for merge-on-read deletes these by position instead.
        """
        live = LiveFiles(base.target, base.branch, base.budgets.scan)
        asked = live.ask(null_stays(live.ask(self.where).context.row_filter))
        row_filter = asked.context.row_filter
        columns = _filter_columns(live.schema, row_filter)
        matches = compile_filter(row_filter, live.schema.select(*columns), True)
        seen = _seen(base, row_filter)
        with _Found(live.budget) as found, closing(KeptTasks(live.budget)) as undecided:
            for task in live.tasks(asked):
                kept = found.whole if _all_go(asked, task, live.schema) else undecided
                kept.add(task)
            if base.operation == Operation.DELETE and merges_on_read(base.target, _DELETE_MODE):
                return found.deleted_by_position(
                    live, writer, undecided, columns, matches, conflict_filter=seen
                )
            for task in undecided:
                found.add(task, *_tally(live, task, columns, matches))
            goes = compile_filter(row_filter, live.schema, True)
            return found.removed(live, writer, goes, conflict_filter=seen)


class WrittenPartitionsRemoved:
    """The partitions that the load itself writes to.

    A row goes if its partition under the current spec was written, whatever spec its file has. An
    empty stream removes nothing.
    """

    shares = 2

    def remove(self, base: Base, writer: TableWriter) -> Removed:
        """Remove files of those partitions; look into files that have another spec."""
        partitioner, spec_id = writer.partitioner, base.target.spec.spec_id
        keys = {comparable(partitioner.key(number)) for number in range(len(partitioner))}
        keys |= _keys_of(base.files, spec_id, base.target.table)
        live = LiveFiles(base.target, base.branch, base.budgets.scan)

        def goes(batch: pa.RecordBatch) -> pa.Array:
            numbers, rows = np.unique(partitioner.ids(writer.conform(batch)), return_inverse=True)
            return pa.array([comparable(partitioner.key(n)) in keys for n in numbers]).take(rows)

        with _Found(live.budget) as found:
            for task in live.tasks(live.ask()) if keys else ():
                if task.file.spec_id != spec_id:
                    found.add(task, *_tally(live, task, None, goes))
                elif partition_values(task.file) in keys:
                    found.whole.add(task)
            return found.removed(live, writer, goes, conflict_partitions=_seen_keys(base, keys))


class _Found:
    """Files that lose all of their rows, or some."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.whole = KeptTasks(budget)
        self.partly = KeptTasks(budget)
        self.rows = 0

    def __enter__(self) -> _Found:
        return self

    def __exit__(self, *_: object) -> None:
        self.whole.close()
        self.partly.close()

    def add(self, task: FileScanTask, going: int, staying: int) -> None:
        """Note a file whose rows were looked at."""
        if going and staying:
            self.partly.add(task)
            self.rows += going
        elif going:
            self.whole.add(task)

    def removed(
        self,
        live: LiveFiles,
        writer: TableWriter,
        goes: _Goes,
        *,
        conflict_filter: BooleanExpression | None = None,
        conflict_partitions: frozenset[Key] | None = None,
    ) -> Removed:
        """Write the rows again that stay."""
        kept = 0
        for batch in live.rows(self.partly):
            staying = batch.filter(pc.invert(pc.fill_null(goes(batch), False)))
            kept += staying.num_rows
            writer.write(staying)
            del batch, staying  # before the next one is read
        return Removed(
            files=tuple(task.file for task in chain(self.whole, self.partly)),
            rows=self.rows + live.count(self.whole),
            rows_kept=kept,
            conflict_filter=conflict_filter,
            conflict_partitions=conflict_partitions,
        )

    def deleted_by_position(
        self,
        live: LiveFiles,
        writer: TableWriter,
        tasks: Sequence[FileScanTask],
        columns: Sequence[str],
        goes: _Goes,
        *,
        conflict_filter: BooleanExpression | None,
    ) -> Removed:
        """Leave files as they are, and write down which of their rows are gone."""
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
        return Removed(
            files=tuple(task.file for task in self.whole),
            deleted_from=tuple(deleted_from),
            rows=rows + live.count(self.whole),
            conflict_filter=conflict_filter,
        )


def merges_on_read(target: WriteTarget, mode_property: str) -> bool:
    """Whether a table asks for rows to be deleted by position; format version 1 can't.

    Raises:
        InvalidArgumentError: If the property says something else.
    """
    mode = target.properties.get(mode_property, COPY_ON_WRITE)
    if mode not in (COPY_ON_WRITE, MERGE_ON_READ):
        raise InvalidArgumentError(
            f"the table property {mode_property} of {target.table} is {mode!r}: set it to "
            f"{COPY_ON_WRITE!r} or {MERGE_ON_READ!r}"
        )
    return mode == MERGE_ON_READ and target.metadata.format_version >= 2


def is_partitioned(spec: PartitionSpec) -> bool:
    """Whether rows have partitions; dropped fields of a spec do not count."""
    return any(not isinstance(field.transform, VoidTransform) for field in spec.fields)


def _keys_of(files: Sequence[NewFile], spec_id: int, table: str) -> set[Key]:
    if any(file.spec_id != spec_id for file in files):
        raise CommitConflictError(
            f"the partition spec of {table} was changed since the files were written: which "
            "partitions of the new one they replace is not known. Nothing was changed; write them "
            "again"
        )
    return {comparable(file.partition) for file in files}


def null_stays(row_filter: BooleanExpression) -> BooleanExpression:
    """The filter, false where it is null.

    PyIceberg takes `not in` as true for null; by statistics, every negation.
    """
    return _with_not_null(rewrite_not(row_filter))


def _with_not_null(row_filter: BooleanExpression) -> BooleanExpression:
    if isinstance(row_filter, And):
        return And(_with_not_null(row_filter.left), _with_not_null(row_filter.right))
    if isinstance(row_filter, Or):
        return Or(_with_not_null(row_filter.left), _with_not_null(row_filter.right))
    if isinstance(row_filter, (NotEqualTo, NotIn, NotNaN, NotStartsWith)):
        not_null: Callable[..., BooleanExpression] = NotNull  # mypy sees PyIceberg's fields only
        return And(not_null(row_filter.term), row_filter)
    return row_filter


def _filter_columns(schema: Schema, row_filter: BooleanExpression) -> list[str]:
    """The top-level columns that a filter needs."""
    ids = extract_field_ids(bind(schema, row_filter, True))
    needed = [f.name for f in schema.fields if not ids.isdisjoint(Schema(f).field_ids)]
    return needed or [schema.fields[0].name]


def _all_go(asked: ScanRequest, task: FileScanTask, schema: Schema) -> bool:
    """Whether metadata alone says that every row of a file matches."""
    row_filter = asked.context.row_filter
    if all_rows_match(asked, task):
        return True
    columns = {field.field_id: field.field_type for field in schema.fields}
    for field_id in extract_field_ids(bind(schema, row_filter, True)):
        if isinstance(columns.get(field_id), (FloatType, DoubleType, type(None))):
            return False  # bounds leave NaN out; PyIceberg knows no bounds of nested fields
        if field_id not in (task.file.null_value_counts or {}):
            return False  # PyIceberg takes that for no nulls
    return strict_metrics_evaluator(schema, row_filter)(task.file)


def _tally(
    live: LiveFiles, task: FileScanTask, columns: Sequence[str] | None, goes: _Goes
) -> tuple[int, int]:
    """How many rows of a file go, and how many stay."""
    going = total = 0
    for batch in live.rows([task], columns):
        total += batch.num_rows
        going += pc.sum(pc.fill_null(goes(batch), False)).as_py() or 0
    return going, total - going


def _is_serializable(base: Base) -> bool:
    try:
        level = base.target.metadata.isolation_level(base.operation)
    except ValueError as error:
        raise InvalidArgumentError(f"an isolation level of {base.target.table}: {error}") from error
    return level == IsolationLevel.SERIALIZABLE


def _seen(base: Base, row_filter: BooleanExpression) -> BooleanExpression | None:
    return row_filter if _is_serializable(base) else None


def _seen_keys(base: Base, keys: set[Key]) -> frozenset[Key] | None:
    return frozenset(keys) if keys and _is_serializable(base) else None
