"""A data frame takes the place of rows: one snapshot, as `icestream.overwrite` makes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import (
    UNPARTITIONED_PARTITION_SPEC,
    PartitionField,
    PartitionSpec,
)
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import functions as sf

import icestream as ice
import icestream.spark as ice_spark
from icestream.operations.live_files import LiveFiles
from tests.support.spark_orders import ORDERS, ORDERS_DDL, order_ids, orders, stored

BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


def _filled(catalog: SqlCatalog, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> Table:
    """Twenty orders, ids 0 to 19."""
    table = catalog.create_table("db.orders", ORDERS, partition_spec=spec)
    ids = range(20)
    rows = {
        "id": pa.array(ids, pa.int64()),
        "region": [f"r{i % 4}" for i in ids],
        "price": [i / 8 for i in ids],
    }
    ice.append(table, pa.table(rows))
    return table


def test_everything_is_replaced_by_default(spark: Any, catalog: SqlCatalog, tmp_path: Path) -> None:
    table = _filled(catalog)
    report = ice_spark.overwrite(
        orders(spark, 5, first=100), table, properties={"by": "spark"}, load_id="monday"
    )
    assert order_ids(table) == [100, 101, 102, 103, 104]
    assert len(table.metadata.snapshots) == 2
    assert table.current_snapshot().summary["by"] == "spark"
    assert (report.operation, report.rows_inserted, report.rows_deleted) == ("overwrite", 5, 20)
    assert (report.files_removed, report.snapshot_id) == (1, table.current_snapshot().snapshot_id)
    assert 0 < report.peak_bytes_held <= report.memory_limit_bytes == 64_000_000
    assert not [name for name in stored(tmp_path) if "in-flight" in name]
    again = ice_spark.overwrite(orders(spark, 1), table, load_id="monday")
    assert again.already_committed
    assert (again.snapshot_id, again.rows_deleted) == (report.snapshot_id, 20)


def test_a_filter_says_what_goes_and_the_rest_of_a_file_stays(
    spark: Any, catalog: SqlCatalog
) -> None:
    table = _filled(catalog)
    report = ice_spark.overwrite(
        orders(spark, 2, first=100), "db.orders", catalog=catalog, where="id >= 3"
    )
    assert order_ids(table) == [0, 1, 2, 100, 101]
    assert (report.rows_inserted, report.rows_deleted) == (2, 17)


def test_the_partitions_of_the_frame_are_replaced(spark: Any, catalog: SqlCatalog) -> None:
    table = _filled(catalog, BY_REGION)
    frame = orders(spark, 8, first=100).where("region = 'r1'")
    report = ice_spark.overwrite(frame, table, partitions="dynamic")
    assert order_ids(table) == sorted([i for i in range(20) if i % 4 != 1] + [101, 105])
    assert (report.rows_inserted, report.rows_deleted, report.files_removed) == (2, 5, 1)


def test_tasks_rewrite_files_whose_spec_is_older_than_the_replaced_partitions(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _filled(catalog)
    with table.update_spec() as update:
        update.add_field("region", IdentityTransform(), "region")
    one = {"id": pa.array([50], pa.int64()), "region": ["r1"], "price": [1.0]}
    ice.append(table, pa.table(one))
    ice.append(table, pa.table(one | {"region": ["r2"]}))
    ice.append(table, pa.table(one | {"id": pa.array([51], pa.int64())}))
    frame = orders(spark, 8, first=100).where("region = 'r1'").withColumn("note", sf.lit("new"))

    def refuse(*_: object) -> None:
        raise AssertionError("the driver reads rows")

    monkeypatch.setattr(LiveFiles, "rows", refuse)
    report = ice_spark.overwrite(frame, table, partitions="dynamic", schema_mode="evolve")
    stay = [i for i in range(20) if i % 4 != 1]
    assert order_ids(table) == sorted([*stay, 50, 101, 105])
    assert (report.rows_inserted, report.rows_deleted, report.files_removed) == (2, 7, 3)
    assert report.worker_peak_bytes > 0
    named = {task.file.file_path for task in table.scan().plan_files()}
    files = {name for name in stored(tmp_path) if name.endswith(".parquet")}
    assert len(files) == len(named) + 3, "only the replaced files are left"
    assert {task.file.spec_id for task in table.scan().plan_files()} == {1}


def test_an_empty_frame_empties_the_table_or_no_partition(spark: Any, catalog: SqlCatalog) -> None:
    table = _filled(catalog, BY_REGION)
    nothing = orders(spark, 8).where("id < 0")
    assert ice_spark.overwrite(nothing, table, partitions="dynamic").snapshot_id is None
    assert len(order_ids(table)) == 20
    report = ice_spark.overwrite(nothing, table)
    assert (order_ids(table), report.rows_deleted) == ([], 20)
    assert ice_spark.append(nothing, table).snapshot_id is None
    assert len(table.refresh().metadata.snapshots) == 2


def test_a_branch_is_overwritten_and_main_stays(spark: Any, catalog: SqlCatalog) -> None:
    table = _filled(catalog)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    ice_spark.overwrite(orders(spark, 3), table, branch="audit")
    assert order_ids(table, branch="audit") == [0, 1, 2]
    assert len(order_ids(table)) == 20


def test_the_schema_evolves_and_rows_that_stay_have_nulls(spark: Any, catalog: SqlCatalog) -> None:
    table = _filled(catalog)
    frame = orders(spark, 2, first=100).withColumn("note", sf.lit("new"))
    with pytest.raises(ice.SchemaMismatchError, match="note"):
        ice_spark.overwrite(frame, table)
    report = ice_spark.overwrite(frame, table, where="id > 0", schema_mode="evolve")
    assert report.schema_changes == ("add column 'note' string",)
    rows = table.refresh().scan().to_arrow().sort_by("id")
    assert rows["note"].to_pylist() == [None, "new", "new"]


def test_nulls_make_a_required_column_optional_where_the_schema_may_evolve(
    spark: Any, catalog: SqlCatalog
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = catalog.create_table("db.strict", schema)
    frame = spark.range(3).select(sf.when(sf.col("id") != 1, sf.col("id")).alias("id"))
    with pytest.raises(ice.InvalidDataError, match="'id'") as caught:
        ice_spark.append(frame, table)
    assert caught.value.column == "id"
    report = ice_spark.append(frame, table, schema_mode="evolve")
    assert report.schema_changes == ("column 'id' made optional",)
    assert not table.refresh().schema().find_field("id").required


def test_rows_that_others_add_meanwhile_are_not_lost(
    spark: Any, catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = _filled(catalog)
    signal, go = tmp_path / "running", tmp_path / "go"

    def wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        signal.touch()
        while not go.exists():
            time.sleep(0.01)
        yield from batches

    def add_one() -> None:
        while not signal.exists():
            time.sleep(0.01)
        one = {"id": pa.array([500], pa.int64()), "region": ["r0"], "price": [1.0]}
        ice.append(catalog.load_table("db.orders"), pa.table(one))
        go.touch()

    import threading
    import time

    other = threading.Thread(target=add_one)
    other.start()
    before = stored(tmp_path)
    frame = orders(spark, 5, tasks=1).mapInArrow(wait, ORDERS_DDL)
    with pytest.raises(ice.CommitConflictError):
        ice_spark.overwrite(frame, table)
    other.join()
    assert order_ids(table) == [*range(20), 500]
    left = [name for name in stored(tmp_path) - before if name.endswith(".parquet")]
    assert len(left) == 1, "the other's file alone"


def test_a_frame_may_read_the_table_that_it_replaces(spark: Any, catalog: SqlCatalog) -> None:
    table = _filled(catalog)
    frame = ice_spark.read(spark, table).where("id < 5")
    ice_spark.overwrite(frame, table)
    assert order_ids(table) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"where": "id > 1", "partitions": "dynamic"}, "give one of them"),
        ({"partitions": "dynamic"}, "is not partitioned"),
        ({"partitions": "static"}, "partitions is 'static'"),
        ({"schema_mode": "loose"}, "schema_mode is 'loose'"),
        ({"branch": "nowhere"}, "no branch 'nowhere'"),
        ({"distribution": "even"}, "distribution is 'even'"),
        ({"memory": "lots"}, "'lots' is not a size"),
        ({"properties": {"operation": "mine"}}, "every commit sets itself"),
        ({"partition_by": ["region"]}, "create=True"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_before_anything_runs(
    spark: Any, catalog: SqlCatalog, options: dict[str, Any], problem: str
) -> None:
    table = _filled(catalog)
    never = spark.range(1).select(sf.raise_error(sf.lit("was run")).cast("long").alias("id"))
    with pytest.raises(ice.InvalidArgumentError, match=problem):
        ice_spark.overwrite(never, table, **options)
