"""SQLite files as a source: types, many rows, and values that do not fit."""

from __future__ import annotations

import datetime as dt
import sqlite3
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import icestream as ice
from icestream.catalogs.lookup import load_table
from icestream.errors import SourceError
from icestream.pipeline.inputs.sqlite_source import open_sqlite, sqlite_schema
from icestream.pipeline.request.source_spec import SourceSpec


def _database(path: Path, *statements: str, rows: list[tuple[Any, ...]] | None = None) -> Path:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    if rows:
        connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)
    connection.commit()
    connection.close()
    return path


def _source(path: Path, table: str | None = "t", query: str | None = None) -> SourceSpec:
    return SourceSpec("jdbc", url=f"sqlite:///{path}", table=table, query=query)


def _rows(source: SourceSpec) -> list[dict[str, Any]]:
    with open_sqlite(source) as stream:
        return [row for batch in stream for row in batch.to_pylist()]


def test_columns_have_their_declared_types_if_the_values_fit(tmp_path: Path) -> None:
    columns = (
        "id INTEGER PRIMARY KEY, name VARCHAR(9), price DECIMAL(10, 2), at DATETIME, day DATE, "
        "ok BOOLEAN, raw BLOB, ratio REAL, anything, odd INTEGER, epoch TIMESTAMP"
    )
    moment, day = "2026-11-19 10:00:00.5", "2026-11-19"
    rows = [
        (1, "a", 0.1 + 0.2, moment, day, 1, b"\xff", 1, 5, "text", 17),
        (2, None, None, None, None, None, None, None, None, None, None),
    ]
    path = _database(tmp_path / "x.db", f"CREATE TABLE t ({columns})", rows=rows)
    kinds = [str(kind) for kind in sqlite_schema(_source(path)).types]
    assert kinds == [
        "int64", "string", "decimal128(10, 2)", "timestamp[us]", "date32[day]", "bool", "binary",
        "double", "int64", "string", "int64",
    ]  # fmt: skip
    first, second = _rows(_source(path))
    assert (first["price"], first["ok"], first["odd"]) == (Decimal("0.30"), True, "text")
    assert first["at"] == dt.datetime(2026, 11, 19, 10, 0, 0, 500_000)
    assert first["day"] == dt.date(2026, 11, 19)
    assert set(second.values()) == {2, None}


def test_many_rows_are_read_in_small_batches(tmp_path: Path) -> None:
    rows = [(number, "x" * 1000) for number in range(10_000)]
    path = _database(tmp_path / "x.db", "CREATE TABLE t (id INT, text TEXT)", rows=rows)
    with open_sqlite(_source(path)) as stream:
        sizes = [(batch.num_rows, batch.nbytes) for batch in stream]
    assert sum(rows for rows, _ in sizes) == 10_000
    assert max(size for _, size in sizes) < 2 << 20


def test_a_later_value_that_does_not_fit_is_an_error_with_a_query_that_helps(
    tmp_path: Path,
) -> None:
    rows = [(number,) for number in range(3000)] + [("five",)]
    path = _database(tmp_path / "x.db", "CREATE TABLE t (id)", rows=rows)
    with pytest.raises(SourceError, match="row 3001: column 'id' has 'five'") as caught:
        _rows(_source(path))
    query = str(caught.value).rpartition("such as ")[2] + " FROM t"
    assert len(_rows(_source(path, None, query))) == 3001


@pytest.mark.parametrize(
    ("table", "message"),
    [("nope", "has no table 'nope': it has odd.name, t"), ("main.nope", "no such table")],
)
def test_a_missing_table_is_an_error_with_the_tables(
    tmp_path: Path, table: str, message: str
) -> None:
    path = _database(
        tmp_path / "x.db", "CREATE TABLE t (id INT)", 'CREATE TABLE "odd.name" (id INT)'
    )
    with pytest.raises(SourceError, match=message):
        sqlite_schema(_source(path, table))
    assert sqlite_schema(_source(path, "odd.name")).names == ["id"]
    assert sqlite_schema(_source(path, "main.t")).names == ["id"]


def test_a_missing_file_and_another_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no file is at"):
        sqlite_schema(_source(tmp_path / "nope.db"))
    assert not (tmp_path / "nope.db").exists()
    (tmp_path / "other.db").write_bytes(b"something else" * 100)
    with pytest.raises(SourceError, match="not a database: check the path"):
        sqlite_schema(_source(tmp_path / "other.db"))


def test_a_load_reads_a_table_and_a_pipeline_file_a_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _database(tmp_path / "x.db", "CREATE TABLE t (id INT)", rows=[(1,), (2,)])
    report = ice.load("sqlite:///x.db?table=t", into="db.a", engine="local")
    assert (report.rows_inserted, report.sources) == (2, ("sqlite:///x.db t",))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "p.yaml").write_text(
        "loads:\n  b:\n    source: {database: sqlite:///../x.db, query: SELECT max(id) AS m FROM t}"
        "\n    into: db.b\n    engine: local\n"
    )
    ice.run("deep/p.yaml")
    table = load_table("db.b", None)
    assert ice.scan(table).to_reader().read_all().to_pylist() == [{"m": 2}]
    plan = ice.load("sqlite:///x.db?table=t", into="db.c", engine="local", dry_run=True)
    assert plan.new_columns == {"id": "long"}


def test_an_integer_column_with_fractions_keeps_them(tmp_path: Path) -> None:
    path = _database(tmp_path / "x.db", "CREATE TABLE t (n INTEGER)", rows=[(1,), (1.5,), (2.0,)])
    assert [row["n"] for row in _rows(_source(path))] == [1.0, 1.5, 2.0]
    late = [(n,) for n in range(1_500)] + [(1.5,)]
    path = _database(tmp_path / "y.db", "CREATE TABLE t (n INTEGER)", rows=late)
    with pytest.raises(SourceError, match=r"row 1501: column 'n' has '1.5'"):
        _rows(_source(path))


def test_rows_with_large_values_come_in_small_batches(tmp_path: Path) -> None:
    rows = [(n, b"x" * (3 if n < 2_000 else 700_000)) for n in range(2_020)]
    path = _database(tmp_path / "x.db", "CREATE TABLE t (n INTEGER, raw BLOB)", rows=rows)
    with open_sqlite(_source(path)) as stream:
        sizes = [(batch.num_rows, batch.nbytes) for batch in stream]
    assert sum(count for count, _ in sizes) == 2_020
    assert max(size for _, size in sizes) < 2 << 20


def test_only_a_few_large_values_are_read_to_find_the_types(tmp_path: Path) -> None:
    rows = [(n, b"x" * 3_000_000) for n in range(10)]
    path = _database(tmp_path / "x.db", "CREATE TABLE t (n INTEGER, raw BLOB)", rows=rows)
    tracemalloc.start()
    try:
        assert [str(kind) for kind in sqlite_schema(_source(path)).types] == ["int64", "binary"]
        assert tracemalloc.get_traced_memory()[1] < 12_000_000
    finally:
        tracemalloc.stop()
