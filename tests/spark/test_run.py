"""A pipeline on Spark: the same rows, reports and answers of tests as in this process."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.pipeline.audit.local_checks import run_local_checks
from icestream.pipeline.audit.spark_checks import run_spark_checks
from icestream.pipeline.request.checks import Check, CheckResult

_PIPELINE = """
name: shop
defaults: {engine: "${ENGINE}", memory: 64MB}
loads:
  orders:
    source: orders.parquet
    into: db.${ENGINE}_orders
    partition_by: [country]
    tests:
      - unique: id
      - rows: {min: 6, max: 6}
      - accepted_values: {column: country, values: [DE, "NO", SE]}
      - sql: SELECT * FROM result WHERE price < 0
        name: no negative prices
  changes:
    source: changes.parquet
    into: db.${ENGINE}_orders
    mode: merge
    keys: id
    tests:
      - not_null: [id, price]
      - rows: {max: 7}
  daily:
    source: {table: "db.${ENGINE}_orders"}
    transform: SELECT country, sum(price) AS total, count(*) AS orders FROM source GROUP BY country
    into: db.${ENGINE}_daily
    mode: replace
"""


def _orders(*rows: tuple[int, str, float]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(dict(zip(("id", "country", "price"), map(list, columns), strict=True)))


def _run(
    folder: Path, catalog: SqlCatalog, spark: Any, engine: str, *, again: bool = False
) -> ice.RunReport:
    return ice.run(
        folder / "pipeline.yaml",
        variables={"ENGINE": engine},
        catalog=catalog,
        spark=spark,
        state=folder / f"state_{engine}",
        again=again,
    )


def _rows(catalog: SqlCatalog, name: str) -> list[dict[str, Any]]:
    rows = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted(rows, key=str)


@pytest.mark.slow
def test_a_pipeline_gives_the_same_on_spark_and_in_this_process(
    tmp_path: Path, catalog: SqlCatalog, spark: Any
) -> None:
    (tmp_path / "pipeline.yaml").write_text(_PIPELINE)
    countries = ("DE", "NO", "SE")
    orders = _orders(*((n, countries[n % 3], n * 1.5) for n in range(6)))
    pq.write_table(orders, tmp_path / "orders.parquet")
    pq.write_table(_orders((1, "NO", 99.0), (6, "DE", 7.0)), tmp_path / "changes.parquet")
    reports = {engine: _run(tmp_path, catalog, spark, engine) for engine in ("spark", "local")}
    for load in ("orders", "changes", "daily"):
        ours, theirs = (reports[engine][load] for engine in ("local", "spark"))
        assert ours.status == theirs.status == "done"
        assert ours.tests == theirs.tests
        assert ours.report is not None
        assert theirs.report is not None
        for count in ("rows_inserted", "rows_updated", "rows_deleted"):
            assert getattr(ours.report, count) == getattr(theirs.report, count), (load, count)
    for table in ("orders", "daily"):
        assert _rows(catalog, f"db.spark_{table}") == _rows(catalog, f"db.local_{table}")
    table = catalog.load_table("db.spark_orders")
    assert set(table.metadata.refs) == {"main"}
    assert _rows(catalog, "db.spark_daily")[0] == {"country": "DE", "total": 11.5, "orders": 3}
    before = _rows(catalog, "db.spark_orders")
    assert _run(tmp_path, catalog, spark, "spark")["orders"].status == "already loaded"
    assert _rows(catalog, "db.spark_orders") == before
    # The same orders once more are refused by the tests.
    head = table.refresh().current_snapshot()
    with pytest.raises(ice.ChecksFailedError, match="unique id: 6 keys more than once"):
        _run(tmp_path, catalog, spark, "spark", again=True)
    assert table.refresh().current_snapshot() == head


def _checked(
    table: Any, spark: Any, told: list[dict[str, Any]]
) -> tuple[list[CheckResult], list[CheckResult]]:
    checks = [Check.parse(each) for each in told]
    return (
        run_local_checks(checks, table, branch="main", memory="32MB"),
        run_spark_checks(checks, table, branch="main", spark=spark, memory="64MB"),
    )


@pytest.mark.slow
def test_tests_find_the_same_on_spark_and_in_this_process(catalog: SqlCatalog, spark: Any) -> None:
    rows = pa.table(
        {
            "id": pa.array([1, 2, 2, 3, None, None, 4, 4, 4], pa.int64()),
            "a.b": [0.0, -0.0, float("nan"), float("nan"), 1.0, 2.0, 3.0, 4.0, None],
            "country": ["DE", "FR", "FR", None, "NO", "DE", "SE", "SE", "DE"],
            "price": pa.array([Decimal("1.50")] * 8 + [Decimal("-2.00")], pa.decimal128(9, 2)),
            "day": [dt.date(2026, 11, 1 + n % 3) for n in range(9)],
            "who": [{"name": None if n == 2 else f"n{n % 8}", "age": n} for n in range(9)],
        }
    )
    table = catalog.create_table("db.t", rows.schema)
    ice.append(table, rows)
    told = [
        {"rows": {"max": 8}},
        {"not_null": ["id", "price", "country", "who.name", "a.b"]},
        {"unique": ["id"]},
        {"unique": ["a.b"]},
        {"accepted_values": {"column": "country", "values": ["DE", "FR"]}},
        {"accepted_values": {"column": "day", "values": ["2026-11-01", "2026-11-02"]}},
        {"sql": "SELECT a.id, a.price FROM result a, result b WHERE a.price < 0 AND b.price < 0"},
    ]
    spark.createDataFrame([(1,)], "x int").createOrReplaceTempView("result")
    ours, theirs = _checked(table, spark, told)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.name, mine.passed, mine.failures) == (other.name, other.passed, other.failures)
        assert sorted(mine.examples) == sorted(other.examples)
    assert [result.passed for result in ours].count(False) == 7
    assert spark.table("result").columns == ["x"]  # a view of the user's is put back
    spark.catalog.dropTempView("result")


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"unique": ["idd"]}, "did you mean 'id'"),
        ({"sql": "SELEKT 1", "name": "typo"}, "'typo' can't be run"),
        ({"sql": "SELECT nothing FROM result"}, "can't be run"),
    ],
)
def test_tests_that_can_not_be_run_say_so(
    catalog: SqlCatalog, spark: Any, told: dict[str, Any], message: str
) -> None:
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    ice.append(table, pa.table({"id": [1]}))
    with pytest.raises(ice.InvalidArgumentError, match=message):
        run_spark_checks([Check.parse(told)], table, branch="main", spark=spark, memory=None)


_SELECTED = """
name: shop
defaults: {memory: 64MB}
loads:
  orders:
    source: orders.parquet
    into: db.t
    mode: MODE
    KEYS
    select: [{name: key, from: id}, country]
    where: price > 3
    partition_by: [country]
    tests:
      - unique: key
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_new_table_with_tests_has_the_selected_columns(
    tmp_path: Path, catalog: SqlCatalog, spark: Any, mode: str
) -> None:
    keys = "keys: key" if mode == "merge" else ""
    text = _SELECTED.replace("MODE", mode).replace("    KEYS\n", f"    {keys}\n" if keys else "")
    (tmp_path / "pipeline.yaml").write_text(text)
    pq.write_table(_orders((1, "NO", 1.0), (2, "SE", 5.0)), tmp_path / "orders.parquet")
    _run(tmp_path, catalog, spark, "spark")
    assert _rows(catalog, "db.t") == [{"key": 2, "country": "SE"}]
