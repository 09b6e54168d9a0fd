"""A read planned before Spark sees it: one task for each share, and a size that Spark can use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.tasks.planned_frame import planned_frame, type_bytes
from icestream.spark.tasks.task_plan import TaskPlan
from tests.support.tables import commit_files, write_parquet_file

ALL_TYPES = (
    "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h decimal(18,2), "
    "i decimal(19,2), j string, k binary, l date, m timestamp, n timestamp_ntz, o array<int>, "
    "p map<string, bigint>, q struct<x: int, y: array<string>>"
)


@pytest.fixture
def numbers(catalog: SqlCatalog) -> Table:
    """Eight files of 10,000 rows."""
    table = catalog.create_table("db.numbers", pa.schema([("id", pa.int64()), ("x", pa.float64())]))
    for start in range(0, 80_000, 10_000):
        ids = np.arange(start, start + 10_000)
        ice.append(table, pa.table({"id": ids, "x": ids / 4}))
    return table


def _believed_bytes(frame: Any) -> int:
    stats = frame._jdf.queryExecution().optimizedPlan().stats()
    return int(str(stats.sizeInBytes()))


def _plan(*, tasks: int, rows: int, stored_bytes: int) -> TaskPlan:
    return TaskPlan((b"",) * tasks, 1 << 20, None, rows, stored_bytes)


def test_widths_of_types_are_those_that_spark_goes_by(spark: Any) -> None:
    schema = spark.createDataFrame([], ALL_TYPES).schema
    jvm = spark._jsparkSession.parseDataType(schema.json())
    for number, field in enumerate(schema):
        theirs = jvm.apply(number).dataType().defaultSize()
        assert (field.name, type_bytes(field.dataType)) == (field.name, theirs)
    assert type_bytes(schema) == jvm.defaultSize()


@pytest.mark.parametrize(
    ("rows", "stored_bytes", "tasks"),
    [(1000, 0, 1), (1_000_000, 10, 7), (5, 40_000_000, 3), (3_000_000, 1, 1), (10, 0, 40)],
)
def test_spark_believes_what_is_read_to_be_of_its_size(
    spark: Any, rows: int, stored_bytes: int, tasks: int
) -> None:
    schema = StructType.fromDDL("id bigint, name string, flag boolean")
    plan = _plan(tasks=tasks, rows=rows, stored_bytes=stored_bytes)
    frame = planned_frame(spark, plan, schema)
    real = max(rows * (8 + 8 + 20 + 1), stored_bytes)
    assert real <= _believed_bytes(frame) <= max(3 * real, tasks * 16)


def test_a_table_of_any_size_is_believed_to_be_large(spark: Any) -> None:
    plan = _plan(tasks=3000, rows=10**12, stored_bytes=10**13)
    frame = planned_frame(spark, plan, StructType.fromDDL("id bigint"))
    assert _believed_bytes(frame) > 5 * 10**8


def test_small_tables_are_broadcast_in_joins_and_large_ones_are_not(
    spark: Any, numbers: Table, catalog: SqlCatalog
) -> None:
    few = catalog.create_table("db.few", pa.schema([("id", pa.int64())]))
    ice.append(few, pa.table({"id": np.arange(10)}))
    joined = ice_spark.read(spark, numbers).join(ice_spark.read(spark, few), "id")
    plan = joined._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in plan
    assert "BuildRight" in plan
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "100000")  # `numbers` has 1.9 MB
    try:
        joined = ice_spark.read(spark, numbers).join(ice_spark.read(spark, numbers), "id")
        plan = joined._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)
    assert "BroadcastHashJoin" not in plan
    assert "SortMergeJoin" in plan


def test_each_share_is_read_once_by_a_task_of_its_own(spark: Any, numbers: Table) -> None:
    frame = ice_spark.read(spark, numbers, split_size="20kB", metadata_columns=["_file"])
    by_task = frame.groupBy(sf.spark_partition_id(), "_file").count().collect()
    assert len(by_task) == 8
    assert len({row[0] for row in by_task}) == frame.rdd.getNumPartitions() == 8
    assert {row["count"] for row in by_task} == {10_000}


def test_a_query_that_needs_few_rows_does_not_open_every_file(
    spark: Any, numbers: Table, catalog: SqlCatalog
) -> None:
    table = catalog.create_table("db.gone", numbers.schema())
    rows = pa.table({"id": np.arange(100), "x": np.arange(100) / 4})
    files = [write_parquet_file(table, rows) for _ in range(8)]
    commit_files(table, files)
    frame = ice_spark.read(spark, table, split_size="1kB")
    for file in files[1:]:
        Path(file.file_path.removeprefix("file://")).unlink()
    assert [row["id"] for row in frame.limit(3).collect()] == [0, 1, 2]


@pytest.mark.slow
def test_the_frame_can_be_used_twice_in_a_query(spark: Any, numbers: Table) -> None:
    frame = ice_spark.read(spark, numbers, columns=["id"])
    both = frame.unionAll(frame).agg(sf.count("*"), sf.sum("id")).collect()
    assert both == [(160_000, 80_000 * 79_999)]
    assert frame.join(frame.withColumnRenamed("id", "id"), "id").count() == 80_000


def test_a_plan_shows_what_is_read_and_no_more(spark: Any, numbers: Table) -> None:
    text = ice_spark.read(spark, numbers)._jdf.queryExecution().toString()
    assert "MapInArrow" in text
    assert "icestream read db.numbers (id, x)" in text
    assert str(numbers.location()) not in text
