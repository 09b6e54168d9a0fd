"""SQL that several tasks may run, each over its own rows."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

import icestream as ice
from icestream.write.rules.row_local import (
    refuse_unless_plan_is_row_local,
    refuse_unless_row_local,
)

_COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.list_(pa.int64()))])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM source",
        "FROM source WHERE a > 1",
        "SELECT a + 1 AS n, upper(b) AS b, CASE WHEN a > 1 THEN 'x' END AS k FROM source s",
        "SELECT * EXCLUDE (b), list_sum(c) AS total FROM SOURCE WHERE b IN ('x', 'y')",
        "SELECT CAST(a AS DECIMAL(10,2)) AS a FROM source WHERE b LIKE '%x%' AND NOT a IS NULL",
        "SELECT a, unnest(c) AS each FROM source",
    ],
)
def test_expressions_and_filters_are_row_local(sql: str) -> None:
    refuse_unless_row_local(sql)
    refuse_unless_plan_is_row_local(sql, _COLUMNS)


def test_sources_may_have_columns_of_any_type() -> None:
    columns = pa.schema([("a", pa.int64()), ("keys", pa.list_(pa.uuid()))])
    refuse_unless_plan_is_row_local("SELECT a FROM source", columns)


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT DISTINCT a FROM source", "DISTINCT"),
        ("SELECT a FROM source ORDER BY a", "ORDER BY"),
        ("SELECT a FROM source LIMIT 3", "LIMIT"),
        ("SELECT count(*) FROM source", "the aggregate count"),
        ("SELECT 1 + sum(a) AS n FROM source", "the aggregate sum"),
        ("SELECT b, max(a) FROM source GROUP BY b", "GROUP BY"),
        ("SELECT b FROM source GROUP BY ALL", "GROUP BY ALL"),
        ("SELECT sum(a) OVER () FROM source", "a window function"),
        ("SELECT * FROM source QUALIFY row_number() OVER () = 1", "QUALIFY"),
        ("SELECT a FROM source UNION ALL SELECT a FROM source", "a set operation"),
        ("SELECT a FROM source EXCEPT SELECT 1", "a set operation"),
        ("SELECT x.a FROM source x JOIN source y ON x.a = y.a", "a join"),
        ("SELECT a FROM source, source t", "a join"),
        ("SELECT a FROM (SELECT a FROM source)", "a subquery"),
        ("SELECT a FROM source WHERE a IN (SELECT a FROM source)", "a subquery"),
        ("SELECT (SELECT 1) FROM source", "a subquery"),
        ("WITH x AS (SELECT a FROM source) SELECT a FROM x", "WITH"),
        ("SELECT * FROM source USING SAMPLE 10", "SAMPLE"),
        ("SELECT * FROM read_csv('a.csv')", "a table function"),
        ("SELECT * FROM other", "the table 'other'"),
        ("SELECT * FROM main.source", "the table 'source'"),
        ("SELECT 1", "without FROM source"),
        ("VALUES (1)", "VALUES"),
        ("SELECT a FROM source; SELECT b FROM source", "several statements"),
        ("SELEC a FROM source", "can't be parsed"),
        ("DELETE FROM source", "can't be parsed"),
    ],
)
def test_what_needs_other_rows_is_refused_by_name(sql: str, part: str) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=part):
        refuse_unless_row_local(sql)


def test_a_macro_that_hides_an_aggregate_is_refused_by_its_plan() -> None:
    sql = "SELECT geomean(a) AS a FROM source"
    refuse_unless_row_local(sql)
    with pytest.raises(ice.InvalidArgumentError, match="AGGREGATE"):
        refuse_unless_plan_is_row_local(sql, _COLUMNS)


def test_sql_that_does_not_fit_the_columns_is_refused() -> None:
    with pytest.raises(ice.InvalidArgumentError, match="the transform failed"):
        refuse_unless_plan_is_row_local("SELECT nothing FROM source", _COLUMNS)


def test_duckdb_is_named_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ice.MissingExtraError, match="transform_engine='duckdb' needs DuckDB"):
        refuse_unless_row_local("SELECT a FROM source")
