"""Reads the sources of a load as one DataFrame, and applies the transform."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.catalogs.redaction import redact, shown_cause
from icestream.errors import (
    InvalidArgumentError,
    MemoryBudgetError,
    MissingExtraError,
    SourceError,
)
from icestream.memory.budget import format_bytes
from icestream.memory.scratch_folder import ScratchFolder
from icestream.pipeline.engines.spark_files import FileFrames
from icestream.pipeline.engines.spark_jars import JAR, add_jars
from icestream.pipeline.engines.spark_jdbc import jdbc_frame
from icestream.pipeline.engines.spark_watch import CountRows
from icestream.pipeline.inputs.database_source import database_schema, needs_jdbc, open_database
from icestream.pipeline.inputs.load_input import LoadInput, LoadInputs
from icestream.pipeline.inputs.table_increment import scan_point, schema_scan
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.read.scan import planned_by
from icestream.spark.arrow.conversion import SparkBatches
from icestream.spark.arrow.frame_schema import arrow_schema, map_in_arrow, quoted
from icestream.spark.arrow.types import spark_schema
from icestream.spark.setup.installed import is_classic, pyspark_module
from icestream.spark.setup.registration import session_defaults
from icestream.spark.tasks.manifest_tasks import SparkManifests
from icestream.spark.tasks.task_notes import note_error
from icestream.spark.tasks.task_plan import TaskPlan, plan_tasks
from icestream.write.rules.column_rules import ColumnRules
from icestream.write.rules.duckdb_query import DuckdbQuery
from icestream.write.sources.arrow_source import ArrowSource, open_source
from icestream.write.sources.batch_columns import fit_batch
from icestream.write.sources.file_columns import plain_schema
from icestream.write.sources.formats import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VIEW = "source"
_lock = threading.RLock()  # views are shared by the session: use one at a time


@dataclass(slots=True)
class SourceFrame:
    """All sources as one DataFrame.

    Attributes:
        frame: The DataFrame, after the transform.
        rows: Number of rows in all sources, if the footers record it; else None.
        footer_rows: Number of rows in files whose footers record it. Tasks do not count these.
        table_files: Number of data files of tables among the sources.
        table_bytes: The size of those files in storage.
    """

    frame: DataFrame
    rows: int | None
    footer_rows: int = 0
    table_files: int = 0
    table_bytes: int = 0


def source_frame(
    spark: SparkSession,
    spec: LoadSpec,
    inputs: LoadInputs,
    counts: Any,
    memory_bytes: int,
    stack: ExitStack,
) -> SourceFrame:
    """Read all sources as one DataFrame.

    Args:
        spark: The session.
        spec: The load.
        inputs: The sources, with known columns of files.
        counts: The accumulator of row counts, if there is one.
        memory_bytes: Memory limit of each task.
        stack: Closed when the DataFrame is no longer needed.

    Raises:
        InvalidArgumentError: If the transform is not valid.
        MissingExtraError: If Spark lacks a format or a driver.
    """
    files = FileFrames(spark, spec.table_name, spec.bad_records == "quarantine")
    frames: list[DataFrame] = []
    known: list[int | None] = []
    plans: list[TaskPlan] = []
    for number, each in enumerate(inputs.inputs):
        on_read = None if counts is None else CountRows(counts, number)
        if each.files is not None:
            if not each.files.files:
                continue
            read = files.frame(each, on_read)
            frames.append(read.frame)
            known.append(read.rows)
        else:
            if each.spec.kind == "table":
                frames.append(_table(spark, each, memory_bytes, on_read, plans))
            else:
                frames.append(_frame(spark, each, spec, memory_bytes, stack, on_read))
            known.append(None)
    union = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    footer_rows = sum(each for each in known if each is not None)
    rows = None if None in known else footer_rows
    by_tasks = spec.transform_engine == "duckdb"
    if spec.rules or by_tasks:
        union = _by_tasks(union, spec, memory_bytes)
    table_files, table_bytes = sum(p.files for p in plans), sum(p.stored_bytes for p in plans)
    source = SourceFrame(union, rows, footer_rows, table_files, table_bytes)
    if spec.transform is None or by_tasks:
        return source
    if callable(spec.transform):
        made_frame: Any = spec.transform(union)
        if type(made_frame).__name__ != "DataFrame":
            raise InvalidArgumentError(
                f"transform returned a {type(made_frame).__name__}: return a DataFrame"
            )
        return replace(source, frame=made_frame)
    return replace(source, frame=_sql(spark, spec.transform, union, stack))


@dataclass(frozen=True, slots=True)
class _TaskRules:
    """Applies the rules of a load, and a query that tasks run, to rows of a DataFrame."""

    columns: pa.Schema
    rules: ColumnRules
    query: DuckdbQuery | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fitted = (fit_batch(each, self.columns) for each in batches)
        with note_error():
            source = self.rules.apply(ArrowSource(self.columns, fitted, fitted.close))
            if self.query is not None:
                source = self.query.over(source)
            assert source.schema is not None
            convert = SparkBatches(source.schema)
            with source:
                for batch in source:
                    yield convert(batch)
                    del batch


def _by_tasks(frame: DataFrame, spec: LoadSpec, memory_bytes: int) -> DataFrame:
    """The rows that the rules and the query of tasks leave, by the same code as elsewhere."""
    columns = arrow_schema(frame.schema)
    needed = spec.needed_columns(columns)
    if needed is not None:  # so that Spark reads no others
        frame = frame.select(*(quoted(name) for name in columns.names if name in needed))
        columns = arrow_schema(frame.schema)
    result = spec.rules.schema(columns)
    query = spec.task_query(result, memory_bytes)
    if query is not None:
        result = query.schema(result)
    schema = spark_schema(result, table=spec.table_name)
    return map_in_arrow(frame, _TaskRules(columns, spec.rules, query), schema)


def _frame(
    spark: SparkSession,
    each: LoadInput,
    spec: LoadSpec,
    memory_bytes: int,
    stack: ExitStack,
    on_read: CountRows | None,
) -> DataFrame:
    source = each.spec
    if source.kind == "frame":
        frame: Any = source.value
        return frame
    if source.kind == "jdbc":
        if needs_jdbc(source):
            return jdbc_frame(spark, source)
        return _database(spark, source, spec.table_name, memory_bytes, on_read)
    if source.kind == "arrow":
        return _stream(spark, source, spec.table_name, memory_bytes, stack)
    return _format(spark, source)


def _table(
    spark: SparkSession,
    each: LoadInput,
    memory_bytes: int,
    on_read: CountRows | None,
    plans: list[TaskPlan],
) -> DataFrame:
    """The rows of a table. Adds to the plans what its tasks read."""
    from icestream.spark.tasks.planned_frame import planned_frame

    assert each.point is not None
    name = each.spec.text
    scanned = scan_point(each.spec, each.point, memory=memory_bytes)
    if scanned is None:
        schema = spark_schema(schema_scan(each.spec, each.point).schema, table=name)
        return spark.createDataFrame([], schema)
    scanned = planned_by(scanned, SparkManifests(spark, memory_bytes))
    plan = plan_tasks(scanned, session_defaults(spark), memory_bytes=memory_bytes)
    plans.append(plan)
    return planned_frame(spark, plan, spark_schema(scanned.schema, table=name), on_read)


def _stream(
    spark: SparkSession, source: SourceSpec, table: str, memory_bytes: int, stack: ExitStack
) -> DataFrame:
    """Send a stream of this process to Spark: as a file if Spark runs here, else in one piece.

    Raises:
        MemoryBudgetError: If the stream must be sent in one piece and is larger than the limit.
    """
    context: Any = getattr(spark, "sparkContext", None) if is_classic(spark) else None
    with open_source(source.value) as stream:
        if stream.schema is None:
            raise InvalidArgumentError(f"{source.text} has no columns, so there is nothing to load")
        schema = plain_schema(stream.schema)
        spark_columns = spark_schema(schema, table=table)
        convert = SparkBatches(schema)
        batches = (convert(fit_batch(batch, schema)) for batch in stream)
        if context is None or not str(context.master).startswith("local"):
            whole = hold_stream(batches, convert.schema, source, memory_bytes)
            return spark.createDataFrame(whole, schema=spark_columns)
        folder = stack.enter_context(ScratchFolder("stream"))
        path = folder / "stream.parquet"
        with pq.ParquetWriter(
            path, convert.schema, compression="lz4", write_page_checksum=True
        ) as writer:
            for batch in batches:
                writer.write_batch(batch)
                del batch
    return spark.read.schema(spark_columns).parquet(str(path))


def hold_stream(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, source: SourceSpec, memory_bytes: int
) -> pa.Table:
    """Read a whole stream, if it fits the limit."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > memory_bytes:
            raise MemoryBudgetError(
                f"{source.text} is larger than {format_bytes(memory_bytes)}, and executors of a "
                "cluster can't read a stream of this process: write it to files that they can "
                "read, or load it with engine='local'",
                needed_bytes=size,
                limit_bytes=memory_bytes,
            )
        held.append(batch)
    return pa.Table.from_batches(held, schema=schema)


