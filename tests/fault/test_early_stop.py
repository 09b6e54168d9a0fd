"""Whoever stops early leaves no thread, no descriptor, and no further file opened (S2.5)."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.fault.conftest import FILE_ROWS, FILES
from tests.fault.watched_io import settled, watch
from tests.support.leaks import assert_no_leaks, live_threads, open_file_descriptors
from tests.support.process import REPOSITORY

_ORDERS = {
    "task": ice.TaskOrder(),
    "arrival-1": ice.ArrivalOrder(1, max_buffered_batches=2),
    "arrival-4": ice.ArrivalOrder(4, max_buffered_batches=2),
}


# Too little for all files: even threads that run ahead for as long as they can leave some unopened.
_LITTLE = "1MB"


class _ConsumerError(Exception):
    """The consumer's own error."""


def _by_break(scan: ice.Scan) -> None:
    for _ in scan:
        break


def _by_closing_the_scan(scan: ice.Scan) -> None:
    batches = iter(scan)
    next(batches)
    scan.close()
    assert next(batches, None) is None


def _by_closing_the_iterator(scan: ice.Scan) -> None:
    batches = iter(scan)
    next(batches)
    batches.close()  # type: ignore[attr-defined]


def _by_leaving_a_with_block(scan: ice.Scan) -> None:
    with scan:
        batches = iter(scan)
        next(batches)


def _by_an_exception(scan: ice.Scan) -> None:
    def consume() -> None:
        for _ in scan:
            raise _ConsumerError

    with pytest.raises(_ConsumerError):
        consume()


def _by_a_keyboard_interrupt(scan: ice.Scan) -> None:
    def consume() -> None:
        for _ in scan:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        consume()


def _by_forgetting_the_iterator(scan: ice.Scan) -> None:
    batches = iter(scan)
    next(batches)
    del batches
    gc.collect()


def _by_forgetting_a_reader(scan: ice.Scan) -> None:
    reader = scan.to_reader()
    reader.read_next_batch()
    del reader
    gc.collect()


def _by_closing_a_reader(scan: ice.Scan) -> None:
    reader = scan.to_reader()
    reader.read_next_batch()
    reader.close()


def _by_a_limit_in_duckdb(scan: ice.Scan) -> None:
    with duckdb.connect() as connection:
        connection.register("scanned", scan.to_reader())
        assert len(connection.execute("select * from scanned limit 5").fetchall()) == 5
        connection.unregister("scanned")
    gc.collect()


_WAYS: dict[str, Callable[[ice.Scan], None]] = {
    name.removeprefix("_by_"): way for name, way in list(globals().items()) if name[:4] == "_by_"
}


@pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS.keys())
@pytest.mark.parametrize("way", _WAYS.values(), ids=_WAYS.keys())
def test_an_early_stop_ends_threads_closes_files_and_opens_no_more(parquet, way, order):
    _assert_stops(parquet, way, order)


@pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS.keys())
@pytest.mark.parametrize("way", [_by_break, _by_closing_the_scan, _by_forgetting_the_iterator])
def test_an_early_stop_of_orc_files_does_so_too(orc, way, order):
    _assert_stops(orc, way, order)


def _assert_stops(
    table: Table, way: Callable[[ice.Scan], None], order: ice.TaskOrder | ice.ArrivalOrder
) -> None:
    io = watch(table)
    budget = ice.MemoryBudget(_LITTLE)
    scan = ice.scan(table, order=order, batch_size=250, memory=budget)
    scan.splits()  # Planning is over: what is opened from here on is data.
    with assert_no_leaks():
        way(scan)
        opened = len(io.opened)
    assert budget.held_bytes == 0
    assert settled(lambda: len(io.opened), quiet_seconds=0.1) == opened < FILES
    assert not scan.report.finished


@pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS.keys())
def test_a_limit_that_is_reached_ends_threads_closes_files_and_opens_no_more(parquet, order):
    io = watch(parquet)
    budget = ice.MemoryBudget(_LITTLE)
    scan = ice.scan(parquet, order=order, batch_size=250, limit=600, memory=budget)
    scan.splits()
    with assert_no_leaks():
        assert sum(batch.num_rows for batch in scan) == 600
        opened = len(io.opened)
    assert budget.held_bytes == 0
    assert settled(lambda: len(io.opened), quiet_seconds=0.1) == opened < FILES
    assert scan.report.finished


@pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS.keys())
def test_nothing_runs_on_while_the_consumer_looks_at_the_last_batch_of_a_limit(parquet, order):
    io = watch(parquet)
    scan = ice.scan(parquet, order=order, batch_size=250, limit=250)
    scan.splits()
    threads, descriptors = live_threads(), sorted(open_file_descriptors().values())
    batches = iter(scan)
    assert next(batches).num_rows == 250
    opened = len(io.opened)
    assert live_threads() == threads
    assert sorted(open_file_descriptors().values()) == descriptors
    assert settled(lambda: len(io.opened), quiet_seconds=0.1) == opened
    assert next(batches, None) is None


def test_an_iterator_that_was_never_started_opens_nothing(parquet):
    io = watch(parquet)
    scan = ice.scan(parquet)
    with assert_no_leaks():
        batches = iter(scan)
        scan.close()
        with pytest.raises((ice.ScanClosedError, StopIteration)):
            next(batches)
    assert io.opened == []


@settings(max_examples=30, deadline=None)
@given(
    stop_at=st.integers(0, 60),
    streams=st.sampled_from([None, 1, 2, 5]),
    batch_size=st.sampled_from([100, 700, 10_000]),
    file_format=st.sampled_from(["parquet", "orc"]),
    memory=st.sampled_from(["4MB", "64MB"]),
)
def test_a_stop_at_any_batch_leaves_nothing_behind(
    catalog: SqlCatalog, stop_at, streams, batch_size, file_format, memory
):
    table = catalog.load_table(f"db.{file_format}")
    io = watch(table)
    order = ice.TaskOrder() if streams is None else ice.ArrivalOrder(streams)
    budget = ice.MemoryBudget(memory)
    scan = ice.scan(table, order=order, batch_size=batch_size, memory=budget)
    scan.splits()
    seen: list[int] = []
    with assert_no_leaks():
        for number, batch in enumerate(scan):
            if number == stop_at:
                break
            seen.extend(batch.column("id").to_pylist())
        opened = len(io.opened)
    assert len(io.opened) == opened
    assert budget.held_bytes == 0
    assert len(seen) == len(set(seen)) <= FILES * FILE_ROWS
    assert scan.report.finished == (len(seen) == FILES * FILE_ROWS)


_INTERRUPTED = """
import json, os, sys, threading, time
import icestream as ice
from tests.fault.watched_io import watch
from tests.support.catalogs import sqlite_catalog
from tests.support.leaks import open_file_descriptors
from pathlib import Path

database, warehouse, streams = sys.argv[1:]
catalog = sqlite_catalog(Path(database), warehouse=warehouse)
table = catalog.load_table("db.parquet")
io = watch(table)
order = ice.ArrivalOrder(int(streams)) if int(streams) else ice.TaskOrder()
scan = ice.scan(table, order=order)
planned = len(scan.splits())
descriptors = sorted(open_file_descriptors().values())
threads = set(threading.enumerate())

def crawl(path, offset, length):
    os.write(1, b"reading\\n")  # At once: other threads write, too.
    time.sleep(0.5)

io.on_read = crawl
try:
    for batch in scan:
        pass
except KeyboardInterrupt:
    opened = len(io.opened)
    time.sleep(0.7)
    print(json.dumps({
        "threads": [t.name for t in set(threading.enumerate()) - threads],
        "same_descriptors": sorted(open_file_descriptors().values()) == descriptors,
        "opened_later": len(io.opened) - opened,
        "opened_all": opened == planned,
        "finished": scan.report.finished,
    }), flush=True)
"""


@pytest.mark.parametrize(
    "streams", [pytest.param(0, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.slow), 4]
)
def test_ctrl_c_while_waiting_for_slow_storage_stops_everything(catalog, streams):
    database = catalog.properties["uri"].removeprefix("sqlite:///")
    arguments = [database, catalog.properties["warehouse"], str(streams)]
    process = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTED, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "reading\n", process.stderr.read()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    answer = [line for line in output.splitlines() if line.startswith("{")]
    assert answer == [
        '{"threads": [], "same_descriptors": true, "opened_later": 0, '
        '"opened_all": false, "finished": false}'
    ]


@pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS.keys())
def test_a_scan_that_was_stopped_can_be_read_again_from_the_start(parquet, order):
    scan = ice.scan(parquet, order=order, batch_size=250)
    with assert_no_leaks():
        for _ in range(5):
            _by_break(scan)
    assert sorted(_ids(scan)) == list(range(FILES * FILE_ROWS))


def _ids(batches: Iterator[pa.RecordBatch] | ice.Scan) -> list[int]:
    return [value for batch in batches for value in batch.column("id").to_pylist()]
