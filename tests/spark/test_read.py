"""Spark reads what PyIceberg reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, GreaterThan, In
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, TimestampNanoType
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

import icestream
import icestream.spark as ice_spark
from tests.support.spark_reads import ORDERS, regional_orders
from tests.support.tables import (
    add_parquet_file,
    all_types_rows,
    all_types_schema,
    append_arrow,
    commit_files,
    create_v3_table,
    data_file_paths,
    write_parquet_file,
)


def _rows(table: pa.Table) -> list[str]:
    """Rows as text, by id: NaN equals NaN there, and 0.0 does not equal -0.0."""
    rows = table.sort_by("id").to_pylist()
    for row in rows:
        if row.get("uuid") is not None:
            row["uuid"] = str(row["uuid"])
    return [repr(row) for row in rows]


def _tasks(frame: Any) -> int:
    return frame.select(sf.spark_partition_id().alias("task")).distinct().count()


def test_rows_of_a_partitioned_filtered_projected_table_are_pyicebergs(
    spark: Any, orders: Table
) -> None:
    where = And(GreaterThan("price", 60.0), In("region", ["north", "west"]))
    columns = ("price", "note", "id")
    frame = ice_spark.read(spark, orders, where=where, columns=columns)
    expected = orders.scan(row_filter=where, selected_fields=columns).to_arrow().select(columns)
    assert expected.num_rows > 1000
    assert tuple(frame.columns) == columns
    assert _rows(frame.toArrow()) == _rows(expected)


def test_an_aggregate_is_pyicebergs(spark: Any, orders: Table, catalog: SqlCatalog) -> None:
    frame = ice_spark.read(spark, "db.orders", catalog=catalog, columns=["region", "price"])
    found = frame.groupBy("region").agg(sf.count("*"), sf.sum("price")).collect()
    expected = orders.scan().to_arrow().group_by("region")
    totals = expected.aggregate([([], "count_all"), ("price", "sum")]).to_pylist()
    assert {tuple(row) for row in found} == {
        (row["region"], row["count_all"], row["price_sum"]) for row in totals
    }


def test_rows_deleted_by_position_are_gone(spark: Any, orders: Table) -> None:
    rows = ice_spark.read(spark, orders).toArrow()
    assert rows.num_rows == 12_000 - len(range(0, 500, 3)) - 2
    assert _rows(rows) == _rows(orders.scan().to_arrow())


def test_values_of_all_types_are_pyicebergs(spark: Any, catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.types", all_types_schema())
    append_arrow(table, all_types_rows(400))
    append_arrow(table, all_types_rows(400, seed=1))
    columns = tuple(f.name for f in table.schema().fields if f.name != "time")
    frame = ice_spark.read(spark, table, columns=columns)
    assert frame.schema["uuid"].dataType.simpleString() == "string"
    assert frame.schema["fixed"].dataType.simpleString() == "binary"
    assert frame.schema["timestamp"].dataType.simpleString() == "timestamp_ntz"
    assert frame.schema["timestamptz"].dataType.simpleString() == "timestamp"
    assert not frame.schema["id"].nullable
    found = sorted(_rows(frame.toArrow()))
    assert found == sorted(_rows(table.scan(selected_fields=columns).to_arrow()))


def test_a_column_that_spark_has_no_type_for_is_refused_before_anything_runs(
    spark: Any, catalog: SqlCatalog
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampNanoType()))
    table = create_v3_table(catalog, "db.times", schema)
    with pytest.raises(icestream.UnsupportedFeatureError, match=r"'at' \(timestamp_ns\) of db"):
        ice_spark.read(spark, table)
    assert ice_spark.read(spark, table, columns=["id"]).count() == 0


@pytest.mark.parametrize("where", [None, "id > 3", "id is null and id > 3"])
def test_a_table_without_rows_is_an_empty_frame_with_its_columns(
    spark: Any, catalog: SqlCatalog, where: str | None
) -> None:
    table = catalog.create_table("db.empty", ORDERS)
    frame = ice_spark.read(spark, table, where=where)
    assert frame.schema.simpleString() == "struct<id:bigint,region:string,price:double,note:string>"
    assert frame.collect() == []


def test_the_frame_keeps_reading_the_snapshot_it_was_planned_on(spark: Any, orders: Table) -> None:
    frame = ice_spark.read(spark, orders, columns=["id"])
    before = frame.count()
    first = orders.history()[0].snapshot_id
    orders.append(regional_orders(12_000, 12_100))
    assert frame.count() == before
    assert ice_spark.read(spark, orders, columns=["id"]).count() == before + 100
    assert ice_spark.read(spark, orders, columns=["id"], snapshot_id=first).count() == 4000


def test_many_small_files_are_read_by_few_tasks(spark: Any, catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.small", ORDERS)
    files = [write_parquet_file(table, regional_orders(i * 10, i * 10 + 10)) for i in range(40)]
    commit_files(table, files)
    frame = ice_spark.read(spark, table, columns=["id"])
    assert _tasks(frame) == 4
    assert frame.count() == 400


@pytest.mark.slow
def test_a_large_file_is_read_by_several_tasks(spark: Any, catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.large", pa.schema([("id", pa.int64()), ("x", pa.float64())]))
    count = 5_000_000
    rows = pa.table({"id": np.arange(count), "x": np.random.default_rng(0).random(count)})
    add_parquet_file(table, rows, row_group_rows=250_000, compression="none")
    frame = ice_spark.read(spark, table)
    assert _tasks(frame) == 4
    [total] = frame.agg(sf.count("*"), sf.sum("id"), sf.sum("x")).collect()
    assert total[:2] == (count, count * (count - 1) // 2)
    assert total[2] == pytest.approx(pc.sum(rows["x"]).as_py())


def test_the_tables_own_split_size_counts(spark: Any, catalog: SqlCatalog) -> None:
    properties = {"read.split.target-size": "50000"}
    table = catalog.create_table("db.sized", ORDERS, properties=properties)
    add_parquet_file(table, regional_orders(0, 40_000), row_group_rows=2_000)
    assert _tasks(ice_spark.read(spark, table, columns=["id"])) == 4


def test_an_error_in_a_worker_says_which_file_and_what_to_do(spark: Any, orders: Table) -> None:
    path = data_file_paths(orders)[0]
    frame = ice_spark.read(spark, orders)
    Path(path.removeprefix("file://")).unlink()
    with pytest.raises(PySparkException) as caught:
        frame.count()
    message = str(caught.value)
    assert "FileMissingError" in message
    assert f"{path} (split " in message
    assert "does not exist, but the table refers to it" in message


def test_too_little_memory_is_said_in_bytes(spark: Any, orders: Table) -> None:
    frame = ice_spark.read(spark, orders, memory="1kB")
    with pytest.raises(
        PySparkException, match=r"needs .* and the memory limit is 1 kB: raise memory to"
    ):
        frame.count()


def test_arguments_that_do_not_fit_are_refused_before_anything_runs(
    spark: Any, orders: Table, catalog: SqlCatalog
) -> None:
    with pytest.raises(icestream.UnknownColumnError, match="did you mean 'price'"):
        ice_spark.read(spark, orders, columns=["prise"])
    with pytest.raises(icestream.InvalidArgumentError, match="can't be parsed"):
        ice_spark.read(spark, orders, where="price >")
    with pytest.raises(icestream.InvalidArgumentError, match="memory"):
        ice_spark.read(spark, orders, memory=0)
    with pytest.raises(icestream.CatalogError, match=r"no table 'db\.missing'"):
        ice_spark.read(spark, "db.missing", catalog=catalog)


@pytest.mark.slow
def test_a_query_that_stops_early_leaves_the_session_usable(spark: Any, orders: Table) -> None:
    frame = ice_spark.read(spark, orders)
    assert len(frame.limit(3).collect()) == 3
    assert frame.count() == orders.scan().count()
