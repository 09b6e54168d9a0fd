"""`df.write.format("icestream")`: the same writes by Spark's own API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException
from pyspark.sql import functions as sf

import icestream.spark as ice_spark
from icestream.errors import CommitUnknownError
from icestream.spark.data_source import IcestreamSource
from icestream.spark.format.sink import IcestreamWriter
from icestream.spark.setup.settings import MEMORY_SETTING
from tests.support.spark_orders import ORDERS, order_ids, orders, stored
from tests.support.spark_stream import append_orders

BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


@pytest.fixture
def spark(spark: Any) -> Any:
    """The session, which knows the format."""
    spark.dataSource.register(IcestreamSource)
    return spark


def _options(catalog: SqlCatalog, **options: str) -> dict[str, str]:
    given = {f"catalog.{name}": value for name, value in catalog.properties.items()}
    return {"catalog": "tests", **given, **{k.replace("_", "-"): v for k, v in options.items()}}


def _write(frame: Any, catalog: SqlCatalog, mode: str = "append", **options: str) -> Any:
    return frame.write.format("icestream").mode(mode).options(**_options(catalog, **options))


def test_a_frame_is_appended_as_one_snapshot(
    spark: Any, catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = catalog.create_table("db.orders", ORDERS)
    options = {"property.by": "spark", "load-id": "monday", "memory": "16MB"}
    for _ in range(2):
        _write(orders(spark, 100), catalog, **options).save("db.orders")
    assert order_ids(table) == list(range(100))
    (snapshot,) = table.metadata.snapshots
    assert snapshot.summary["by"] == "spark"
    assert not [name for name in stored(tmp_path) if "in-flight" in name]
    files = [name for name in stored(tmp_path) if name.endswith(".parquet")]
    assert len(files) == 3, "the second load wrote none"


@pytest.mark.slow
def test_a_task_may_hold_what_the_session_says(spark: Any, catalog: SqlCatalog) -> None:
    catalog.create_table("db.orders", ORDERS)
    spark.conf.set(MEMORY_SETTING, "100000")
    ice_spark.register(spark)
    with pytest.raises(PySparkException, match="the memory limit is 100 kB"):
        _write(orders(spark, 100), catalog).save("db.orders")
    _write(orders(spark, 100), catalog, memory="16MB").save("db.orders")


@pytest.mark.slow
def test_overwriting_takes_all_or_a_filter_or_the_frames_partitions(
    spark: Any, catalog: SqlCatalog
) -> None:
    table = catalog.create_table("db.orders", ORDERS, partition_spec=BY_REGION)
    _write(orders(spark, 20), catalog, "overwrite").save("db.orders")
    _write(orders(spark, 1, first=100), catalog, "overwrite", overwrite_where="id >= 3").save(
        "db.orders"
    )
    assert order_ids(table) == [0, 1, 2, 100]
    frame = orders(spark, 1, first=101)  # of region r1
    _write(frame, catalog, "overwrite", overwrite_mode="dynamic").save("db.orders")
    assert order_ids(table) == [0, 2, 100, 101]
    _write(orders(spark, 2, first=7), catalog, "overwrite").save("db.orders")
    assert order_ids(table) == [7, 8]
    assert len(table.metadata.snapshots) == 4


@pytest.mark.slow
def test_a_branch_gets_the_rows_and_main_stays_as_it_is(spark: Any, catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.orders", ORDERS)
    start = append_orders(table, 0, 2)
    table.manage_snapshots().create_branch(start, "audit").commit()
    _write(orders(spark, 3, first=10), catalog, branch="audit").save("db.orders")
    assert order_ids(table, branch="audit") == [0, 1, 10, 11, 12]
    _write(orders(spark, 2, first=20), catalog, "overwrite", branch="audit").save("db.orders")
    assert order_ids(table, branch="audit") == [20, 21]
    assert order_ids(table) == [0, 1]
    main = table.snapshot_by_name("main")
    assert main is not None
    assert main.snapshot_id == start
    with pytest.raises(PySparkException, match=r"InvalidArgumentError: .*'missing'"):
        _write(orders(spark, 1), catalog, branch="missing").save("db.orders")


@pytest.mark.slow
def test_a_missing_table_is_created_and_evolves(spark: Any, catalog: SqlCatalog) -> None:
    options = {"create": "true", "partition_by": "bucket(2, id), region", "sort_by": "price desc"}
    _write(orders(spark, 40), catalog, **{"table-property.owner": "us"}, **options).save("db.new")
    table = catalog.load_table("db.new")
    assert [field.name for field in table.spec().fields] == ["id_bucket", "region"]
    assert len(table.sort_order().fields) == 1
    assert (table.properties["owner"], len(order_ids(table))) == ("us", 40)
    more = orders(spark, 1, first=40).withColumn("note", sf.lit("new"))
    _write(more, catalog, schema_mode="evolve").save("db.new")
    assert table.refresh().schema().column_names[-1] == "note"


def test_a_frame_that_does_not_fit_is_refused_before_a_task_runs(
    spark: Any, catalog: SqlCatalog
) -> None:
    catalog.create_table("db.orders", ORDERS)
    never = orders(spark, 1).withColumn("note", sf.raise_error(sf.lit("was run")))
    with pytest.raises(PySparkException, match=r"SchemaMismatchError: .*'note'"):
        _write(never, catalog).save("db.orders")
    with pytest.raises(PySparkException, match=r"CatalogError: there is no table 'db\.missing'"):
        _write(never, catalog).save("db.missing")
    with pytest.raises(PySparkException, match="no option 'colour'"):
        _write(never, catalog, colour="red").save("db.orders")


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_spark_itself_refuses_other_modes(spark: Any, catalog: SqlCatalog, mode: str) -> None:
    with pytest.raises(AnalysisException, match="Append"):
        _write(orders(spark, 1), catalog, mode).save("db.orders")


def test_spark_itself_refuses_partition_by(spark: Any, catalog: SqlCatalog) -> None:
    catalog.create_table("db.orders", ORDERS)
    with pytest.raises(IllegalArgumentException, match="partitioning"):
        _write(orders(spark, 1), catalog).partitionBy("region").save("db.orders")


@pytest.mark.slow
def test_a_failing_task_leaves_nothing(spark: Any, catalog: SqlCatalog, tmp_path: Path) -> None:
    table = catalog.create_table("db.orders", ORDERS)
    before = stored(tmp_path)
    late = orders(spark, 4000, tasks=4).withColumn(
        "price", sf.expr("if(id = 3900, raise_error('bad row'), price)").cast("double")
    )
    with pytest.raises(PySparkException, match="bad row"):
        _write(late, catalog).save("db.orders")
    assert stored(tmp_path) == before
    assert table.refresh().metadata.snapshots == []


def test_abort_after_a_commit_that_may_have_happened_deletes_nothing(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("db.orders", ORDERS)
    frame = orders(spark, 10, tasks=1)
    options = {**_options(catalog), "path": "db.orders"}
    writer = IcestreamWriter(options, frame.schema, overwrite=False)
    answer = writer.write(iter(frame.toArrow().to_batches()))

    def lost(*_: Any, **__: Any) -> Any:
        raise CommitUnknownError("no answer", snapshot_id=1)

    with monkeypatch.context() as patched:
        patched.setattr("icestream.operations.write_operation.WriteOperation.run_files", lost)
        with pytest.raises(CommitUnknownError):
            writer.commit([answer])
    writer.abort([answer])
    writer.commit([answer])
    assert order_ids(table) == list(range(10))
    other = IcestreamWriter(options, frame.schema, overwrite=False)
    done = other.write(iter(frame.toArrow().to_batches()))
    assert [n for n in stored(tmp_path) if "in-flight" in n]
    other.abort([done, None])
    assert len([n for n in stored(tmp_path) if n.endswith(".parquet")]) == 1
    assert not [n for n in stored(tmp_path) if "in-flight" in n]