@dataclass(frozen=True, slots=True)
class _ReadDatabase:
    """Reads the rows of a database without JDBC, in a task."""

    source: SourceSpec
    schema: pa.Schema
    memory_bytes: int
    on_read: CountRows | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        convert = SparkBatches(self.schema)
        with note_error():
            for _ in batches:
                count = 0
                with open_database(self.source, self.memory_bytes) as rows:
                    for batch in rows:
                        count += batch.num_rows
                        yield convert(batch)
                        del batch
                if self.on_read is not None:
                    self.on_read(0, count)


def _database(
    spark: SparkSession,
    source: SourceSpec,
    table: str,
    memory_bytes: int,
    on_read: CountRows | None,
) -> DataFrame:
    schema = database_schema(source, memory_bytes)
    columns = spark_schema(schema, table=table)
    read = _ReadDatabase(source, schema, memory_bytes, on_read)
    return spark.range(0, 1, 1, 1).mapInArrow(read, columns)


def _format(spark: SparkSession, source: SourceSpec) -> DataFrame:
    """Read any format that Spark supports."""
    errors = pyspark_module("pyspark.errors")
    add_jars(spark, source)
    reader = spark.read.format(str(source.format))
    for key, value in source.options.items():
        if key != JAR:
            reader = reader.option(key, str(value))
    if needs_spark(source.format):
        reader = reader.options(**_partition_options(source))
    try:
        frame = reader.load(list(source.paths)) if source.paths else reader.load()
        frame.schema  # noqa: B018  # Spark Connect only looks for it now
        return frame
    except errors.AnalysisException as error:
        shown = str(error).split("\n\nJVM stacktrace")[0]
        secrets = {key: str(value) for key, value in source.options.items()}
        text = redact(" ".join(shown.split()), secrets)[:500]
        cause = shown_cause(error, secrets)
        if "DATA_SOURCE_NOT_FOUND" in text or "Failed to find" in text:
            raise MissingExtraError(
                f"Spark has no format {source.format!r}: give its jar as option 'jar', "
                "or pass spark= a session that was started with it (for avro, spark.jars.packages "
                f"org.apache.spark:spark-avro_2.13:{spark.version})"
            ) from cause
        raise SourceError(f"{source.text} can't be read: {text}") from cause


