"""The manifests of large tables are read in tasks, and the plans are the driver's own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import FileScanTask, Table
from pyspark import cloudpickle

import icestream as ice
import icestream.spark as ice_spark
from icestream.memory.budget import MemoryBudget
from icestream.operations.kept_tasks import KeptTasks
from icestream.operations.live_files import LiveFiles
from icestream.read.plan.found_files import Statistics
from icestream.read.scan import planned_by
from icestream.read.split import Split
from icestream.spark.tasks import manifest_tasks
from icestream.spark.tasks.manifest_tasks import SparkManifests
from icestream.write.target import WriteTarget
from tests.support.delete_files import commit_equality_deletes, commit_position_deletes
from tests.support.many_files import add_many_files, wide_rows
from tests.support.s3 import LatencyProxy, s3_server
from tests.support.scans import ids_of
from tests.support.spark_orders import ORDERS, order_ids
from tests.support.spark_stream import append_orders
from tests.support.tables import PARTITIONINGS, data_file_paths
from tests.support.vending import Vending, vending_catalog

_MEMORY = 64_000_000


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Lets tasks read any two manifests. The fixture is the log of these jobs."""
    monkeypatch.setattr(manifest_tasks, "_LEAST_BYTES", 0)
    monkeypatch.setattr(manifest_tasks, "_FEWEST_CORES", 1)
    messages: list[str] = []

    class _Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if " tasks" in record.getMessage():
                messages.append(record.getMessage())

    logger = logging.getLogger(manifest_tasks.__name__)
    handler = _Handler()
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "level", logging.DEBUG)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    return messages


def _splits(spark: Any, table: Table, where: str | None = None) -> list[Split]:
    scan = ice.scan(table, where=where, memory=_MEMORY)
    return planned_by(scan, SparkManifests(spark, _MEMORY)).splits()


def _plain(splits: list[Split]) -> list[tuple[Any, ...]]:
    return [
        (s.path, s.rows, s.bytes, s.format, s.filtered, s.deletes, s.constants, s.spec_id, s.id)
        for s in splits
    ]


def _facts(task: FileScanTask, ids: frozenset[int]) -> tuple[Any, ...]:
    tasks = KeptTasks(None, columns=ids, column_sizes=True)
    tasks.add(task)
    file = tasks[0].file
    return (str(file), file.spec_id, sorted(each.file_path for each in task.delete_files))


@pytest.mark.parametrize(
    "partitioning",
    [
        each if each == "evolved_spec" else pytest.param(each, marks=pytest.mark.slow)
        for each in PARTITIONINGS
    ],
)
def test_tasks_make_the_drivers_plan(
    spark: Any, catalog: SqlCatalog, jobs: list[str], partitioning: str
) -> None:
    table = PARTITIONINGS[partitioning](catalog).table
    paths = data_file_paths(table)
    commit_position_deletes(table, {paths[0]: [0]})
    for where in (None, "category = 'red'", "day >= '2024-02-28' and amount > 3", "id = -1"):
        planned = _splits(spark, table, where)
        expected = ice.scan(table, where=where).splits()
        assert _plain(planned) == _plain(expected)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = [m for m in snapshot.manifests(table.io) if m.content == ManifestContent.DATA]
    assert len(jobs) >= 3 or len(manifests) == 1, "a single manifest is read here"
    assert any(split.deletes for split in _splits(spark, table))


def test_tasks_keep_the_statistics_that_an_operation_needs(
    spark: Any, catalog: SqlCatalog, jobs: list[str]
) -> None:
    table = _many(catalog, 40, 8)
    ids = frozenset({1, 3})
    wanted = Statistics(ids, column_sizes=True)
    target = WriteTarget.of(table)
    here = LiveFiles(target, "main", MemoryBudget(_MEMORY))
    there = LiveFiles(target, "main", MemoryBudget(_MEMORY), SparkManifests(spark, _MEMORY))
    found = [_facts(task, ids) for task in there.tasks(there.ask("c0 > 5"), wanted)]
    assert found == [_facts(task, ids) for task in here.tasks(here.ask("c0 > 5"))]
    assert found
    assert len(jobs) == 1


