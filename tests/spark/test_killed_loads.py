"""A load whose driver is killed: the table is whole all the time, and exact in the end."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.killed_spark_load import STEPS, KilledDriver, load
from tests.support.load_cases import orders
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import make_catalog

# A driver of its own for each: run by make test-long.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_ROWS = 60_000
_FILES = 3
_CHANGED = range(_ROWS - 20_000, _ROWS + 20_000)
_BEFORE = {number: number * 0.5 for number in range(_ROWS)}
_WANTED = _BEFORE | dict.fromkeys(_CHANGED, 7.0)
_RANDOM = random.Random(6)
# Shares of the time that the load takes when nobody kills it: one at random in each tenth.
_MOMENTS = [(tenth + _RANDOM.random()) / 10 for tenth in range(10)]
_SOON = ("after files are written", "after the commit")
_TRIES = 3  # a load may be done sooner than the one that was timed
_SOONER = 0.8


def _prepare(folder: Path) -> SqlCatalog:
    """Orders in some files, and changes to some of them in others."""
    folder.mkdir(exist_ok=True)
    catalog = make_catalog(folder)
    table = catalog.create_table("db.t", orders(0, 1).schema)
    for first in range(0, _ROWS, _ROWS // _FILES):
        ice.append(table, orders(first, _ROWS // _FILES))
    (folder / "changes").mkdir()
    for number, first in enumerate(_CHANGED[:: len(_CHANGED) // 2]):
        price = pa.array([7.0] * (len(_CHANGED) // 2))
        changed = orders(first, len(_CHANGED) // 2, price=price)
        pq.write_table(changed, folder / "changes" / f"{number}.parquet")
    return catalog


def _rows(table: Table) -> dict[int, float]:
    read = table.scan().to_arrow()
    rows = dict(zip(read["id"].to_pylist(), read["price"].to_pylist(), strict=True))
    assert len(rows) == read.num_rows, "a key is there twice"
    return rows


def _check_whole(table: Table) -> None:
    """All snapshots can be read, and what they name is there."""
    assert referenced_files(table) <= stored_files(folder_of(table))
    for entry in table.metadata.snapshot_log:
        assert table.scan(snapshot_id=entry.snapshot_id).count() >= _ROWS // _FILES


def _check_taken_up(folder: Path, catalog: SqlCatalog, spark: Any) -> None:
    """What the kill has left is a table before or after the merge; the next run settles it."""
    table = catalog.load_table("db.t")
    _check_whole(table)
    rows = _rows(table)
    assert rows in (_BEFORE, _WANTED)
    assert len(table.metadata.snapshots) == _FILES + (rows == _WANTED)
    report = load(folder, "db.t", catalog, spark)
    assert report.already_committed == (rows == _WANTED)
    assert (report.rows_inserted, report.rows_updated) == (20_000, 20_000)
    _check_whole(table.refresh())
    assert _rows(table) == _WANTED
    assert len(table.metadata.snapshots) == _FILES + 1
    ice.orphans(table, older_than=0, delete=True, only_catalog=True)
    assert stored_files(folder_of(table)) == referenced_files(table)
    assert _rows(table.refresh()) == _WANTED


def _each_step(*soon: str) -> pytest.MarkDecorator:
    marks = {step: () if step in soon else pytest.mark.soak for step in STEPS}
    return pytest.mark.parametrize(
        "step", [pytest.param(step, marks=marks[step]) for step in STEPS]
    )


_steps = _each_step(*_SOON)
_commit_steps = _each_step("after the commit")


@_steps
def test_a_merge_whose_driver_is_killed_is_done_by_the_next_run(
    spark: Any, tmp_path: Path, step: str
) -> None:
    catalog = _prepare(tmp_path)
    try:
        with KilledDriver(tmp_path, "db.t", step) as driver:
            assert driver.ended() == -signal.SIGKILL
            assert driver.left() == [], "the JVM and its workers end with the driver"
        committed = STEPS.index(step) >= STEPS.index("after the commit")
        assert _rows(catalog.load_table("db.t")) == (_WANTED if committed else _BEFORE)
        _check_taken_up(tmp_path, catalog, spark)
    finally:
        catalog.close()


@_commit_steps
def test_a_merge_that_creates_its_table_leaves_all_of_it_or_nothing(
    spark: Any, tmp_path: Path, step: str
) -> None:
    catalog = _prepare(tmp_path)
    wanted = dict.fromkeys(_CHANGED, 7.0)
    try:
        with KilledDriver(tmp_path, "db.new", step) as driver:
            assert driver.ended() == -signal.SIGKILL
            assert driver.left() == []
        committed = STEPS.index(step) >= STEPS.index("after the commit")
        assert catalog.table_exists("db.new") == committed
        report = load(tmp_path, "db.new", catalog, spark)
        assert report.already_committed == committed
        table = catalog.load_table("db.new")
        assert _rows(table) == wanted
        assert len(table.metadata.snapshots) == 1
        ice.orphans(table, older_than=0, delete=True, only_catalog=True)
        assert stored_files(folder_of(table)) == referenced_files(table)
        assert _rows(table.refresh()) == wanted
    finally:
        catalog.close()


@pytest.mark.parametrize("mode", ["append", pytest.param("replace", marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "step",
    [pytest.param("after files are written", marks=pytest.mark.soak), "after the commit"],
)
def test_an_append_or_replace_whose_driver_is_killed_is_done_once_by_the_next_run(
    spark: Any, tmp_path: Path, step: str, mode: Any
) -> None:
    catalog = _prepare(tmp_path)
    added = [(number, 7.0) for number in _CHANGED]
    wanted = sorted(added if mode == "replace" else [*_BEFORE.items(), *added])
    try:
        with KilledDriver(tmp_path, "db.t", step, mode) as driver:
            assert driver.ended() == -signal.SIGKILL
            assert driver.left() == []
        committed = step == "after the commit"
        table = catalog.load_table("db.t")
        assert _pairs(table) == (wanted if committed else sorted(_BEFORE.items()))
        report = load(tmp_path, "db.t", catalog, spark, mode)
        assert report.already_committed == committed
        assert _pairs(table.refresh()) == wanted
        assert len(table.metadata.snapshots) == _FILES + 1
        ice.orphans(table, older_than=0, delete=True, only_catalog=True)
        assert stored_files(folder_of(table)) == referenced_files(table)
    finally:
        catalog.close()


def _pairs(table: Table) -> list[tuple[int, float]]:
    read = table.scan().to_arrow()
    return sorted(zip(read["id"].to_pylist(), read["price"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def whole_seconds(tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long the load takes in a fresh driver that nobody kills."""
    folder = tmp_path_factory.mktemp("whole")
    catalog = _prepare(folder)
    with KilledDriver(folder, "db.t") as driver:
        driver.await_line("ready")
        began = time.monotonic()
        driver.await_line("done")
        seconds = time.monotonic() - began
        assert driver.ended() == 0
        assert driver.left() == []
    assert _rows(catalog.load_table("db.t")) == _WANTED
    catalog.close()
    return seconds


@pytest.mark.soak
@pytest.mark.parametrize("moment", _MOMENTS, ids=[f"{moment:.1%}" for moment in _MOMENTS])
def test_a_merge_whose_driver_is_killed_at_any_time_is_done_by_the_next_run(
    spark: Any, tmp_path: Path, whole_seconds: float, moment: float
) -> None:
    for number in range(_TRIES):
        folder = tmp_path / str(number)
        catalog = _prepare(folder)
        try:
            with KilledDriver(folder, "db.t") as driver:
                driver.await_line("ready")
                time.sleep(moment * whole_seconds * _SOONER**number)
                driver.kill()
                exit_code = driver.ended()
                assert driver.left() == []
            _check_taken_up(folder, catalog, spark)
        finally:
            catalog.close()
        if exit_code == -signal.SIGKILL:
            return
    pytest.fail(f"{_TRIES} times the load was done before it was killed")
