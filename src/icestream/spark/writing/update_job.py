"""The job of an update: tasks read matching rows, Spark evaluates expressions, tasks change files.

```
files -- MatchedRows (Python) -- expressions (JVM) -- AppliedRows (Python) -- new files
```

There is no shuffle: the rows of a file stay in one task and in order. Rows that do not match, and
columns that are not set, never leave the Python worker that rewrites their file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.errors import InvalidArgumentError, UnknownColumnError, UnsupportedFeatureError
from icestream.operations.kept_tasks import KeptTasks
from icestream.operations.merge.keys.key_columns import KeyColumns
from icestream.operations.merge.keys.key_hash import KeyHash
from icestream.operations.merge.merge_options import MergeOptions
from icestream.operations.merge.merge_plan import MergePlan
from icestream.operations.merge.merge_work import (
    FILE_FIELD,
    FILE_POSITION,
    PLACE_FIELDS,
    MergeWork,
)
from icestream.operations.merge.row_shape import with_required
from icestream.operations.row_changes import live_files, merges_on_read, seen
from icestream.operations.write_parts import AppliedChanges, Base, WorkerPart
from icestream.read.plan.found_files import Statistics
from icestream.read.project.row_filter import null_stays
from icestream.spark.arrow.frame_schema import arrow_schema, map_in_arrow
from icestream.spark.arrow.types import spark_schema
from icestream.spark.setup.installed import is_classic, pyspark_module
from icestream.spark.setup.settings import cores_of
from icestream.spark.tasks.file_shares import file_shares
from icestream.spark.tasks.matched_rows import MatchedRows
from icestream.spark.tasks.packing import wanted_tasks
from icestream.spark.tasks.shares import map_shares
from icestream.spark.tasks.task_write import ANSWER_SCHEMA
from icestream.spark.writing.merge_job import AppliedRows
from icestream.spark.writing.rewrite_job import RowWorkers
from icestream.spark.writing.store_assignment import checked_cast
from icestream.write.schema.schema_plan import plan_schema
from icestream.write.table_writer import TableWriter
from icestream.write.target import WriteTarget, without_history

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MODE_PROPERTY = "write.update.mode"
_PLACES = ("IntegerType", "LongType", "BinaryType")
# A task has two Python workers: one reads matching rows, the other reads and writes whole files.
_READING_SHARE = 4
_MOVING = ("Aggregate", "Generate", "Window")
_SUBQUERIES = ("ScalarSubquery", "Exists", "LateralSubquery")
_QUOTED = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_UNSAFE = {
    "a subquery": re.compile(r"\bselect\b|\(\s*(?:from|table|values|with)\b", re.IGNORECASE),
    "a window": re.compile(r"\bover\s*[\w(]", re.IGNORECASE),
}
_NAMES_SHOWN = 20


class RowsUpdated:
    """Sets columns of the rows for which a filter is true: the row changes of an update.

    Args:
        values: A SQL expression over the row for each column to set.
        where: The filter; None for all rows.
        workers: Runs the job.
        case_sensitive: Whether names of columns are case-sensitive.
    """

    shares = 1

    def __init__(
        self,
        values: Mapping[str, str],
        where: str | BooleanExpression | None,
        workers: RowWorkers,
        *,
        case_sensitive: bool,
    ) -> None:
        self._values = values
        self._where = where
        self._workers = workers
        self._case_sensitive = case_sensitive

    def apply(self, base: Base, writer: TableWriter) -> AppliedChanges:
        """Rewrite the files with rows that change, or delete these rows by position."""
        live = live_files(base, self._workers)
        row_filter: BooleanExpression = AlwaysTrue()
        if self._where is not None:
            row_filter = null_stays(live.ask(self._where).context.row_filter)
        assignments = Assignments.of(
            self._workers.spark, self._values, base.target, case_sensitive=self._case_sensitive
        )
        on_read = merges_on_read(base.target, _MODE_PROPERTY)
        with closing(KeptTasks(live.budget, column_sizes=on_read)) as files:
            statistics = Statistics(column_sizes=on_read)
            files.extend(live.tasks(live.ask(row_filter), statistics))
            part = WorkerPart()
            if files:
                part = self._run(assignments, row_filter, base, files, on_read)
            return AppliedChanges(
                files=tuple(files[number].file for number in part.removed),
                deleted_from=tuple(files[number].file for number in part.deleted_from),
                written=part.written,
                rows=part.deleted,
                rows_kept=part.kept,
                rows_updated=part.updated,
                rows_unchanged=part.unchanged,
                conflict_filter=seen(base, row_filter),
            )

    def _run(
        self,
        assignments: Assignments,
        row_filter: BooleanExpression,
        base: Base,
        files: KeptTasks,
        on_read: bool,
    ) -> WorkerPart:
        spark, memory_bytes = self._workers.spark, self._workers.memory_bytes
        target = without_history(base.target)
        reading_bytes = max(1, memory_bytes // _READING_SHARE)
        matched = MatchedRows(target, base.branch, row_filter, assignments.columns, reading_bytes)
        plan = assignments.plan(on_read=on_read)
        work = MergeWork(plan, target, base.branch, KeyHash(), memory_bytes - reading_bytes)
        sizes = [task.file.file_size_in_bytes for task in files]
        shares = file_shares(files, sizes, tasks=wanted_tasks(cores_of(spark)))
        rows = map_shares(spark, shares, matched, assignments.read_schema)
        answers = map_in_arrow(assignments.evaluated(rows), AppliedRows(work), ANSWER_SCHEMA)
        return self._workers.run(answers, base, what="update")


@dataclass(frozen=True, slots=True)
class Assignments:
    """The columns that an update sets, resolved for a table.

    Attributes:
        values: The new value of each column, as an expression of Spark.
        casts: The type of the value and of the column, for each value to cast.
        columns: The columns to read, in the order of the table.
        read_schema: These columns as Spark reads them, followed by the places.
        stream: The new values as tasks get them.
        schema: The table's schema.
    """

    values: dict[str, Column]
    casts: dict[str, tuple[Any, Any]]
    columns: tuple[str, ...]
    read_schema: Any
    stream: pa.Schema
    schema: Schema

    @classmethod
    def of(
        cls, spark: Any, given: Mapping[str, str], target: WriteTarget, *, case_sensitive: bool
    ) -> Assignments:
        """Resolve the expressions.

        Raises:
            UnknownColumnError: If the table lacks a column to set.
            InvalidArgumentError: If an expression is not a function of one row.
            SchemaMismatchError: If a value does not fit its column.
        """
        functions = pyspark_module("pyspark.sql.functions")
        types = pyspark_module("pyspark.sql.types")
        names = [field.name for field in target.schema.fields]
        texts = {_column(names, name, target.table, case_sensitive): given[name] for name in given}
        if len(texts) < len(given):
            raise InvalidArgumentError(f"set names a column twice: {', '.join(given)}")
        whole = spark_schema(_readable(target.schema, texts), table=target.table)
        empty = spark.createDataFrame([], whole)
        raw = {name: functions.expr(text) for name, text in texts.items()}
        selected = empty.select(*(value.alias(name) for name, value in raw.items()))
        _refuse_moved_rows(selected, texts)
        casts, kinds = _casts(selected.schema, whole)
        stream = arrow_schema(kinds)
        plan_schema(target, with_required(stream, target.schema), mode="freeze")
        needed = _references(selected, whole.names) or (names[0],)
        columns = tuple(name for name in whole.names if name in needed)
        places = zip((*PLACE_FIELDS, FILE_FIELD), _PLACES, strict=True)
        fields = [
            types.StructField(field.name, field.dataType, True)
            for field in whole.fields
            if field.name in columns
        ]
        for place, kind in places:
            fields.append(types.StructField(place.name, getattr(types, kind)(), True))
        return cls(raw, casts, columns, types.StructType(fields), stream, target.schema)

    def evaluated(self, rows: DataFrame) -> DataFrame:
        """The new values of rows, with their places. Rows that describe files have nulls."""
        functions = pyspark_module("pyspark.sql.functions")
        _, position = (field.name for field in PLACE_FIELDS)
        is_row = functions.col(position) != functions.lit(FILE_POSITION)
        places = [field.name for field in (*PLACE_FIELDS, FILE_FIELD)]
        names = {name: f"__icestream_value_{n}" for n, name in enumerate(self.values)}
        values = [functions.when(is_row, self.values[n]).alias(names[n]) for n in names]
        # Two steps: a cast uses its value several times, and `rand()` differs each time.
        new = [self._cast(name, functions.col(names[name])).alias(name) for name in names]
        return rows.select(*values, *places).select(*new, *places)

    def _cast(self, name: str, value: Column) -> Column:
        if name not in self.casts:
            return value
        given, kind = self.casts[name]
        return checked_cast(value, name, given, kind)

    def plan(self, *, on_read: bool) -> MergePlan:
        """The plan of a merge that sets these columns in rows found by their places."""
        numbers = {field.name: n for n, field in enumerate(self.schema.fields)}
        return MergePlan(
            options=MergeOptions(when_not_matched="ignore", update_columns=tuple(self.values)),
            stream=self.stream,
            columns=self.stream,
            key=KeyColumns((), ()),
            updated=frozenset(numbers[name] for name in self.values),
            is_complete=False,
            on_read=on_read,
        )


def is_assignable(given: Any, wanted: Any) -> bool:
    """Whether a value is cast to the type of its column, as Spark's ANSI store assignment does.

    Numbers are cast to numbers, dates and times to one another, and simple values to text. Others
    must have the type of the column.
    """
    types = pyspark_module("pyspark.sql.types")
    times = (types.DateType, types.TimestampType, types.TimestampNTZType)
    if isinstance(given, types.NullType):
        return True
    if isinstance(wanted, types.StringType):
        return isinstance(given, types.AtomicType) and not isinstance(given, types.BinaryType)
    return any(
        isinstance(given, group) and isinstance(wanted, group)
        for group in (types.NumericType, times)
    )


def _casts(given: Any, whole: Any) -> tuple[dict[str, tuple[Any, Any]], Any]:
    """The types of each value to cast and of its column, and the schema of the cast values."""
    types = pyspark_module("pyspark.sql.types")
    own = {field.name: field.dataType for field in whole.fields}
    casts = {
        field.name: (field.dataType, own[field.name])
        for field in given.fields
        if field.dataType != own[field.name] and is_assignable(field.dataType, own[field.name])
    }
    kinds = [
        types.StructField(field.name, casts.get(field.name, (None, field.dataType))[1], True)
        for field in given.fields
    ]
    return casts, types.StructType(kinds)


def _column(names: list[str], name: str, table: str, case_sensitive: bool) -> str:
    """The name of a column in the table."""
    if name in names:
        return name
    alike = [each for each in names if each.lower() == name.lower()]
    if len(alike) == 1 and not case_sensitive:
        return alike[0]
    raise UnknownColumnError(
        f"set names {name!r}, which is not a column of {table}: it has "
        f"{', '.join(names[:_NAMES_SHOWN])}"
    )


def _readable(schema: Schema, texts: Mapping[str, str]) -> pa.Schema:
    """The columns of the table, without those that Spark has no type for."""
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([field for field in arrow if field.name in texts or _has_spark_type(field)])


def _has_spark_type(field: pa.Field) -> bool:
    try:
        spark_schema(pa.schema([field]), table="")
    except UnsupportedFeatureError:
        return False
    return True


def _references(selected: DataFrame, names: list[str]) -> set[str]:
    """The columns that expressions use. With Spark Connect they are not known: read all columns."""
    frame: Any = selected
    if not is_classic(frame.sparkSession):
        return set(names)
    plan = frame._jdf.queryExecution().analyzed()
    if plan.subqueries().nonEmpty():
        return set(names)
    used = plan.references().toSeq()
    return {used.apply(n).name() for n in range(used.size())}


def _refuse_moved_rows(selected: DataFrame, texts: Mapping[str, str]) -> None:
    """Refuse what makes Spark move rows: each new value must come from its own row.

    These are windows, aggregates, generators and subqueries that Spark runs as joins.
    """
    frame: Any = selected
    if is_classic(frame.sparkSession):
        plan = frame._jdf.queryExecution().analyzed()
        lines = plan.toString().splitlines()
        nodes = [line.lstrip(" +-").partition(" ")[0] for line in lines if ":" not in line[:3]]
        moving = [node.lower() for node in nodes if node in _MOVING]
        if plan.subqueries().nonEmpty() and any(map(_is_joined, _listed(plan.expressions()))):
            moving.append("a join, for a correlated or IN subquery")
    else:
        moving = [kind for text in texts.values() for kind in unsafe_words(text)]
    if moving:
        raise InvalidArgumentError(
            f"set has {', '.join(f'{n} = {t}' for n, t in texts.items())}, which needs "
            f"{moving[0]}: give expressions over the columns of one row, or merge a DataFrame "
            "that has the new values"
        )


def unsafe_words(text: str) -> list[str]:
    """What in a SQL expression may move rows, by its words: for Spark Connect, without a plan."""
    words = _QUOTED.sub("''", text)
    return [kind for kind, pattern in _UNSAFE.items() if pattern.search(words)]


def _is_joined(expression: Any) -> bool:
    """Whether an expression of Spark has a subquery that runs as a join with the rows."""
    if expression.nodeName() == "ListQuery":
        return True
    if expression.nodeName() in _SUBQUERIES and expression.outerAttrs().nonEmpty():
        return True
    return any(map(_is_joined, _listed(expression.children())))


def _listed(values: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [values.apply(n) for n in range(values.size())]
