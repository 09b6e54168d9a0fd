"""Transforms in this process: a Python function, or SQL on DuckDB."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from icestream.errors import IcestreamError
from icestream.memory.machine import cores
from icestream.pipeline.request.load_spec import Transform
from icestream.write.rules.duckdb_query import DuckdbQuery, keep_error
from icestream.write.sources.arrow_source import ArrowSource, open_source


def transformed(source: ArrowSource, transform: Transform, *, memory_bytes: int) -> ArrowSource:
    """Apply a transform to a stream.

    Args:
        source: The rows.
        transform: SQL over `source`, or a function that takes a `pa.RecordBatchReader`.
        memory_bytes: Memory limit of DuckDB, which spills to disk.

    Raises:
        InvalidArgumentError: If the SQL is not valid, or the function does not return a stream.
        MemoryBudgetError: If DuckDB's limit is too small. It may be raised while rows are read.
        MissingExtraError: If DuckDB is needed and not installed.
    """
    if source.schema is None:
        return source
    if not callable(transform):
        return DuckdbQuery(transform, memory_bytes, cores()).over(source)
    kept: list[BaseException] = []
    reader = pa.RecordBatchReader.from_batches(source.schema, keep_error(source, kept))
    result = open_source(transform(reader))
    return ArrowSource(result.schema, _raising(result, kept), source.close)


def _raising(result: ArrowSource, kept: list[BaseException]) -> Iterator[pa.RecordBatch]:
    try:
        for batch in result:
            yield batch
            del batch
    except IcestreamError:
        raise
    except Exception:
        if kept:
            raise kept[0] from None
        raise
