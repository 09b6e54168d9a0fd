"""DuckDB files as a source."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from icestream.errors import SourceError
from icestream.pipeline.inputs.duckdb_source import duckdb_schema, open_duckdb
from icestream.pipeline.request.source_spec import SourceSpec

duckdb = pytest.importorskip("duckdb")
_MEMORY = 64 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    connection = duckdb.connect(str(tmp_path / "x.duckdb"))
    connection.execute(
        "CREATE TABLE t AS SELECT range AS id, range::HUGEINT AS h, 'a'::ENUM('a', 'b') AS e, "
        "range::DECIMAL(10, 2) AS d, TIMESTAMPTZ '2026-11-19 10:00:00+01' AS ts FROM range(50000)"
    )
    connection.close()
    return tmp_path / "x.duckdb"


def _source(path: Path, table: str | None = "t", query: str | None = None) -> SourceSpec:
    return SourceSpec("jdbc", url=f"duckdb:///{path}", table=table, query=query)


def test_a_table_is_read_in_types_that_tables_have(path: Path) -> None:
    schema = duckdb_schema(_source(path), _MEMORY)
    assert [str(kind) for kind in schema.types] == [
        "int64", "int64", "string", "decimal128(10, 2)", "timestamp[us, tz=UTC]",
    ]  # fmt: skip
    with open_duckdb(_source(path), _MEMORY) as stream:
        assert stream.schema == schema
        batches = list(stream)
    assert len(batches) > 1
    rows = pa.Table.from_batches(batches)
    assert (rows.num_rows, rows["ts"][0].as_py().hour) == (50_000, 9)


def test_a_query_is_read_and_nothing_is_written(path: Path) -> None:
    with open_duckdb(_source(path, None, "SELECT max(id) AS m FROM t"), _MEMORY) as stream:
        assert [batch.to_pylist() for batch in stream] == [[{"m": 49_999}]]
    with pytest.raises(SourceError, match="read-only"):
        duckdb_schema(_source(path, None, "DROP TABLE t"), _MEMORY)


def test_what_can_not_be_read_is_an_error_that_says_why(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="Table with name nope does not exist"):
        duckdb_schema(_source(path, "nope"), _MEMORY)
    with pytest.raises(SourceError, match="no file is at"):
        duckdb_schema(_source(tmp_path / "nope.duckdb"), _MEMORY)
    sqlite3.connect(tmp_path / "x.db").execute("CREATE TABLE t (id INT)")
    with pytest.raises(SourceError, match="is a SQLite file"):
        duckdb_schema(_source(tmp_path / "x.db"), _MEMORY)