@pytest.mark.slow
def test_every_operation_changes_the_same_rows_as_without_tasks(
    spark: Any, catalog: SqlCatalog, jobs: list[str]
) -> None:
    rows = pa.table({"id": range(12), "n": [1] * 12})
    table = catalog.create_table("db.t", rows.schema, properties={"format-version": "2"})
    for start in range(0, 12, 3):
        ice.append(table, rows.slice(start, 3))
    # The bounds of a file show that all its rows go, so only their statistics decide.
    assert ice_spark.delete(spark, table, "id < 4").rows_deleted == 4
    ice_spark.update(spark, table, {"n": "n + 1"}, where="id >= 9")
    frame = spark.createDataFrame(pa.table({"id": [5, 20], "n": [7, 7]}))
    merged = ice_spark.merge(frame, table, on="id")
    assert (merged.rows_updated, merged.rows_inserted) == (1, 1)
    few = spark.createDataFrame(pa.table({"id": [6], "n": [8]}))
    ice_spark.overwrite(few, table, where="id = 6")
    before = ice.scan(table.refresh()).to_reader().read_all().sort_by("id")
    assert before.to_pydict() == {
        "id": [4, 5, 6, 7, 8, 9, 10, 11, 20],
        "n": [1, 7, 8, 1, 1, 2, 2, 2, 7],
    }
    assert ice_spark.compact(spark, table, where="id < 100").files_removed > 1
    assert ice.scan(table.refresh()).to_reader().read_all().sort_by("id") == before
    assert len(jobs) >= 5


@pytest.mark.slow
def test_a_load_of_a_table_is_planned_in_tasks(
    spark: Any, catalog: SqlCatalog, jobs: list[str]
) -> None:
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    for number in range(3):
        ice.append(table, pa.table({"id": [number]}))
    ice.load({"table": "db.t"}, "db.copy", catalog=catalog, spark=spark, state="", create=True)
    assert sorted(ids_of(ice.scan(catalog.load_table("db.copy")))) == [0, 1, 2]
    assert jobs


@pytest.mark.parametrize(
    "damage", ["truncated", *(pytest.param(d, marks=pytest.mark.slow) for d in ("noise", "gone"))]
)
def test_a_damaged_manifest_is_refused_as_on_the_driver(
    spark: Any, catalog: SqlCatalog, jobs: list[str], damage: str
) -> None:
    table = _many(catalog, 20, 5)
    file = Path(_manifest(table, 2).removeprefix("file://"))
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(content[:-40] if damage == "truncated" else b"x" * len(content))
    with pytest.raises(ice.IcestreamError) as expected:
        ice.scan(table).splits()
    with pytest.raises(type(expected.value)) as caught:
        _splits(spark, table)
    assert str(caught.value) == str(expected.value)
    assert caught.value.path == expected.value.path  # type: ignore[attr-defined]
    assert jobs


def test_equality_deletes_are_refused_as_on_the_driver(
    spark: Any, catalog: SqlCatalog, jobs: list[str]
) -> None:
    table = catalog.create_table(
        "db.t", pa.schema([("id", pa.int64())]), properties={"format-version": "2"}
    )
    for number in range(3):
        ice.append(table, pa.table({"id": [number]}))
    commit_equality_deletes(table, ["id"], [{"id": 1}])
    with pytest.raises(ice.UnsupportedFeatureError, match="equality deletes"):
        _splits(spark, table)


