"""The columns and rows of a load, as a request gives them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import icestream as ice
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.write.rules.column_rules import ColumnRules, SelectedColumn


def _spec(**options: Any) -> LoadSpec:
    return LoadSpec.of("a.parquet", "db.t", **options)


def test_an_entry_is_a_name_a_renamed_or_cast_column_or_a_constant() -> None:
    spec = _spec(
        select=[
            "id",
            {"name": "price", "from": "amount", "type": "decimal(10,2)"},
            {"name": "small", "type": pa.int16()},
            {"name": "country", "value": "NO"},
            {"name": "day", "value": dt.date(2026, 1, 2)},
            {"name": "none", "value": None, "type": "string"},
        ],
        where="amount > 0",
    )
    assert spec.select == (
        SelectedColumn("id", "id"),
        SelectedColumn("price", "amount", pa.decimal128(10, 2)),
        SelectedColumn("small", "small", pa.int32()),
        SelectedColumn("country", None, pa.string(), "NO"),
        SelectedColumn("day", None, pa.date32(), dt.date(2026, 1, 2)),
        SelectedColumn("none", None, pa.string(), None),
    )
    assert spec.rules == ColumnRules(spec.select, "amount > 0")
    assert replace(spec, load_id="a").select == spec.select


def test_one_name_is_a_list_of_one_and_no_select_is_all_columns() -> None:
    assert _spec(select="id").select == (SelectedColumn("id", "id"),)
    assert _spec().select is None
    assert not _spec().rules


def test_duckdb_runs_only_row_local_sql_and_only_in_spark_tasks() -> None:
    sql = "SELECT id FROM source"
    spec = _spec(transform=sql, transform_engine="duckdb")
    query = spec.task_query(pa.schema([("id", pa.int64())]), 64 << 20)
    assert query is not None
    assert (query.sql, query.memory_bytes, query.threads) == (sql, 32 << 20, 1)
    assert _spec(transform=sql).task_query(pa.schema([]), 64 << 20) is None
    with pytest.raises(ice.MemoryBudgetError, match="half of it for DuckDB"):
        spec.task_query(pa.schema([("id", pa.int64())]), 16 << 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "transform is not SQL"),
        ({"transform": lambda rows: rows}, "transform is not SQL"),
        ({"transform": "SELECT 1 FROM source", "engine": "local"}, "engine is 'local'"),
        ({"transform": "SELECT 1 FROM source", "engine": "iceberg-jar"}, "engine is 'iceberg-jar'"),
        ({"transform": "SELECT count(*) FROM source"}, "the aggregate count"),
    ],
)
def test_what_duckdb_can_not_run_in_tasks_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        _spec(transform_engine="duckdb", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"select": []}, "select lists no columns"),
        ({"select": {"a": "b"}}, "select lists no columns"),
        ({"select": [5]}, "an entry of select is not valid"),
        ({"select": [" "]}, "an entry of select is not valid"),
        ({"select": ["a", {"name": "a", "from": "b"}]}, "two columns with the name 'a'"),
        ({"select": [{"nam": "a"}]}, "did you mean 'name'"),
        ({"select": [{"from": "a"}]}, "needs a 'name'"),
        ({"select": [{"name": "a", "from": ""}]}, "needs a 'from'"),
        ({"select": [{"name": "a", "type": "decmal"}]}, "select says that 'a' is 'decmal'"),
        ({"select": [{"name": "a", "from": "b", "value": 1}]}, "give one of them"),
        ({"select": [{"name": "a", "value": [1]}]}, "give text, a number"),
        ({"select": [{"name": "a", "value": None}]}, "give its type"),
        ({"select": [{"name": "a", "value": "x", "type": "int"}]}, "'x', which int32 can't hold"),
        ({"where": ""}, "where is ''"),
        ({"where": "a >"}, "can't be parsed: it ends"),
        ({"where": 5}, "where is 5"),
    ],
)
def test_what_is_not_valid_is_refused_before_anything_is_read(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        _spec(**options)
