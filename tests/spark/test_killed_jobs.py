"""Python workers, executors and drivers are killed in the middle of every job that changes tables.

Afterwards the rows are those before or after the job, and no file is left that `orphans` misses.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table

import icestream as ice
from tests.support.killed_spark_jobs import (
    BEFORE,
    CLUSTER,
    JOBS,
    SESSION,
    STEPS,
    cluster_variables,
    open_catalog,
    prepare,
    rows_of,
    run_job,
)
from tests.support.killed_spark_load import KilledDriver
from tests.support.killing_tasks import Kill, kills_left, plan_kills
from tests.support.spark_process import SparkProcess
from tests.support.stored import folder_of, referenced_files, stored_files

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkProcess]:
    """A driver with two executors."""
    with SparkProcess(env=cluster_variables(), master=CLUSTER, **SESSION) as running:
        yield running


def _run(spark: object, name: str, folder: str) -> None:
    """In the driver."""
    catalog = open_catalog(Path(folder))
    try:
        run_job(spark, name, catalog, Path(folder))
    finally:
        catalog.close()


def _check_clean(table: Table) -> None:
    rows = rows_of(table)
    ice.orphans(table, older_than=0, delete=True, only_catalog=True)
    assert stored_files(folder_of(table)) == referenced_files(table)
    assert rows_of(table) == rows


@pytest.mark.parametrize("name", JOBS)
def test_workers_and_an_executor_that_die_cost_no_row_and_leave_no_file(
    cluster: SparkProcess, tmp_path: Path, name: str
) -> None:
    catalog, job = prepare(tmp_path, name), JOBS[name]
    try:
        table = catalog.load_table("db.t")
        before = len(table.metadata.snapshots)
        event = job.event
        kills = [
            Kill("worker", event, count=2),
            Kill("executor", event, count=2),
            Kill("worker", event, count=1, delayed=True),
        ]
        plan_kills(tmp_path / "kills", kills)
        cluster.call(_run, name, str(tmp_path))
        assert kills_left(tmp_path / "kills") == []
        assert rows_of(table) == job.after
        assert len(table.metadata.snapshots) == before + job.commits
        assert stored_files(folder_of(table)) == referenced_files(table)
        _check_clean(table)
    finally:
        catalog.close()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", JOBS)
def test_a_driver_that_dies_leaves_all_of_its_change_or_nothing(
    tmp_path: Path, name: str, step: str
) -> None:
    catalog, job = prepare(tmp_path, name), JOBS[name]
    try:
        table = catalog.load_table("db.t")
        before = len(table.metadata.snapshots)
        module = "tests.support.killed_spark_jobs"
        with KilledDriver(tmp_path, name, step, module=module) as driver:
            assert driver.ended() == -signal.SIGKILL
            assert driver.left() == [], "executors and their workers end with the driver"
        committed = step == "after the commit"
        assert rows_of(table) == (job.after if committed else BEFORE)
        assert len(table.metadata.snapshots) == before + (committed and job.commits)
        _check_clean(table)
    finally:
        catalog.close()
