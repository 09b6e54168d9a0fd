"""Every micro-batch of a stream becomes one snapshot, once, whatever is killed or run again."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

import icestream as ice
import icestream.spark as ice_spark
from icestream.commit.outcome.load_id import batch_load_id
from icestream.errors import StreamError
from icestream.spark.errors import typed
from icestream.spark.streaming.stream_id import QUERY_ID_KEY
from tests.support.process import REPOSITORY
from tests.support.spark_orders import ORDERS, order_ids, stored
from tests.support.spark_stream import Copying, append_orders, write_orders

# Kills the JVM and itself when the first micro-batch is in the table, and Spark does not know yet.
_KILLED = """
import os, signal, sys
from pathlib import Path
import icestream.spark as ice_spark
from icestream.spark.data_source import IcestreamSource
from icestream.spark.streaming.stream_id import QUERY_ID_KEY
from icestream.spark.streaming.stream_sink import IcestreamStreamWriter
from tests.support.catalogs import make_catalog
from tests.support.spark_stream import Copying

spark = ice_spark.session("local[2]")
victims = [spark._jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]

class Writer(IcestreamStreamWriter):
    def commit(self, messages, batchId):
        super().commit(messages, batchId)
        for victim in victims:
            os.kill(victim, signal.SIGKILL)

class Source(IcestreamSource):
    def streamWriter(self, schema, overwrite):
        return Writer(self.options, schema, overwrite, self.defaults)

