"""Spark reads what PyIceberg reads."""

from __future__ import annotations

import pickle
import pickletools
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import And, GreaterThan, In
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampNanoType
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.datasource import InputPartition

import icestream
import icestream.spark as ice_spark
from icestream.spark.format.read_options import ReadOptions
from icestream.spark.format.reader import TableReader
from icestream.spark.format.table_read import PinnedTable, Share, ShareReader, TableRead
from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.tasks.packing import pack
from icestream.spark.tasks.task_plan import TaskPlan, plan_tasks
from tests.support.delete_files import commit_position_deletes
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

ORDERS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "price", DoubleType()),
    NestedField(4, "note", StringType()),
)
BY_REGION = PartitionSpec(
    PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="region")
)


def _orders(start: int, stop: int) -> pa.Table:
    ids = np.arange(start, stop)
    return pa.table(
        {
            "id": ids,
            "region": pa.array(["north", "south", None, "west"]).take(pa.array(ids % 4)),
            "price": ids % 1000 / 8,
            "note": pa.array([f"note {i}" if i % 3 else None for i in ids]),
        },
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("region", pa.string()),
                pa.field("price", pa.float64()),
                pa.field("note", pa.string()),
            ]
        ),
    )


@pytest.fixture
def orders(catalog: SqlCatalog) -> Table:
    """A partitioned table of three appends, with rows deleted by position in two files."""
    table = catalog.create_table("db.orders", ORDERS, partition_spec=BY_REGION)
    for start in (0, 4000, 8000):
        table.append(_orders(start, start + 4000))
    paths = data_file_paths(table)
    commit_position_deletes(table, {paths[0]: range(0, 500, 3), paths[-1]: [0, 999]})
    return table


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
    columns = ("id", "price", "note")
    frame = ice_spark.read(spark, orders, where=where, columns=columns)
    expected = orders.scan(row_filter=where, selected_fields=columns).to_arrow()
    assert expected.num_rows > 1000
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


@pytest.mark.parametrize("stand_in", [None, InputPartition(None)])
def test_what_spark_passes_for_no_partitions_reads_nothing(stand_in: InputPartition | None) -> None:
    assert list(ShareReader(1 << 20, None)(stand_in)) == []


def test_the_frame_keeps_reading_the_snapshot_it_was_planned_on(spark: Any, orders: Table) -> None:
    frame = ice_spark.read(spark, orders, columns=["id"])
    before = frame.count()
    first = orders.history()[0].snapshot_id
    orders.append(_orders(12_000, 12_100))
    assert frame.count() == before
    assert ice_spark.read(spark, orders, columns=["id"]).count() == before + 100
    assert ice_spark.read(spark, orders, columns=["id"], snapshot_id=first).count() == 4000


def test_many_small_files_are_read_by_few_tasks(spark: Any, catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.small", ORDERS)
    files = [write_parquet_file(table, _orders(i * 10, i * 10 + 10)) for i in range(40)]
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
    add_parquet_file(table, _orders(0, 40_000), row_group_rows=2_000)
    assert _tasks(ice_spark.read(spark, table, columns=["id"])) == 4


def test_batches_are_no_longer_than_spark_allows(orders: Table) -> None:
    [share] = plan_tasks(icestream.scan(orders), SessionDefaults(), split_bytes=1 << 30).shares
    batches = ShareReader(64 << 20, 700)(Share(share))
    assert max(batch.num_rows for batch in batches) <= 700


def test_what_travels_to_the_workers_holds_no_catalog(orders: Table) -> None:
    plan = TaskPlan.of(
        pack(icestream.scan(orders).splits(), tasks=3), memory_bytes=64 << 20, batch_rows=None
    )
    assert len(plan.shares) == 3
    for share in plan.shares:
        words = {
            str(argument)
            for _, argument, _ in pickletools.genops(zlib.decompress(share))
            if argument
        }
        modules = {word for word in words if word.startswith("pyiceberg.")}
        assert modules
        assert not {word for word in modules if word.startswith("pyiceberg.catalog")}
        assert not {word for word in words if "sqlalchemy" in word}


def test_a_task_is_sent_its_own_share_alone(orders: Table) -> None:
    pinned = PinnedTable(orders.name(), orders.metadata, orders.metadata_location, orders.io)
    reader = TableReader(TableRead(pinned, ReadOptions("db.orders"), SessionDefaults(cores=6)))
    assert len(reader.partitions()) == 12
    assert len(pickle.dumps(reader)) < 500


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
