"""Transforms in this process: a function over a reader, or SQL by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from icestream.errors import (
    IcestreamError,
    InvalidArgumentError,
    MemoryBudgetError,
    MissingExtraError,
)
from icestream.machine import cores
from icestream.pipeline.load_spec import Transform
from icestream.scratch_folder import ScratchFolder
from icestream.write.source import ArrowSource, open_source

_BATCH_ROWS = 16_384
LEAST_DUCKDB_BYTES = 16 << 20  # with half of that it can sort nothing


def transformed(source: ArrowSource, transform: Transform, *, memory_bytes: int) -> ArrowSource:
    """The stream that a transform makes of another.

    Args:
        source: The rows.
        transform: SQL over `source`, or a function that gets a `pa.RecordBatchReader`.
        memory_bytes: What DuckDB may hold; it spills beyond.

    Raises:
        InvalidArgumentError: If the SQL is wrong, or the function returns no stream.
        MemoryBudgetError: If DuckDB can't do it in what it may hold; some of it comes as rows do.
        MissingExtraError: If DuckDB is needed and not installed.
    """
    if source.schema is None:
        return source
    kept: list[BaseException] = []
    reader = pa.RecordBatchReader.from_batches(source.schema, _keeping(source, kept))
    if callable(transform):
        made = open_source(transform(reader))
        return ArrowSource(made.schema, _raising(made, kept), source.close)
    return _by_duckdb(reader, transform, source, kept, memory_bytes)


def _by_duckdb(
    reader: pa.RecordBatchReader,
    sql: str,
    source: ArrowSource,
    kept: list[BaseException],
    memory_bytes: int,
) -> ArrowSource:
    try:
        import duckdb
    except ImportError as error:
        raise MissingExtraError(
            "SQL as a transform of the local engine needs DuckDB: pip install 'icestream[duckdb]', "
            "or load with engine='spark'"
        ) from error
    folder = ScratchFolder("duckdb")
    connection = duckdb.connect(":memory:")

    def close() -> None:
        connection.close()
        folder.close()
        source.close()

    try:
        connection.execute(f"SET memory_limit = '{memory_bytes}B'")
        connection.execute(f"SET temp_directory = '{folder.path}'")
        connection.execute(f"SET threads = {cores()}")
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("source", reader)
        batches = _arrow(_like_spark(connection.sql(sql)))
    except duckdb.Error as error:
        close()
        if kept:
            raise kept[0] from None
        raise _wrong(error, memory_bytes) from error
    made = _duckdb_batches(batches, kept, duckdb.Error, memory_bytes)
    return ArrowSource(batches.schema, made, close)


def _like_spark(relation: Any) -> Any:
    """Sums of integers are 128 bits wide in DuckDB, and 64 in Spark; Iceberg has the latter."""
    if relation is None:
        raise InvalidArgumentError(
            "the transform gives no rows: write one SELECT, such as 'SELECT * FROM source'"
        )
    names, kinds = relation.columns, [str(kind) for kind in relation.types]
    if "HUGEINT" not in kinds:
        return relation
    columns = []
    for name, kind in zip(names, kinds, strict=True):
        quoted = '"' + name.replace('"', '""') + '"'
        columns.append(f"CAST({quoted} AS BIGINT) AS {quoted}" if kind == "HUGEINT" else quoted)
    return relation.project(", ".join(columns))


def _arrow(relation: Any) -> pa.RecordBatchReader:
    if hasattr(relation, "to_arrow_reader"):
        return relation.to_arrow_reader(_BATCH_ROWS)
    return relation.fetch_record_batch(_BATCH_ROWS)  # before DuckDB 2


def _duckdb_batches(
    batches: pa.RecordBatchReader,
    kept: list[BaseException],
    failure: type[Exception],
    memory_bytes: int,
) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches:
            yield batch
            del batch
    except (failure, pa.ArrowException, OSError) as error:
        if kept:
            raise kept[0] from None
        raise _wrong(error, memory_bytes) from error


def _wrong(error: Exception, memory_bytes: int) -> IcestreamError:
    text = " ".join(str(error).split())
    if "Out of Memory" in text:
        return MemoryBudgetError(
            f"the transform needs more than {memory_bytes} bytes, which is DuckDB's half of the "
            f"memory: {text}. Raise memory, or load with engine='spark'",
            needed_bytes=memory_bytes + 1,
            limit_bytes=memory_bytes,
        )
    return InvalidArgumentError(
        f"the transform failed: {text}. On the local engine DuckDB runs it, over a view named "
        "source"
    )


def _keeping(source: ArrowSource, kept: list[BaseException]) -> Iterator[pa.RecordBatch]:
    """The batches; an error is kept, as what goes through C loses its type."""
    try:
        for batch in source:
            yield batch
            del batch
    except BaseException as error:
        kept.append(error)
        raise


def _raising(made: ArrowSource, kept: list[BaseException]) -> Iterator[pa.RecordBatch]:
    try:
        for batch in made:
            yield batch
            del batch
    except IcestreamError:
        raise
    except Exception:
        if kept:
            raise kept[0] from None
        raise