def _partition_options(source: SourceSpec) -> dict[str, str]:
    """Options that turn folder names into columns, also above a glob; or none of them."""
    if not source.hive_partitions:
        return {"recursiveFileLookup": "true"}
    bases = {re.split(r"[*?\[{]|[^/]*=", path)[0] for path in source.paths}
    needs = any(re.search(r"[*?\[{=]", path) for path in source.paths)
    if len(bases) != 1 or not needs or "basePath" in source.options:
        return {}
    return {"basePath": bases.pop().rpartition("/")[0] or "/"}


def _sql(spark: SparkSession, text: str, frame: DataFrame, stack: ExitStack) -> DataFrame:
    """Run a query over the view `source`. An existing view of that name is restored."""
    errors = pyspark_module("pyspark.errors")
    view = as_view(spark, frame, _VIEW)
    try:
        if is_classic(spark):
            with view:
                return spark.sql(text)
        stack.enter_context(view)  # Spark Connect looks the view up again when the query runs
        result = spark.sql(text)
        result.schema  # noqa: B018  # so that errors are raised here
        return result
    except errors.AnalysisException as error:
        shown = " ".join(str(error).split("\n\nJVM stacktrace")[0].split())[:500]
        raise InvalidArgumentError(
            f"the transform failed: {shown}. Spark runs it over the view source"
        ) from error


@contextmanager
def as_view(spark: SparkSession, frame: DataFrame, name: str) -> Iterator[None]:
    """Register a DataFrame as a temporary view. An existing view of that name is restored."""
    with _lock:
        temporary = [each.name for each in spark.catalog.listTables() if each.isTemporary]
        before = spark.table(name) if name in temporary else None
        frame.createOrReplaceTempView(name)
        try:
            yield
        finally:
            if before is not None:
                before.createOrReplaceTempView(name)
            else:
                spark.catalog.dropTempView(name)
