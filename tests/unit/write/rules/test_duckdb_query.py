"""SQL over a stream, by DuckDB."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

import icestream as ice
from icestream.write.rules.duckdb_query import DuckdbQuery, refuse_small_memory
from icestream.write.sources.arrow_source import ArrowSource, open_source

_LIMIT = 32 << 20


def test_a_query_knows_its_columns_before_rows_are_read() -> None:
    query = DuckdbQuery("SELECT a * 2 AS b, 'x' AS c FROM source WHERE a > 1", _LIMIT)
    same = pickle.loads(pickle.dumps(query))
    rows = pa.table({"a": [1, 2, 3]})
    with same.over(open_source(rows)) as result:
        assert result.schema == query.schema(rows.schema)
        assert pa.Table.from_batches(result).to_pydict() == {"b": [4, 6], "c": ["x", "x"]}


def test_an_error_of_the_stream_keeps_its_type() -> None:
    schema = pa.schema([("a", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [1]})
        raise ice.SourceError("the file is gone")

    source = ArrowSource(schema, batches(), lambda: None)
    with (
        pytest.raises(ice.SourceError, match="the file is gone"),
        DuckdbQuery("SELECT a FROM source", _LIMIT).over(source) as result,
    ):
        list(result)


def test_an_error_of_a_row_says_where_duckdb_runs() -> None:
    query = DuckdbQuery("SELECT a::INT AS a FROM source", _LIMIT, place="In Spark's tasks")
    rows = open_source(pa.table({"a": ["1", "x"]}))
    with (
        pytest.raises(ice.InvalidArgumentError, match="In Spark's tasks, DuckDB runs it"),
        query.over(rows) as result,
    ):
        list(result)


def test_a_limit_that_is_too_small_is_refused() -> None:
    refuse_small_memory(_LIMIT, "this")
    with pytest.raises(ice.MemoryBudgetError, match="half of it for DuckDB"):
        refuse_small_memory(_LIMIT - 1, "this")
