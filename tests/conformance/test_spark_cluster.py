"""The suite on a standalone cluster of real processes, and what happens to tables if some die."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.writing import keyed_frame, merge_job
from tests.conformance.cases import Cases
from tests.conformance.engines import Engine, OnSpark, opened
from tests.conformance.pipelined import loads_the_same_as_in_process
from tests.conformance.shipped import bare_python, packed_environment, shipped_round
from tests.conformance.streamed import copies_and_merges_exactly_once
from tests.support.killing_io import AWAKE, FLAG, PATH, STOP, WORKER
from tests.support.loads import make_table, snapshots_of
from tests.support.merges import filled
from tests.support.process import REPOSITORY
from tests.support.spark_cluster import LOOPBACK, SparkCluster, spark_cluster
from tests.support.spark_process import SparkProcess
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import make_catalog

# The first test waits for JVMs, which take long where others work, too. Run by make test-long.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_ROWS = 40_000
# Two applications have room at once.
_SETTINGS = {**LOOPBACK, "spark.executor.memory": "512m", "spark.cores.max": "2"}
_SMALL_FILES = {
    "write__target_file_size_bytes": str(32 << 10),
    "write__parquet__row_group_size_bytes": str(32 << 10),
}
_OF_NEW_TABLE = {
    "write.target-file-size-bytes": str(32 << 10),
    "write.parquet.row-group-size-bytes": str(32 << 10),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers; their Pythons can import the tests."""
    folder = tmp_path_factory.mktemp("cluster")
    path = f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}"
    with spark_cluster(folder, cores=2, env={"PYTHONPATH": path}) as running:
        yield running