spark.dataSource.register(Source)
folder = Path(sys.argv[1])
copying = Copying(spark, make_catalog(folder), folder, into="db.copy", stream_id="copy")
copying.run(copying.files())
"""

_END_SECONDS = 90  # also on a busy machine


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """A table of orders with ten rows."""
    made = catalog.create_table("db.orders", ORDERS)
    append_orders(made, 0, 10)
    return made


@pytest.fixture
def copy(catalog: SqlCatalog) -> Table:
    """Where they go."""
    return catalog.create_table("db.copy", ORDERS)


def _error_of(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(StreamingQueryException) as caught:
        call()
    return typed(caught.value)


def _files_below(folder: Path) -> set[str]:
    return {name for name in stored(folder) if name.startswith("warehouse/db/copy/")}


@pytest.mark.slow
def test_a_batch_that_spark_runs_again_is_written_once(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, table: Table, copy: Table
) -> None:
    copying = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="copy")
    copying.run()
    before = _files_below(tmp_path)
    copying.forget_last_batch()
    append_orders(table, 10, 20)
    copying.run()
    assert order_ids(copy) == list(range(20))
    first, second = copy.metadata.snapshots
    for number, snapshot in enumerate((first, second)):
        assert snapshot.summary["icestream.load-id"] == batch_load_id("copy", number)
    added = _files_below(tmp_path) - before
    assert len([name for name in added if name.endswith(".parquet")]) == 1
    assert not [name for name in added if "in-flight" in name]


@pytest.mark.slow
def test_a_driver_that_is_killed_after_the_commit_writes_nothing_twice(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, copy: Table
) -> None:
    write_orders(tmp_path, 0, 10)
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    copying = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="copy")
    assert order_ids(copy) == list(range(10))
    assert list((copying.checkpoint / "offsets").glob("0"))
    assert not list(copying.checkpoint.glob("commits/0"))
    write_orders(tmp_path, 10, 20)
    copying.run(copying.files())
    assert order_ids(copy) == list(range(20))
    assert len(copy.metadata.snapshots) == 2


@pytest.mark.slow
def test_another_query_of_the_same_name_is_refused(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, table: Table, copy: Table
) -> None:
    row = pa.table({"id": [99], "region": ["r"], "price": [1.0]})
    of_first = {QUERY_ID_KEY: "the first query"}
    ice.append(copy, row, load_id=batch_load_id("copy", 7), properties=of_first)
    before = _files_below(tmp_path)
    second = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="copy")
    error = _error_of(second.run)
    assert isinstance(error, StreamError)
    assert "stream-id 'copy' belongs to another query" in str(error)
    assert order_ids(copy) == [99]
    assert _files_below(tmp_path) == before


@pytest.mark.slow
def test_an_empty_micro_batch_makes_no_snapshot(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, table: Table, copy: Table
) -> None:
    copying = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="copy")
    copying.run(copying.source().where("id < 0"))
    assert (copying.checkpoint / "commits" / "0").exists()
    assert copy.refresh().metadata.snapshots == []


@pytest.mark.slow
def test_a_failing_task_leaves_no_rows_behind_and_the_batch_can_be_run_again(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, table: Table, copy: Table
) -> None:
    append_orders(table, 10, 20)
    copying = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="copy")
    before = _files_below(tmp_path)
    wrong = sf.when(sf.col("id") == 15, sf.raise_error(sf.lit("fifteen"))).otherwise(1.0)
    failing = copying.source().withColumn("price", wrong)
    assert "fifteen" in str(_error_of(lambda: copying.run(failing)))
    assert copy.refresh().metadata.snapshots == []
    end = time.monotonic() + _END_SECONDS  # of a task that Spark gave up while it writes
    while _files_below(tmp_path) != before and time.monotonic() < end:
        ice.orphans(copy, older_than=0, delete=True)
        time.sleep(0.1)
    assert _files_below(tmp_path) == before
    copying.run()
    assert order_ids(copy) == list(range(20))


@pytest.mark.slow
def test_micro_batches_are_merged_once(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, table: Table, copy: Table
) -> None:
    append_orders(copy, 5, 15)
    copying = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="merged")
    merging = ice_spark.merge_batches(
        "db.copy", catalog=catalog, on="id", stream_id="merged", properties={"by": "spark"}
    )

    def run() -> None:
        writer = copying.source().withColumn("price", sf.lit(2.0)).writeStream
        writer = writer.option("checkpointLocation", str(copying.checkpoint))
        writer.foreachBatch(merging).trigger(availableNow=True).start().awaitTermination()

    run()
    assert order_ids(copy) == list(range(15))
    assert order_ids(copy, where="price = 2.0") == list(range(10))
    ice.overwrite(copy, pa.table({"id": [3], "region": ["later"], "price": [9.0]}), where="id = 3")
    copying.forget_last_batch()
    run()
    assert order_ids(copy, where="price = 9.0") == [3], "the batch was not merged again"
    merges = [s for s in copy.metadata.snapshots if s.summary["icestream.load-id"]]
    assert [s.summary["icestream.load-id"] for s in merges] == [batch_load_id("merged", 0)]
    assert merges[0].summary["by"] == "spark"
    assert merges[0].summary["icestream.query-id"]


def test_a_query_creates_the_table_that_it_is_told_to(
    spark: Any, catalog: SqlCatalog, tmp_path: Path
) -> None:
    write_orders(tmp_path, 0, 10)
    write_orders(tmp_path, 10, 15)
    copying = Copying(spark, catalog, tmp_path, into="db.new", stream_id="new")
    options = {
        "create": "true",
        "partition-by": "bucket(2, id), region",
        "table-property.owner": "us",
        "property.by": "spark",
    }
    # Two micro-batches: the second finds the table that the first has made.
    copying.run(copying.files(maxFilesPerTrigger="1"), **options)
    table = catalog.load_table("db.new")
    assert order_ids(table) == list(range(15))
    assert [field.name for field in table.spec().fields] == ["id_bucket", "region"]
    assert table.properties["owner"] == "us"
    assert [snapshot.summary["by"] for snapshot in table.metadata.snapshots] == ["spark"] * 2


@pytest.mark.slow
def test_a_branch_gets_the_rows_of_a_query_and_the_table_its_new_column(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, copy: Table
) -> None:
    start = append_orders(copy, 0, 2)
    copy.manage_snapshots().create_branch(start, "audit").commit()
    write_orders(tmp_path, 10, 13)
    copying = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="copy")
    noted = copying.files().withColumn("note", sf.lit("new"))
    copying.run(noted, **{"branch": "audit", "schema-mode": "evolve"})
    assert order_ids(copy) == [0, 1]
    assert order_ids(copy, branch="audit") == [0, 1, 10, 11, 12]
    assert copy.schema().column_names == ["id", "region", "price", "note"]
    assert order_ids(copy, branch="audit", where="note = 'new'") == [10, 11, 12]
