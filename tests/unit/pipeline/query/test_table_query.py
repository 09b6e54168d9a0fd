"""Queries over tables by name: names, pushdown, errors, and the memory limit."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.pipeline.query.table_query import TableQuery
from tests.support.loads import ids, make_table
from tests.support.stored import folder_of
from tests.support.tables import all_types_rows, all_types_schema


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog)
    for start in (0, 100, 200):
        ice.append(table, ids(start, start + 100, part=start))
    return table


def _rows(catalog: SqlCatalog, sql: str, memory: str = "64MB") -> list[Any]:
    with TableQuery(sql, catalog, MemoryBudget(memory)) as query:
        return pa.Table.from_batches(query, query.schema).to_pylist()


def test_tables_are_joined_by_their_names(catalog: SqlCatalog, table: Table) -> None:
    catalog.create_namespace("b.c")
    more = catalog.create_table("b.c.More", pa.schema([("part", pa.int64()), ("n", pa.string())]))
    ice.append(more, pa.table({"part": [0, 200], "n": ["x", "y"]}))
    rows = _rows(
        catalog,
        f"""
        WITH big AS (SELECT * FROM {catalog.name}.db.t WHERE id >= 50)
        SELECT n, count(*) AS found, max(s.id) AS most FROM big s
        JOIN b.c.More USING (part) WHERE s.id IN (SELECT id FROM "db".t) GROUP BY n ORDER BY n
        """,
    )
    assert rows == [{"n": "x", "found": 50, "most": 99}, {"n": "y", "found": 100, "most": 299}]


def test_a_namespace_of_several_parts_is_one_name_in_quotes(catalog: SqlCatalog) -> None:
    catalog.create_namespace("a.b.c")
    make_table(catalog, "a.b.c.d")
    assert _rows(catalog, 'SELECT * FROM "a.b.c".d') == []


def test_columns_and_filters_reach_the_scan(catalog: SqlCatalog, table: Table) -> None:
    with TableQuery("SELECT id FROM db.t WHERE part = 100", catalog, MemoryBudget("64MB")) as query:
        assert sum(batch.num_rows for batch in query) == 100
        assert (query.tables, query.files_read) == (("db.t",), 1)
        (scan,) = next(iter(query._datasets.values())).scans
        assert scan.schema.names == ["id", "part"]


def test_values_and_filters_of_all_types_are_those_of_the_rows(catalog: SqlCatalog) -> None:
    import duckdb

    table = catalog.create_table("db.kinds", all_types_schema())
    ice.append(table, all_types_rows(50))
    rows = ice.scan(table).to_reader().read_all()
    conditions = [
        f"\"{field.name}\" {comparison} '{value}'"
        for field in rows.schema
        if not pa.types.is_nested(field.type) and "binary" not in str(field.type)
        for value in [each for each in rows[field.name].to_pylist() if each is not None][:1]
        for comparison in ("=", "<", ">=")
    ]
    assert len(conditions) > 40
    sql = " UNION ALL ".join(
        f"SELECT {number} AS number, count(*) AS matches FROM db.kinds WHERE {condition}"
        for number, condition in enumerate(conditions)
    )
    with duckdb.connect() as plain:
        plain.execute("SET TimeZone = 'UTC'; CREATE SCHEMA db")
        plain.register("kinds", rows)
        plain.execute("CREATE VIEW db.kinds AS SELECT * FROM temp.kinds")
        expected = dict(plain.sql(sql).fetchall())
        shown = plain.sql("SELECT * FROM db.kinds").fetchall()
    counted = {row["number"]: row["matches"] for row in _rows(catalog, sql, memory="256MB")}
    assert counted == expected
    read = _rows(catalog, "SELECT * FROM db.kinds")
    assert [str(row["id"]) for row in read] == [str(row[0]) for row in shown]


def test_files_need_no_catalog(catalog: SqlCatalog, tmp_path: Any) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a\n1\n2\n")
    assert _rows(catalog, f"SELECT sum(a)::int AS a FROM '{path}'", memory="256MB") == [{"a": 3}]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT 1; SELECT 2", "has 2 statements: write one SELECT"),
        ("DROP TABLE db.t", "is DROP: write one SELECT"),
        ("", "has 0 statements"),
        ("SELEC 1", 'syntax error at or near "SELEC"$'),
        ("SELECT nope FROM db.t", '"nope" not found'),
        ("SELECT * FROM t", "include the namespace, as in shop.t"),
        ("SELECT * FROM table", "syntax error"),
        ("PIVOT db.t ON part", "write one SELECT"),
    ],
)
def test_a_wrong_query_is_an_invalid_argument(
    catalog: SqlCatalog, table: Table, sql: str, words: str
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=words):
        _rows(catalog, sql)


def test_variables_of_this_process_are_not_tables(catalog: SqlCatalog, table: Table) -> None:
    rows = pa.table({"a": [1]})
    with pytest.raises(ice.InvalidArgumentError, match="the query names the table 'rows'"):
        _rows(catalog, "SELECT * FROM rows")
    assert rows.num_rows == 1


def test_errors_of_the_scan_keep_their_type(catalog: SqlCatalog, table: Table) -> None:
    with pytest.raises(ice.CatalogError, match=r"there is no table 'db\.nope'"):
        _rows(catalog, "SELECT * FROM db.nope")
    next(folder_of(table).rglob("*.parquet")).unlink()
    with pytest.raises(ice.FileMissingError):
        _rows(catalog, "SELECT sum(id) FROM db.t")


def test_the_limit_is_kept_or_named(catalog: SqlCatalog, table: Table) -> None:
    with pytest.raises(ice.MemoryBudgetError, match="a query needs"):
        _rows(catalog, "SELECT * FROM db.t", memory="1MB")
    sql = "SELECT list(a || id || repeat('x', 1000)) AS n FROM range(1000000) t(a), db.t"
    with pytest.raises(ice.MemoryBudgetError, match="DuckDB's half") as raised:
        _rows(catalog, sql, memory="40MB")
    assert raised.value.limit_bytes <= 40_000_000 < raised.value.needed_bytes


def test_a_table_that_needs_more_names_the_whole_limit(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.wide")
    wide = pa.table({"id": [1], "part": [1], "text": ["x" * 20_000_000]})
    ice.append(table, wide)
    with pytest.raises(ice.MemoryBudgetError, match="in total, raise memory to") as raised:
        _rows(catalog, "SELECT length(text) AS n FROM db.wide", memory="40MB")
    needed = raised.value.needed_bytes
    rows = _rows(catalog, "SELECT length(text) AS n FROM db.wide", memory=f"{needed}")
    assert rows == [{"n": 20_000_000}]


def test_without_duckdb_the_error_names_the_extra(catalog: SqlCatalog) -> None:
    real = builtins.__import__

    def imported(name: str, *arguments: Any, **settings: Mapping[str, Any]) -> Any:
        if name == "duckdb":
            raise ImportError(name)
        return real(name, *arguments, **settings)

    with (
        mock.patch.object(builtins, "__import__", imported),
        pytest.raises(ice.MissingExtraError, match=r"pip install 'icestream\[duckdb\]'"),
    ):
        _rows(catalog, "SELECT 1")
