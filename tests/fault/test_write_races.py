"""Threads and processes that write to one table at once, and one that is killed."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.support.loads import (
    BY_PART,
    batch,
    head_of,
    ids,
    ids_of,
    listing,
    make_table,
    markers_of,
    rows_of,
    snapshots_of,
    summary_of,
)
from tests.support.process import REPOSITORY
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import make_catalog

_QUICK = {"commit__retry__min_wait_ms": "2", "commit__retry__max_wait_ms": "50"}
_LOADS = 4


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


def _left_behind(catalog: SqlCatalog, name: str = "db.t") -> set[str]:
    """Files that the table does not refer to; the JSON of lost commits is PyIceberg's."""
    table = catalog.load_table(name)
    unused = stored_files(folder_of(table)) - referenced_files(table)
    return {path for path in unused if not path.endswith(".metadata.json")}


def _together(*actions: Callable[[], Any]) -> list[Any]:
    """Run actions in threads that start at the same time; raise what they raise."""
    barrier = threading.Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:
        barrier.wait()
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


@pytest.mark.parametrize("shared", [True, False], ids=["one table object", "objects of their own"])
def test_threads_that_append_lose_no_row(catalog: SqlCatalog, shared: bool) -> None:
    table = make_table(catalog, **_QUICK)

    def appender(number: int) -> Callable[[], int]:
        mine = table if shared else catalog.load_table("db.t")

        def append() -> int:
            starts = [1000 * number + 10 * n for n in range(_LOADS)]
            reports = [ice.append(mine, ids(start, start + 10)) for start in starts]
            return sum(report.commit_attempts for report in reports)

        return append

    attempts = _together(*(appender(number) for number in range(4)))
    assert ids_of(table) == [1000 * w + n for w in range(4) for n in range(10 * _LOADS)]
    assert len(snapshots_of(table)) == 4 * _LOADS
    assert sum(attempts) > 4 * _LOADS, "they never met: this showed nothing"
    assert _left_behind(catalog) == set()


@pytest.mark.slow
def test_overwrites_of_one_partition_and_appends_to_others_are_all_as_one_after_the_other(
    catalog: SqlCatalog,
) -> None:
    """Each overwriter counts a partition up; a lost or doubled update would show."""
    table = make_table(catalog, spec=BY_PART, **_QUICK)
    ice.append(table, batch([(0, 1), (0, 2)]))
    refused, deleted = Counter[int](), Counter[int]()

    def count_up(part: int) -> None:
        mine = catalog.load_table("db.t")
        done = 0
        while done < _LOADS:
            now = next(row[0] for row in rows_of(mine) if row[1] == part)
            new = batch([(now + 1, part)])
            try:
                report = ice.overwrite(mine, new, where=f"part = {part} and id = {now}")
            except ice.CommitConflictError:
                refused[part] += 1
            else:
                done += 1
                deleted[part] += report.rows_deleted

    def add() -> None:
        mine = catalog.load_table("db.t")
        for number in range(_LOADS):
            ice.append(mine, ids(number, number + 1, 100))

    _together(lambda: count_up(1), lambda: count_up(1), lambda: count_up(2), add)
    found = rows_of(table)
    assert sorted(row for row in found if row[1] == 100) == [(n, 100) for n in range(_LOADS)]
    assert [row for row in found if row[1] == 2] == [(_LOADS, 2)]
    assert refused[2] == 0  # nobody else touches that partition
    # Of two that read the same number, the later one may find its row gone before it even begins:
    # then it only adds one. Two that replaced the same row would have reported it deleted twice.
    of_one = [row for row in found if row[1] == 1]
    assert len(of_one) == 1 + 2 * _LOADS - deleted[1]
    assert deleted[2] == _LOADS
    assert _left_behind(catalog) == set()


def test_two_branches_are_written_by_threads(catalog: SqlCatalog) -> None:
    table = make_table(catalog, **_QUICK)
    start = ice.append(table, ids(0, 1)).snapshot_id
    assert start is not None
    table.manage_snapshots().create_branch(start, "a").create_branch(start, "b").commit()

    def append(branch: str) -> None:
        mine = catalog.load_table("db.t")
        for number in range(1, _LOADS + 1):
            ice.append(mine, ids(number, number + 1), branch=branch, load_id=str(number))

    _together(lambda: append("a"), lambda: append("b"), lambda: append("main"))
    for branch in ("a", "b", "main"):
        assert ids_of(table, branch=branch) == list(range(_LOADS + 1))
    assert _left_behind(catalog) == set()


def _load_all(folder: str) -> list[bool]:
    """Runs in a process of its own: every load of the list, as each of its peers does."""
    catalog = make_catalog(Path(folder))
    table = catalog.load_table("db.t")
    reports = [
        ice.append(table, ids(10 * n, 10 * n + 10), load_id=f"load {n}") for n in range(_LOADS)
    ]
    catalog.close()
    return [report.already_committed for report in reports]


def test_processes_that_race_with_the_same_load_ids_land_each_once(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = make_table(catalog, **_QUICK)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        answers = list(pool.map(_load_all, [str(tmp_path)] * 2))
    assert ids_of(table) == list(range(10 * _LOADS))
    assert len(snapshots_of(table)) == _LOADS
    for load in zip(*answers, strict=True):
        assert sorted(load) == [False, True]
    assert _left_behind(catalog) == set()


_KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
import pyarrow as pa
import icestream as ice
from tests.support.tables import make_catalog

table = make_catalog(Path(sys.argv[1])).load_table("db.t")

def stream():
    random = np.random.default_rng(1)
    folder = Path(table.location().removeprefix("file://"), "data")
    before = len(list(folder.iterdir()))
    while True:
        yield pa.record_batch({"id": pa.array(random.integers(100, 2**60, 5000))})
        if len(list(folder.iterdir())) > before + 3:
            os.kill(os.getpid(), signal.SIGKILL)

ice.append(table, stream(), load_id="killed")
"""


def test_a_killed_append_leaves_the_table_alone_and_says_what_it_left(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    table = make_table(
        catalog,
        write__target_file_size_bytes="50000",
        write__parquet__compression_codec="uncompressed",
    )
    ice.append(table, ids(0, 3))
    before, head = listing(table), head_of(table).snapshot_id
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)], cwd=REPOSITORY, check=False, timeout=100
    )
    assert killed.returncode == -9
    assert ids_of(table) == [0, 1, 2]
    assert head_of(table).snapshot_id == head
    left = listing(table) - before
    (marker,) = markers_of(table)
    facts = json.loads((folder_of(table) / marker).read_text())
    assert facts["table-uuid"] == str(table.metadata.table_uuid)
    assert facts["table-location"] == table.location()
    assert facts["operation"] == "append"
    assert len(left) > 3
    assert all(facts["write-id"] in name for name in left)
    report = ice.append(table, ids(3, 4), load_id="killed")
    assert not report.already_committed
    assert summary_of(table)["total-records"] == "4"
