"""Dates and timestamps before the year 1 and after 9999, on Spark.

PySpark can't collect such values as Python objects, so the tests compare Arrow tables.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.setup.settings import PUSHDOWN_SETTING
from tests.support.distant_years import FILTERS, distant_rows, distant_table
from tests.support.spark_format import format_reader

_SCHEMA = "id long, d date, ts timestamp_ntz, tz timestamp"
_PARTITIONS = [None, "year(d)", "month(ts)", "day(tz)", "hour(ts)", "d", "tz", "bucket(4, d)"]


def _rows(table: Table) -> pa.Table:
    return ice.scan(table.refresh()).to_reader().read_all().sort_by("id")


def _arrow(frame: Any) -> pa.Table:
    rows: pa.Table = frame.toArrow().sort_by("id")
    return rows.cast(distant_rows().schema)


def _frame(spark: Any, rows: pa.Table) -> Any:
    return spark.createDataFrame(rows, _SCHEMA).repartition(2)


@pytest.mark.parametrize("partition", _PARTITIONS)
def test_every_year_is_written_and_read(
    spark: Any, catalog: SqlCatalog, partition: str | None
) -> None:
    table = distant_table(catalog, partition)
    ice_spark.append(_frame(spark, distant_rows()), table)
    assert _rows(table).equals(distant_rows())
    assert _arrow(ice_spark.read(spark, table)).equals(distant_rows())


def test_every_year_is_written_and_read_by_the_format(spark: Any, catalog: SqlCatalog) -> None:
    table = distant_table(catalog, "year(ts)")
    writer = _frame(spark, distant_rows()).write.format("icestream").mode("append")
    for name, value in catalog.properties.items():
        writer = writer.option(f"catalog.{name}", value)
    writer.option("catalog", catalog.name).save("db.distant")
    assert _rows(table).equals(distant_rows())
    read = format_reader(spark, catalog).load("db.distant")
    assert _arrow(read).equals(distant_rows())


def test_filters_compare_every_year(spark: Any, catalog: SqlCatalog) -> None:
    table = distant_table(catalog, "month(d)")
    ice.append(table, distant_rows())
    for where, matching in FILTERS.items():
        frame = ice_spark.read(spark, table, where=where, columns=["id"])
        assert sorted(row.id for row in frame.collect()) == matching, where


def test_filters_of_a_query_may_have_any_year(spark: Any, catalog: SqlCatalog) -> None:
    table = distant_table(catalog)
    ice.append(table, distant_rows())
    frame = format_reader(spark, catalog).load("db.distant").filter("d > date'+10000-01-01'")
    # PySpark itself converts the filters that it offers to sources to Python's dates.
    spark.conf.set(PUSHDOWN_SETTING, "false")
    try:
        assert [row.id for row in frame.select("id").collect()] == [5]
    finally:
        spark.conf.set(PUSHDOWN_SETTING, "true")


@pytest.mark.parametrize("key", ["id", "d", "tz"])
@pytest.mark.parametrize("partition", [None, "year(ts)", "day(d)"])
def test_rows_of_every_year_are_merged(
    spark: Any, catalog: SqlCatalog, partition: str | None, key: str
) -> None:
    table = distant_table(catalog, partition)
    ice.append(table, distant_rows())
    rows = distant_rows(0 if key == "id" else 100).slice(0, 6)
    report = ice_spark.merge(_frame(spark, rows), table, on=key)
    assert report.rows_inserted == 0
    ids = list(range(6)) if key == "id" else list(range(100, 106))
    assert sorted(_rows(table)["id"].to_pylist()) == sorted([*ids, 6])
