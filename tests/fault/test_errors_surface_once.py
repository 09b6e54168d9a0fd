"""An error in any file reaches the consumer once, with the path, and ends the scan (S2.4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

import icestream as ice
from tests.fault.conftest import FILE_ROWS, FILES
from tests.fault.watched_io import ARROW_THREADS, FailTimes, settled, watch
from tests.support.delete_files import commit_position_deletes
from tests.support.leaks import assert_no_leaks
from tests.support.tables import add_parquet_file, data_file_paths, make_catalog

pytestmark = pytest.mark.timeout(60)

_ORDERS = {
    "task": ice.TaskOrder(),
    "arrival-1": ice.ArrivalOrder(1),
    "arrival-2": ice.ArrivalOrder(2, max_buffered_batches=1),
    "arrival-8": ice.ArrivalOrder(8),
}
_every_order = pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS.keys())
_every_format = pytest.mark.parametrize("file_format", ["parquet", "orc"])


def _local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


@contextmanager
def _missing(table: Table, path: str) -> Iterator[None]:
    file, aside = _local(path), _local(path).with_suffix(".aside")
    file.rename(aside)
    try:
        yield
    finally:
        aside.rename(file)


@contextmanager
def _changed(path: str, change: Callable[[bytes], bytes]) -> Iterator[None]:
    file = _local(path)
    content = file.read_bytes()
    file.write_bytes(change(content))
    try:
        yield
    finally:
        file.write_bytes(content)


def _truncated(table: Table, path: str) -> AbstractContextManager[None]:
    return _changed(path, lambda content: content[: len(content) * 2 // 3])


def _emptied(table: Table, path: str) -> AbstractContextManager[None]:
    return _changed(path, lambda content: b"")


def _overwritten_in_the_middle(table: Table, path: str) -> AbstractContextManager[None]:
    def damage(content: bytes) -> bytes:
        start, end = len(content) // 5, len(content) // 2
        return content[:start] + bytes(end - start) + content[end:]

    return _changed(path, damage)


@contextmanager
def _refused(table: Table, path: str) -> Iterator[None]:
    io = watch(table)
    io.on_open = FailTimes(lambda: PermissionError(13, "not yours", path), paths={path})
    yield
    io.on_open = None


@contextmanager
def _broken_io(table: Table, path: str) -> Iterator[None]:
    io = watch(table)
    io.on_open = FailTimes(lambda: RuntimeError("the FileIO is broken"), paths={path})
    yield
    io.on_open = None


_FAULTS = {
    "missing": (_missing, ice.FileMissingError),
    "truncated": (_truncated, ice.CorruptFileError),
    "emptied": (_emptied, ice.CorruptFileError),
    "overwritten": (_overwritten_in_the_middle, ice.CorruptFileError),
    "refused": (_refused, ice.ReadError),
    "broken FileIO": (_broken_io, ice.ReadError),
}


def _consume(batches: Iterator[pa.RecordBatch]) -> tuple[list[int], Exception | None]:
    """Read until the end or the first error."""
    ids: list[int] = []
    try:
        for batch in batches:
            ids.extend(batch.column("id").to_pylist())
    except Exception as error:
        return ids, error
    return ids, None


@_every_order
@pytest.mark.parametrize("position", [0, FILES // 2, FILES - 1])
@pytest.mark.parametrize("fault", _FAULTS)
@_every_format
def test_an_error_in_one_file_surfaces_once_with_its_path(
    request, file_format, fault, position, order
):
    table = request.getfixturevalue(file_format)
    cause, expected = _FAULTS[fault]
    split = ice.scan(table).splits()[position]
    budget = ice.MemoryBudget("32MB")
    with cause(table, split.path), assert_no_leaks(ignore_threads=ARROW_THREADS):
        scan = ice.scan(table, order=order, batch_size=1_000, memory=budget)
        batches = iter(scan)
        ids, error = _consume(batches)
        assert isinstance(error, expected)
        assert error.path == split.path
        assert error.split == split.id
        assert split.path in str(error)
        # Once: nothing comes after it, neither rows nor the error again.
        assert _consume(batches) == ([], None)
    assert len(ids) == len(set(ids)) < FILES * FILE_ROWS
    if isinstance(order, ice.TaskOrder):
        assert ids == table.scan().to_arrow()["id"].to_pylist()[: len(ids)]
    assert not scan.report.finished
    assert scan.report.retries == 0
    assert scan.report.rows == len(ids)
    assert budget.held_bytes == 0


@_every_order
def test_no_further_file_is_opened_after_an_error(parquet, order):
    io = watch(parquet)
    _, _, bad, *later = [split.path for split in ice.scan(parquet).splits()]

    def fail_or_crawl(path: str) -> None:
        if path == bad:
            raise PermissionError(13, "not yours")
        if path in later:
            time.sleep(0.1)  # A busy machine may hold the failing thread up for a while.

    io.on_open = fail_or_crawl
    with pytest.raises(ice.ReadError, match="not yours"):
        list(ice.scan(parquet, order=order))
    opened = len(io.opened)
    assert settled(lambda: len(io.opened)) == opened < FILES


@_every_order
def test_errors_in_every_file_surface_as_one(parquet, order):
    io = watch(parquet)
    io.on_open = FailTimes(lambda: PermissionError(13, "not yours"))
    with assert_no_leaks(ignore_threads=ARROW_THREADS):
        batches = iter(ice.scan(parquet, order=order))
        ids, error = _consume(batches)
        assert ids == []
        assert isinstance(error, ice.ReadError)
        assert _consume(batches) == ([], None)


@_every_order
@_every_format
def test_an_error_while_pages_are_read_surfaces_once(request, file_format, order):
    table = request.getfixturevalue(file_format)
    io = watch(table)
    bad = ice.scan(table).splits()[3].path
    io.on_read = FailTimes(lambda: PermissionError(13, "not yours"), paths={bad}, after=2)
    with assert_no_leaks(ignore_threads=ARROW_THREADS):
        scan = ice.scan(table, order=order, batch_size=500)
        batches = iter(scan)
        ids, error = _consume(batches)
        assert isinstance(error, ice.ReadError)
        assert error.path == bad
        assert _consume(batches) == ([], None)
    assert len(ids) == len(set(ids)) < FILES * FILE_ROWS
    assert not scan.report.finished


@_every_order
def test_an_error_that_comes_while_the_consumer_is_busy_is_raised_by_its_next_call(parquet, order):
    io = watch(parquet)
    bad = ice.scan(parquet).splits()[1].path
    busy = threading.Event()

    def fail_once_the_consumer_is_busy(path: str) -> None:
        if path == bad:
            busy.wait(30)
            raise PermissionError(13, "not yours")

    io.on_open = fail_once_the_consumer_is_busy
    batches = iter(ice.scan(parquet, order=order))
    next(batches)
    busy.set()
    settled(lambda: len(io.opened))
    _, error = _consume(batches)
    assert isinstance(error, ice.ReadError)
    assert error.path == bad


@_every_order
@pytest.mark.parametrize("fault", ["missing", "truncated"])
def test_an_error_in_a_delete_file_surfaces_once_with_its_path(tmp_path, fault, order):
    catalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    for file in range(4):
        ids = range(file * 1_000, (file + 1) * 1_000)
        add_parquet_file(table, pa.table({"id": pa.array(ids, pa.int64())}))
    deletes = commit_position_deletes(table, {path: [3, 5] for path in data_file_paths(table)})
    cause, expected = _FAULTS[fault]
    with cause(table, deletes[2]), assert_no_leaks(ignore_threads=ARROW_THREADS):
        scan = ice.scan(table, order=order)
        batches = iter(scan)
        _, error = _consume(batches)
        assert isinstance(error, expected)
        assert error.path == deletes[2]
        assert _consume(batches) == ([], None)
    assert not scan.report.finished
    assert sum(batch.num_rows for batch in ice.scan(table, order=order)) == 4 * 998
    catalog.close()


def test_a_table_that_is_whole_again_reads_to_the_end(parquet):
    path = ice.scan(parquet).splits()[5].path
    scan = ice.scan(parquet)
    with _missing(parquet, path), pytest.raises(ice.FileMissingError):
        list(scan)
    assert sum(batch.num_rows for batch in scan) == FILES * FILE_ROWS
    assert scan.report.finished


@_every_order
def test_an_error_reaches_a_reader_of_the_c_stream(parquet, order):
    path = ice.scan(parquet).splits()[4].path
    with _missing(parquet, path), assert_no_leaks(collect_garbage=True):
        reader = pa.RecordBatchReader.from_stream(ice.scan(parquet, order=order))
        with pytest.raises((ice.FileMissingError, OSError, pa.ArrowException), match=path):
            reader.read_all()
        del reader
