"""A data frame becomes one snapshot: written by tasks, committed by the caller."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    DoubleType,
    FixedType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)
from pyspark import InheritableThread
from pyspark.sql import functions as sf

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.tasks.task_notes import driver_error
from icestream.spark.writing import written_frame
from tests.support.loads import listing

ORDERS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "price", DoubleType()),
)


def _frame(spark: Any, rows: int, tasks: int = 3) -> Any:
    ids = spark.range(rows, numPartitions=tasks)
    return ids.select(
        "id",
        sf.concat(sf.lit("r"), sf.col("id") % 4).alias("region"),
        (sf.col("id") / 8).alias("price"),
    )


def _ids(table: Table) -> list[int]:
    return sorted(n for batch in ice.scan(table) for n in batch["id"].to_pylist())


def _stored(folder: Path) -> set[str]:
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name for name in names if not name.endswith((".metadata.json", ".db", ".db-journal"))}


def test_a_frame_of_several_tasks_is_one_snapshot(spark, catalog: SqlCatalog, tmp_path):
    table = catalog.create_table("db.orders", ORDERS)
    report = ice_spark.append(
        _frame(spark, 1000), "db.orders", catalog=catalog, properties={"by": "spark"}
    )
    table.refresh()
    assert _ids(table) == list(range(1000))
    (snapshot,) = table.metadata.snapshots
    assert snapshot.snapshot_id == report.snapshot_id
    assert snapshot.summary["by"] == "spark"
    assert (report.rows_inserted, report.files_added) == (1000, 3)
    assert 0 < report.peak_bytes_held <= report.memory_limit_bytes == 64_000_000
    assert 50_000_000 < report.worker_base_bytes < report.worker_peak_bytes
    assert not [name for name in _stored(tmp_path) if "in-flight" in name]


def test_a_write_whose_tasks_saw_credentials_expire_begins_again_with_fresh_ones(
    spark, catalog: SqlCatalog, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    table = catalog.create_table("db.orders", ORDERS)
    tries: list[str] = []

    def run(rows: Any, planned: Any) -> Any:
        tries.append(planned.target.write_id)
        if len(tries) > 1:
            return real(rows, planned)
        failing = _Failing(planned.task)
        try:
            rows.frame.mapInArrow(failing, "result binary").collect()
        except Exception as error:
            raise driver_error(error, what="writing") from error
        raise AssertionError("not reached")

    real = written_frame._run
    monkeypatch.setattr(written_frame, "_run", run)
    report = ice_spark.append(_frame(spark, 10), "db.orders", catalog=catalog)
    assert report.rows_inserted == 10
    assert len(set(tries)) == 2
    assert _ids(table.refresh()) == list(range(10))


class _Failing:
    """In a task: what a store that has enough of its keys does to it."""

    def __init__(self, task: Any) -> None:
        self.task = task

    def __call__(self, batches: Any) -> Any:
        from icestream.spark.tasks.task_notes import note_error

        with note_error():
            raise ice.CredentialsExpiredError("too old", path="s3://bucket/a")
        yield


def test_a_bucketed_table_gets_its_partitions_from_every_task(spark, catalog: SqlCatalog):
    field = PartitionField(1, 1000, BucketTransform(4), "bucket")
    table = catalog.create_table("db.orders", ORDERS, partition_spec=PartitionSpec(field))
    ice_spark.append(_frame(spark, 400, tasks=2), table)
    assert _ids(table) == list(range(400))
    assert {task.file.partition[0] for task in table.scan().plan_files()} == {0, 1, 2, 3}


def test_the_schema_evolves_in_the_same_commit(spark, catalog: SqlCatalog):
    table = catalog.create_table("db.orders", ORDERS)
    frame = _frame(spark, 10).withColumn("note", sf.lit("new"))
    with pytest.raises(ice.SchemaMismatchError, match="note"):
        ice_spark.append(frame, table)
    ice_spark.append(frame, table, schema_mode="evolve")
    assert len(table.metadata.snapshots) == 1
    rows = table.scan().to_arrow()
    assert rows["note"].to_pylist() == ["new"] * 10
    report = ice_spark.append(frame.withColumn("more", sf.lit(1)), table, schema_mode="discard")
    assert report.rows_inserted == 10
    assert "more" not in table.schema().column_names


def test_a_second_load_with_the_same_id_runs_no_job(spark, catalog: SqlCatalog):
    table = catalog.create_table("db.orders", ORDERS)
    first = ice_spark.append(_frame(spark, 50), table, load_id="monday")
    unreadable = spark.range(1).select(sf.raise_error(sf.lit("was run")).alias("id"))
    second = ice_spark.append(unreadable, table, load_id="monday")
    assert second.already_committed
    assert (second.snapshot_id, second.rows_inserted) == (first.snapshot_id, 50)
    assert _ids(table) == list(range(50))


def test_a_failing_task_leaves_no_file_behind(spark, catalog: SqlCatalog, tmp_path):
    table = catalog.create_table("db.orders", ORDERS)
    before = _stored(tmp_path)

    def fail_late(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch["id"][0].as_py() >= 300:
                raise RuntimeError("the third task fails")
            yield batch

    frame = _frame(spark, 400, tasks=4).mapInArrow(
        fail_late, "id long, region string, price double"
    )
    with pytest.raises(ice.TaskFailedError, match="the third task fails"):
        ice_spark.append(frame, table)
    assert _stored(tmp_path) == before
    assert table.refresh().metadata.snapshots == []


def test_text_becomes_uuids_and_binary_fixed_bytes(spark, catalog: SqlCatalog):
    schema = Schema(
        NestedField(1, "id", UUIDType()),
        NestedField(2, "code", FixedType(3)),
        NestedField(3, "at", TimestamptzType()),
    )
    table = catalog.create_table("db.typed", schema)
    key = uuid.uuid4()
    frame = spark.sql(
        f"select '{key}' as id, cast('abc' as binary) as code, "
        "timestamp'2026-11-16 01:02:03Z' as at union all select null, null, null"
    )
    ice_spark.append(frame, table)
    rows = table.scan().to_arrow().sort_by("code").to_pylist()
    assert [row["code"] for row in rows] == [b"abc", None]
    assert [row["id"] for row in rows] in ([key, None], [key.bytes, None])
    assert rows[0]["at"].isoformat() == "2026-11-16T01:02:03+00:00"


def test_no_such_branch_is_said_before_anything_runs(spark, catalog: SqlCatalog):
    table = catalog.create_table("db.orders", ORDERS)
    with pytest.raises(ice.InvalidArgumentError, match="no branch 'audit'"):
        ice_spark.append(_frame(spark, 5), table, branch="audit")


def _slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for _ in range(10_000):
            time.sleep(0.02)
            yield batch


@pytest.mark.slow
def test_a_write_that_is_interrupted_ends_its_job_and_leaves_nothing(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = "write.target-file-size-bytes", "write.parquet.row-group-size-bytes"
    properties = dict.fromkeys(sizes, "50000")  # files are written while rows still come
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]), properties=properties)
    before = listing(table)
    threads: list[InheritableThread] = []

    def interrupted(answers: Any, *_: object) -> None:
        threads.append(InheritableThread(answers.collect))
        threads[0].start()
        while not any(path.endswith(".parquet") for path in listing(table)):
            time.sleep(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(written_frame, "run_tasks", interrupted)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # the job was cancelled
    with pytest.raises(KeyboardInterrupt):
        ice_spark.append(spark.range(0, 20_000, 1, 2).mapInArrow(_slowly, "id long"), table)
    assert listing(table) == before
    threads[0].join(5)
    assert not threads[0].is_alive()
    assert listing(table) == before