@pytest.fixture(scope="module")
def process(cluster: SparkCluster) -> Iterator[SparkProcess]:
    """A session on the cluster."""
    with SparkProcess(master=cluster.url, memory="64MB", config=_SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def engine(process: SparkProcess) -> Engine:
    """The same, as the suite wants it."""
    return OnSpark(process)


class TestSparkCluster(Cases):
    """See `Cases`."""


@pytest.mark.soak
def test_streams_are_exactly_once(
    process: SparkProcess, catalog: SqlCatalog, tmp_path: Path
) -> None:
    copies_and_merges_exactly_once(process, catalog, tmp_path)


def test_a_pipeline_does_the_same_as_in_process(
    process: SparkProcess, cluster: SparkCluster, tmp_path: Path
) -> None:
    loads_the_same_as_in_process(process, tmp_path, master=cluster.url)


def test_a_load_reports_the_memory_of_workers_elsewhere(
    process: SparkProcess, cluster: SparkCluster, catalog: SqlCatalog, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": range(1000)}), tmp_path / "ids.parquet")
    properties = dict(catalog.properties)
    for mode in ("append", "merge"):
        report = process.call(_loaded, properties, str(tmp_path / "ids.parquet"), mode, cluster.url)
        assert report.worker_base_bytes > 50_000_000
        assert report.peak_worker_bytes > report.worker_base_bytes
        assert report.worker_bytes_at_most > report.worker_base_bytes


def _loaded(spark: Any, properties: dict[str, str], path: str, mode: str, master: str) -> Any:
    with opened(properties) as catalog:
        keys = {"keys": "id"} if mode == "merge" else {}
        return ice.load(
            path, "db.ids", catalog=catalog, engine="spark", mode=mode, master=master, **keys
        )


@pytest.fixture
def killing(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog whose tables have an executor killed in the middle of the next write."""
    flag = tmp_path / "kill.flag"
    catalog = make_catalog(tmp_path, **{"py-io-impl": PATH, FLAG: str(flag)})
    flag.touch()
    yield catalog
    catalog.close()


@pytest.mark.parametrize("creates", [False, True], ids=["append", "creation"])
def test_an_executor_that_dies_while_rows_are_appended_costs_none(
    process: SparkProcess, killing: SqlCatalog, tmp_path: Path, creates: bool
) -> None:
    if not creates:
        make_table(killing, **_SMALL_FILES)
    report = process.call(_append, dict(killing.properties), _ROWS)
    assert (tmp_path / "kill.taken").exists()
    assert report.rows_inserted == _ROWS
    table = killing.load_table("db.t")
    ids = table.scan().to_arrow()["id"].to_pylist()
    assert sorted(ids) == list(range(_ROWS))
    assert snapshots_of(table) == [report.snapshot_id]
    assert stored_files(folder_of(table)) == referenced_files(table)


@pytest.mark.parametrize(
    ("mode", "cleans"),
    [
        pytest.param("copy-on-write", True, id="copy-on-write"),
        pytest.param("merge-on-read", False, id="merge-on-read"),
    ],
)
def test_an_executor_that_dies_while_rows_are_merged_changes_none_twice(
    process: SparkProcess, killing: SqlCatalog, tmp_path: Path, mode: str, cleans: bool
) -> None:
    """Its files are deleted by the driver; where that was killed too, they are orphans."""
    parts = [range(n, n + _ROWS // 4) for n in range(0, _ROWS, _ROWS // 4)]
    table = filled(killing, *([(n, 0, f"{n}") for n in part] for part in parts), **_SMALL_FILES)
    report = process.call(_merge, dict(killing.properties), _ROWS, mode, cleans)
    assert (tmp_path / "kill.taken").exists()
    assert (report.rows_updated, report.rows_inserted) == (_ROWS // 2, _ROWS // 2)
    found = table.refresh().scan().to_arrow().sort_by("id")
    assert found["id"].to_pylist() == list(range(_ROWS + _ROWS // 2))
    texts = ["new" if n % 2 or n >= _ROWS else f"{n}" for n in range(_ROWS + _ROWS // 2)]
    assert found["text"].to_pylist() == texts
    assert len(snapshots_of(table)) == 5
    assert snapshots_of(table)[-1] == report.snapshot_id
    named, there = referenced_files(table), stored_files(folder_of(table))
    assert named <= there
    if not cleans:
        orphans = ice.orphans(table, older_than=0, delete=True)
        assert {file.path.removeprefix("file://") for file in orphans.files} == there - named
    assert (there == named) == cleans
    assert stored_files(folder_of(table)) == named


@pytest.mark.soak
def test_workers_that_die_while_rows_are_written_and_merged_cost_none(
    killing: SqlCatalog, tmp_path: Path
) -> None:
    """Two of three: each with its executor, and for good."""
    flag = Path(killing.properties[FLAG])
    table = make_table(killing, **_SMALL_FILES)
    properties = dict(killing.properties)
    with (
        spark_cluster(tmp_path / "three", workers=3, env={"PYTHONPATH": str(REPOSITORY)}) as three,
        SparkProcess(master=three.url, memory="64MB", config=_SETTINGS) as process,
    ):
        for alive, job in ((2, _append), (1, _merge)):
            flag.write_text(WORKER)
            more = () if job is _append else ("copy-on-write", True)
            process.call(job, properties, _ROWS, *more)
            assert not flag.exists()
            assert sum(worker.poll() is None for worker in three.workers) == alive
    found = table.refresh().scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(_ROWS + _ROWS // 2))
    assert found["text"].to_pylist().count("new") == _ROWS
    assert len(snapshots_of(table)) == 2
    assert stored_files(folder_of(table)) == referenced_files(table)


def _append(spark: Any, properties: dict[str, str], rows: int) -> Any:
    """In the session's process."""
    frame = spark.range(0, rows, 1, 4).selectExpr("id", "id % 7 as part", "string(id) as text")
    catalog = opened(properties)
    try:
        return ice_spark.append(
            frame, "db.t", catalog=catalog, create=True, table_properties=_OF_NEW_TABLE
        )
    finally:
        catalog.close()


def _merge(spark: Any, properties: dict[str, str], rows: int, mode: str, cleans: bool) -> Any:
    """Every second row that is there, and half as many that are not."""
    # So few rows would be merged by one task.
    keyed_frame._FEW_BYTES = merge_job._FEW_ROWS = -1
    if not cleans:
        import_module("icestream.spark.writing.table_write").delete_write = lambda *_, **__: None
    ids = spark.range(0, rows + rows // 2, 1, 4).where(f"id % 2 = 1 or id >= {rows}")
    frame = ids.selectExpr("id", "0L as part", "'new' as text")
    catalog = opened(properties)
    try:
        return ice_spark.merge(frame, "db.t", catalog=catalog, on="id", write_mode=mode)
    finally:
        catalog.close()


@pytest.mark.soak
@pytest.mark.parametrize("packed", [False, True], ids=["code", "environment"])
def test_executors_without_icestream_get_it_from_the_driver(
    cluster: SparkCluster, catalog: SqlCatalog, tmp_path: Path, packed: bool
) -> None:
    make_table(catalog)
    archive = str(packed_environment(tmp_path / "packed")) if packed else None
    python = str(bare_python(tmp_path / "bare"))
    with SparkProcess(
        master=cluster.url,
        memory="64MB",
        config={**_SETTINGS, "spark.task.maxFailures": "1"},
        env={"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable},
    ) as process:
        failure, ids = process.call(
            shipped_round, dict(catalog.properties), "db.t", environment=archive
        )
    assert "TaskFailedError" in failure
    assert "No module named 'icestream'" in failure
    assert ids == list(range(300))


@pytest.mark.soak
@pytest.mark.parametrize("way", ["helper", "format"])
def test_the_slower_of_two_attempts_at_the_same_rows_adds_nothing(
    cluster: SparkCluster, catalog: SqlCatalog, tmp_path: Path, way: str
) -> None:
    """Speculation: Spark starts a task a second time, and kills the one that is later."""
    table = make_table(catalog, **_SMALL_FILES)
    properties = dict(catalog.properties)
    with SparkProcess(
        master=cluster.url, memory="64MB", config={**_SETTINGS, **_SPECULATION}
    ) as process:
        process.call(_append_speculatively, properties, str(tmp_path / "attempts"), way)
    attempts = sorted(path.name for path in (tmp_path / "attempts").iterdir())
    assert attempts == ["0-0", "0-1", "1-0", "2-0", "3-0"], "the first task ran twice"
    ids = table.refresh().scan().to_arrow()["id"].to_pylist()
    assert sorted(ids) == list(range(_ROWS))
    assert len(snapshots_of(table)) == 1
    ice.orphans(table, older_than=0, delete=True)
    assert stored_files(folder_of(table)) == referenced_files(table)


@pytest.mark.soak
def test_the_slower_of_two_attempts_at_the_same_matches_changes_nothing(
    cluster: SparkCluster, killing: SqlCatalog
) -> None:
    flag = Path(killing.properties[FLAG])
    flag.write_text(STOP)
    table = filled(killing, [(n, 0, f"{n}") for n in range(_ROWS)], **_SMALL_FILES)
    with SparkProcess(
        master=cluster.url, memory="64MB", config={**_SETTINGS, **_SPECULATION}
    ) as process:
        process.call(_merge, dict(killing.properties), _ROWS, "copy-on-write", True)
        assert not flag.exists()
        assert not flag.with_suffix(AWAKE).exists(), "nobody waited for the task that stopped"
    found = table.refresh().scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(_ROWS + _ROWS // 2))
    assert found["text"].to_pylist().count("new") == _ROWS
    assert len(snapshots_of(table)) == 2
    ice.orphans(table, older_than=0, delete=True)
    assert stored_files(folder_of(table)) == referenced_files(table)


_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}


def _append_speculatively(spark: Any, properties: dict[str, str], attempts: str, way: str) -> None:
    Path(attempts).mkdir()
    frame = spark.range(0, _ROWS, 1, 4).selectExpr("id", "id % 7 as part", "string(id) as text")
    slow = frame.mapInArrow(_Slow(attempts), frame.schema)
    catalog = opened(properties)
    try:
        if way == "helper":
            ice_spark.append(slow, "db.t", catalog=catalog)
            return
        writer = slow.write.format("icestream").mode("append").option("catalog", "tests")
        for name, value in properties.items():
            writer = writer.option(f"catalog.{name}", value)
        writer.save("db.t")
    finally:
        catalog.close()


class _Slow:
    """Rows as they are; the first attempt of the first task stops for long after most of them."""

    def __init__(self, attempts: str) -> None:
        self._attempts = attempts

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        name = f"{context.partitionId()}-{context.attemptNumber()}"
        (Path(self._attempts) / name).touch()
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if name == "0-0":
                time.sleep(60)
            yield batch.slice(half)
