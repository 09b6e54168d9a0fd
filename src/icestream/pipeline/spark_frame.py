"""The sources of a load as one DataFrame, transformed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.errors import (
    InvalidArgumentError,
    MemoryBudgetError,
    MissingExtraError,
    SourceError,
)
from icestream.pipeline.file_columns import plain_schema
from icestream.pipeline.load_input import LoadInput, LoadInputs
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.postgres_source import open_postgres, postgres_schema, reads_by_adbc
from icestream.pipeline.source_spec import SourceSpec
from icestream.pipeline.spark_counts import CountRows
from icestream.pipeline.spark_files import FileFrames
from icestream.pipeline.spark_jars import JAR, add_jars
from icestream.pipeline.spark_jdbc import jdbc_frame
from icestream.pipeline.spark_view import as_view
from icestream.pipeline.table_increment import scan_point, schema_scan
from icestream.redaction import redact, shown_cause
from icestream.scratch_folder import ScratchFolder
from icestream.spark.conversion import SparkBatches
from icestream.spark.installed import is_classic, pyspark_module
from icestream.spark.planning import plan_tasks
from icestream.spark.registration import session_defaults
from icestream.spark.task_failure import note_error
from icestream.spark.types import spark_schema
from icestream.write.source import open_source
from icestream.write.source_files import fit_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "source"


@dataclass(slots=True)
class SourceFrame:
    """All sources as one frame.

    Attributes:
        frame: The frame, transformed.
        rows: How many rows sources have, where metadata tells; None where not.
        footer_rows: How many those have whose footers tell, and which tasks do not count.
    """

    frame: DataFrame
    rows: int | None
    footer_rows: int = 0


def source_frame(
    spark: SparkSession,
    spec: LoadSpec,
    inputs: LoadInputs,
    counts: Any,
    memory_bytes: int,
    stack: ExitStack,
) -> SourceFrame:
    """Make one frame of all sources.

    Args:
        spark: The session.
        spec: The load.
        inputs: Its sources, with the columns of files decided.
        counts: An accumulator of rows, where there are accumulators.
        memory_bytes: What each task may hold.
        stack: Closed once the frame is not needed any more.

    Raises:
        InvalidArgumentError: If the transform is wrong.
        MissingExtraError: If Spark lacks a format or a driver.
    """
    files = FileFrames(spark, spec.table_name, spec.bad_records == "quarantine")
    frames: list[DataFrame] = []
    known: list[int | None] = []
    for number, each in enumerate(inputs.inputs):
        on_read = None if counts is None else CountRows(counts, number)
        if each.files is not None:
            if not each.files.files:
                continue
            made = files.frame(each, on_read)
            frames.append(made.frame)
            known.append(made.rows)
        else:
            if each.spec.kind == "table":
                frames.append(_table(spark, each, memory_bytes, on_read))
            else:
                frames.append(_frame(spark, each, spec, memory_bytes, stack))
            known.append(None)
    union = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    footer_rows = sum(each for each in known if each is not None)
    rows = None if None in known else footer_rows
    if spec.transform is None:
        return SourceFrame(union, rows, footer_rows)
    if callable(spec.transform):
        made_frame: Any = spec.transform(union)
        if type(made_frame).__name__ != "DataFrame":
            raise InvalidArgumentError(
                f"transform returned a {type(made_frame).__name__}: return a DataFrame"
            )
        return SourceFrame(made_frame, rows, footer_rows)
    return SourceFrame(_sql(spark, spec.transform, union, stack), rows, footer_rows)


def _frame(
    spark: SparkSession, each: LoadInput, spec: LoadSpec, memory_bytes: int, stack: ExitStack
) -> DataFrame:
    source = each.spec
    if source.kind == "frame":
        frame: Any = source.value
        return frame
    if source.kind == "jdbc":
        if reads_by_adbc(source) and JAR not in source.options:
            return _postgres(spark, source, spec.table_name)
        return jdbc_frame(spark, source)
    if source.kind == "arrow":
        return _stream(spark, source, spec.table_name, memory_bytes, stack)
    return _format(spark, source)


def _table(
    spark: SparkSession, each: LoadInput, memory_bytes: int, on_read: CountRows | None
) -> DataFrame:
    from icestream.spark.planned_frame import planned_frame

    assert each.point is not None
    name = each.spec.text
    scanned = scan_point(each.spec, each.point)
    if scanned is None:
        schema = spark_schema(schema_scan(each.spec, each.point).schema, table=name)
        return spark.createDataFrame([], schema)
    plan = plan_tasks(scanned, session_defaults(spark), memory_bytes=memory_bytes)
    return planned_frame(spark, plan, spark_schema(scanned.schema, table=name), on_read)


def _stream(
    spark: SparkSession, source: SourceSpec, table: str, memory_bytes: int, stack: ExitStack
) -> DataFrame:
    """A stream of this process: through files where executors see them, else at once.

    Raises:
        MemoryBudgetError: If it has to go at once, and is larger than the limit.
    """
    context: Any = getattr(spark, "sparkContext", None) if is_classic(spark) else None
    with open_source(source.value) as stream:
        if stream.schema is None:
            raise InvalidArgumentError(f"{source.text} has no columns: there is nothing to load")
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
    """All of a stream, if it fits."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > memory_bytes:
            raise MemoryBudgetError(
                f"{source.text} has more than {memory_bytes} bytes, and the executors of a cluster "
                "can't read a stream of this process: write it to files that they can read, or "
                "load it with engine='local'",
                needed_bytes=size,
                limit_bytes=memory_bytes,
            )
        held.append(batch)
    return pa.Table.from_batches(held, schema=schema)