def test_answers_that_would_not_fit_are_fetched_in_several_jobs(
    spark: Any, catalog: SqlCatalog, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _many(catalog, 100, 10)
    monkeypatch.setattr(manifest_tasks, "_WAVE_SHARE", _MEMORY // 4_000)
    budget = MemoryBudget(_MEMORY)
    scan = planned_by(ice.scan(table, memory=budget), SparkManifests(spark, _MEMORY))
    assert _plain(scan.splits()) == _plain(ice.scan(table).splits())
    assert 2 <= len(jobs) <= 5
    assert budget.held_bytes == 0
    assert budget.peak_bytes < 1_000_000


def test_a_plan_that_is_given_up_returns_its_memory(
    spark: Any, catalog: SqlCatalog, jobs: list[str]
) -> None:
    table = _many(catalog, 40, 10)
    budget = MemoryBudget(_MEMORY)
    splits = planned_by(
        ice.scan(table, memory=budget), SparkManifests(spark, _MEMORY)
    ).iter_splits()
    next(splits)
    assert budget.held_bytes
    splits.close()  # type: ignore[attr-defined]
    assert budget.held_bytes == 0


def test_few_manifests_are_read_without_a_job(
    spark: Any, catalog: SqlCatalog, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _many(catalog, 40, 10)
    monkeypatch.setattr(manifest_tasks, "_LEAST_BYTES", 1 << 20)
    assert len(_splits(spark, table)) == 40
    assert not jobs


def test_local_manifests_are_not_read_on_other_machines(
    spark: Any, catalog: SqlCatalog, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _many(catalog, 40, 10)
    monkeypatch.setattr(manifest_tasks, "runs_here", lambda _: False)
    assert len(_splits(spark, table)) == 40
    assert not jobs


def test_tasks_that_read_manifests_get_no_secrets_of_the_catalog(
    spark: Any, catalog: SqlCatalog, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _many(catalog, 20, 5)
    table.io.properties["token"] = "secret-of-the-catalog"
    sent: list[bytes] = []
    real = manifest_tasks.map_shares

    def recorded(spark: Any, shares: Any, work: Any, *more: Any, **options: Any) -> Any:
        sent.extend([cloudpickle.dumps(work), *shares])
        return real(spark, shares, work, *more, **options)

    monkeypatch.setattr(manifest_tasks, "map_shares", recorded)
    assert len(_splits(spark, table)) == 20
    assert sent
    assert not any(b"secret-of-the-catalog" in each for each in sent)
    assert max(map(len, sent)) < 20_000


@pytest.fixture(scope="module")
def store() -> Iterator[LatencyProxy]:
    """An S3 server behind a proxy that answers `ExpiredToken`."""
    with s3_server() as url, LatencyProxy(url) as proxy:
        yield proxy


@pytest.fixture
def vending(store: LatencyProxy, tmp_path: Path) -> Iterator[Vending]:
    with vending_catalog(tmp_path, store) as made:
        made.server.backend.create_table("db.t", ORDERS)
        yield made


@pytest.mark.slow
def test_planning_begins_again_if_credentials_expire(
    spark: Any, vending: Vending, jobs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in (0, 10):
        append_orders(vending.server.backend.load_table("db.t"), first, first + 10)
    real = manifest_tasks.map_shares
    started: list[int] = []

    def map_shares(*arguments: Any, **options: Any) -> Any:
        if not started:
            vending.store.expire_after(0)
        started.append(vending.vended)
        return real(*arguments, **options)

    def vend() -> dict[str, str]:
        if started:
            vending.store.expire_after(None)
        return vending.vend()

    vending.server.vended = vend
    monkeypatch.setattr(manifest_tasks, "map_shares", map_shares)
    frame = ice_spark.read(spark, "db.t", catalog=vending.catalog)
    assert sorted(row.id for row in frame.select("id").collect()) == list(range(20))
    assert len(started) == 2
    assert started[1] > started[0]
    assert order_ids(vending.table()) == list(range(20))


def _many(catalog: SqlCatalog, count: int, per_manifest: int) -> Table:
    rows = wide_rows(4)
    table = catalog.create_table("db.t", rows.schema, properties={"format-version": "2"})
    ice.append(table, rows)
    return add_many_files(table, count, per_manifest=per_manifest)


def _manifest(table: Table, number: int) -> str:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(table.io)
    return [m.manifest_path for m in manifests if m.content == ManifestContent.DATA][number]