@dataclass(frozen=True, slots=True)
class _ReadPostgres:
    """In a task: the rows of a database, by ADBC."""

    source: SourceSpec
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        convert = SparkBatches(self.schema)
        with note_error():
            for _ in batches:
                with open_postgres(self.source) as rows:
                    for batch in rows:
                        yield convert(batch)
                        del batch


def _postgres(spark: SparkSession, source: SourceSpec, table: str) -> DataFrame:
    schema = postgres_schema(source)
    columns = spark_schema(schema, table=table)
    return spark.range(0, 1, 1, 1).mapInArrow(_ReadPostgres(source, schema), columns)


def _format(spark: SparkSession, source: SourceSpec) -> DataFrame:
    """Any format that Spark has."""
    errors = pyspark_module("pyspark.errors")
    add_jars(spark, source)
    reader = spark.read.format(str(source.format))
    for key, value in source.options.items():
        if key != JAR:
            reader = reader.option(key, str(value))
    if source.format == "avro":
        reader = reader.options(**_partition_options(source))
    try:
        made = reader.load(list(source.paths)) if source.paths else reader.load()
        made.schema  # noqa: B018  # Spark Connect only looks for it now
        return made
    except errors.AnalysisException as error:
        shown = str(error).split("\n\nJVM stacktrace")[0]
        secrets = {key: str(value) for key, value in source.options.items()}
        text = redact(" ".join(shown.split()), secrets)[:500]
        cause = shown_cause(error, secrets)
        if "DATA_SOURCE_NOT_FOUND" in text or "Failed to find" in text:
            raise MissingExtraError(
                f"Spark has no format {source.format!r}: give the jar that has it as option 'jar', "
                "or pass spark= a session that was started with it (for avro, spark.jars.packages "
                f"org.apache.spark:spark-avro_2.13:{spark.version})"
            ) from cause
        raise SourceError(f"{source.text} can't be read: {text}") from cause


def _partition_options(source: SourceSpec) -> dict[str, str]:
    """What lets Spark make columns of folders above a glob, too; or of none."""
    if not source.hive_partitions:
        return {"recursiveFileLookup": "true"}
    bases = {re.split(r"[*?\[{]|[^/]*=", path)[0] for path in source.paths}
    needs = any(re.search(r"[*?\[{=]", path) for path in source.paths)
    if len(bases) != 1 or not needs or "basePath" in source.options:
        return {}
    return {"basePath": bases.pop().rpartition("/")[0] or "/"}


def _sql(spark: SparkSession, text: str, frame: DataFrame, stack: ExitStack) -> DataFrame:
    """The frame of a query over the view `source`; a view of that name is put back afterwards."""
    errors = pyspark_module("pyspark.errors")
    view = as_view(spark, frame, VIEW)
    try:
        if is_classic(spark):
            with view:
                return spark.sql(text)
        stack.enter_context(view)  # Spark Connect looks the view up again when the query runs
        made = spark.sql(text)
        made.schema  # noqa: B018  # looked up now, so that mistakes are told now
        return made
    except errors.AnalysisException as error:
        shown = " ".join(str(error).split("\n\nJVM stacktrace")[0].split())[:500]
        raise InvalidArgumentError(
            f"the transform failed: {shown}. Spark runs it, over a view named source"
        ) from error
