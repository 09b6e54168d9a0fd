"""Transient read errors are tried again, and no row is duplicated or lost (S1.9)."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.fault.watched_io import ARROW_THREADS, FailTimes, wait_until, watch
from tests.support.delete_files import commit_deletion_vectors, commit_position_deletes
from tests.support.leaks import assert_no_leaks
from tests.support.tables import (
    commit_files,
    data_file_paths,
    make_catalog,
    upgrade_to_v3,
    write_orc_file,
    write_parquet_file,
)

pytestmark = pytest.mark.timeout(60)

_FILES = 4
_FILE_ROWS = 9_000
_ALL = list(range(_FILES * _FILE_ROWS))
_ERRORS: dict[str, Callable[[], OSError]] = {
    "EIO": lambda: OSError(errno.EIO, "Input/output error"),
    "reset": lambda: ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
    "timeout": lambda: TimeoutError("timed out"),
}
_every_error = pytest.mark.parametrize("error", _ERRORS.values(), ids=_ERRORS.keys())
_every_format = pytest.mark.parametrize("file_format", ["parquet", "orc"])
_every_order = pytest.mark.parametrize(
    "order", [ice.TaskOrder(), ice.ArrivalOrder(4)], ids=["task", "arrival"]
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path_factory.mktemp("retries"))
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    for file_format, write, options in (
        ("parquet", write_parquet_file, {"row_group_rows": 1_000}),
        ("orc", write_orc_file, {"stripe_rows": 1_000}),
    ):
        table = catalog.create_table(f"db.{file_format}", schema)
        written = []
        for file in range(_FILES):
            ids = range(file * _FILE_ROWS, (file + 1) * _FILE_ROWS)
            rows = pa.table({"id": list(ids), "text": [f"row {i}" for i in ids]}, schema=schema)
            written.append(write(table, rows, **options))
        commit_files(table, written)
    yield catalog
    catalog.close()


@pytest.fixture
def table(shared: SqlCatalog, file_format: str) -> Table:
    return shared.load_table(f"db.{file_format}")


def _ids(scan: ice.Scan) -> list[int]:
    return [value for batch in scan for value in batch.column("id").to_pylist()]


def _scan(table: Table, **options: object) -> ice.Scan:
    return ice.scan(table, retry_wait_seconds=0.001, **options)


@_every_order
@_every_error
@_every_format
def test_an_open_that_fails_twice_is_tried_again(table, error, order):
    io = watch(table)
    path = ice.scan(table).splits()[1].path
    io.on_open = fault = FailTimes(error, 2, paths={path})
    scan = _scan(table, order=order)
    assert sorted(_ids(scan)) == _ALL
    assert fault.raised == scan.report.retries == 2
    assert io.opened.count(path) >= 3


@_every_order
@_every_error
@_every_format
def test_a_footer_that_fails_twice_is_tried_again(table, error, order):
    io = watch(table)
    path = ice.scan(table).splits()[2].path
    io.on_read = fault = FailTimes(error, 2, paths={path})
    scan = _scan(table, order=order)
    assert sorted(_ids(scan)) == _ALL
    assert fault.raised == 2
    assert scan.report.retries == 2


@_every_order
@pytest.mark.parametrize("after", [1, 2, 3, 7, 12])
@_every_format
def test_a_read_that_fails_anywhere_in_a_file_is_tried_again(table, after, order):
    io = watch(table)
    path = ice.scan(table).splits()[1].path
    io.on_read = fault = FailTimes(_ERRORS["EIO"], 1, paths={path}, after=after)
    with assert_no_leaks(ignore_threads=ARROW_THREADS):
        scan = _scan(table, order=order, batch_size=300)
        ids = _ids(scan)
    if isinstance(order, ice.TaskOrder):
        assert ids == table.scan().to_arrow()["id"].to_pylist()
    assert sorted(ids) == _ALL
    if table.name()[-1] == "orc":  # What is read ahead by a scanner that is opened anew is dropped.
        assert fault.raised >= scan.report.retries
    else:
        assert fault.raised == scan.report.retries
    assert fault.raised == 1 or after > 1


@_every_order
def test_every_file_may_fail_now_and_then(shared, order):
    table = shared.load_table("db.parquet")
    io = watch(table)
    calls = []

    def now_and_then(path: str, offset: int, length: int) -> None:
        calls.append(path)
        if len(calls) % 37 == 0:
            raise OSError(errno.EIO, "Input/output error")

    io.on_read = now_and_then
    scan = _scan(table, order=order, batch_size=500, retries=5)
    assert sorted(_ids(scan)) == _ALL
    assert scan.report.retries >= len(calls) // 37 > 1


@_every_format
def test_deleted_and_filtered_rows_stay_so_after_a_retry(tmp_path, file_format):
    catalog = make_catalog(tmp_path)
    rows = pa.table({"id": pa.array(range(20_000), pa.int64())})
    table = catalog.create_table("db.t", rows.schema)
    if file_format == "orc":
        commit_files(table, [write_orc_file(table, rows, stripe_rows=1_000)])
    else:
        commit_files(table, [write_parquet_file(table, rows, row_group_rows=5_000)])
    (path,) = data_file_paths(table)
    commit_position_deletes(table, {path: range(0, 20_000, 3)})
    wanted = [i for i in range(20_000) if i % 3 and i >= 1_234]
    hit = 0
    for after in range(1, 8):
        io = watch(table)
        io.on_read = fault = FailTimes(_ERRORS["EIO"], 1, paths={path}, after=after)
        assert _ids(_scan(table, where="id >= 1234", batch_size=700)) == wanted
        hit += fault.raised
    assert hit > 1
    catalog.close()


@pytest.mark.parametrize("kind", ["parquet", "orc", "vectors"])
@pytest.mark.parametrize("hook", ["on_open", "on_read"])
def test_a_delete_file_that_fails_is_tried_again(tmp_path, hook, kind):
    catalog = make_catalog(tmp_path)
    rows = pa.table({"id": pa.array(range(5_000), pa.int64())})
    table = catalog.create_table("db.t", rows.schema)
    commit_files(table, [write_parquet_file(table, rows)])
    (path,) = data_file_paths(table)
    if kind == "vectors":
        upgrade_to_v3(table)
        (delete,) = commit_deletion_vectors(table, {path: range(0, 5_000, 2)})
    else:
        (delete,) = commit_position_deletes(table, {path: range(0, 5_000, 2)}, file_format=kind)
    io = watch(table)
    fault = FailTimes(_ERRORS["reset"], 2, paths={delete})
    setattr(io, hook, fault)
    scan = _scan(table)
    assert _ids(scan) == list(range(1, 5_000, 2))
    assert fault.raised == scan.report.retries == 2
    catalog.close()


@_every_order
@pytest.mark.parametrize("hook", ["on_open", "on_read"])
@_every_format
def test_without_retries_the_first_failure_is_the_last(table, hook, order):
    io = watch(table)
    path = ice.scan(table).splits()[1].path
    fault = FailTimes(_ERRORS["timeout"], 1, paths={path})
    setattr(io, hook, fault)
    with pytest.raises(ice.TransientReadError, match="1 attempts") as caught:
        _ids(_scan(table, order=order, retries=0))
    assert caught.value.path == path
    assert fault.raised == 1


@_every_order
@pytest.mark.parametrize("hook", ["on_open", "on_read"])
@_every_format
def test_retries_that_are_used_up_end_the_scan_with_path_and_split(table, hook, order):
    io = watch(table)
    split = ice.scan(table).splits()[2]
    fault = FailTimes(_ERRORS["EIO"], paths={split.path})
    setattr(io, hook, fault)
    scan = _scan(table, order=order, retries=2)
    with (
        assert_no_leaks(ignore_threads=ARROW_THREADS),
        pytest.raises(ice.TransientReadError, match="3 attempts") as caught,
    ):
        _ids(scan)
    assert (caught.value.path, caught.value.split) == (split.path, split.id)
    assert fault.raised == 3
    assert scan.report.retries == 2
    assert not scan.report.finished


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (lambda: FileNotFoundError(errno.ENOENT, "No such file"), ice.FileMissingError),
        (lambda: PermissionError(errno.EACCES, "Permission denied"), ice.ReadError),
        (lambda: pa.ArrowInvalid("not a Parquet file"), ice.CorruptFileError),
        (lambda: OSError("Unexpected end of stream"), ice.CorruptFileError),
    ],
    ids=["missing", "refused", "invalid", "short"],
)
@_every_format
def test_what_lasts_is_not_tried_again(table, error, kind):
    io = watch(table)
    path = ice.scan(table).splits()[1].path
    io.on_open = fault = FailTimes(error, paths={path})
    scan = _scan(table)
    with pytest.raises(kind) as caught:
        _ids(scan)
    assert caught.value.path == path
    assert fault.raised == 1
    assert scan.report.retries == 0


@_every_format
def test_a_file_that_became_shorter_between_attempts_is_an_error_and_not_fewer_rows(
    table, tmp_path
):
    """What was delivered can't be found again: never end quietly."""
    io = watch(table)
    path = ice.scan(table).splits()[0].path
    other = tmp_path / "shorter"
    rows = pa.table({"id": [0], "text": ["row 0"]}, schema=ice.scan(table).schema)
    write = write_parquet_file if path.endswith("parquet") else write_orc_file
    write(table, rows, path=f"file://{other}")
    local = path.removeprefix("file://")
    seen: list[int] = []

    def swap_then_fail(read: str, offset: int, length: int) -> None:
        if read == path and len(seen) >= 300:
            io.on_read = lambda *_: None
            io.on_open = None
            with open(local, "rb") as file:
                kept.append(file.read())
            with open(local, "wb") as file, open(other, "rb") as short:
                file.write(short.read())
            raise OSError(errno.EIO, "Input/output error")

    kept: list[bytes] = []
    io.on_read = swap_then_fail
    scan = _scan(table, batch_size=100, memory="1MB", order=ice.ArrivalOrder(1, None, 1))
    try:
        with pytest.raises(ice.ReadError) as caught:
            seen.extend(value for batch in scan for value in batch.column("id").to_pylist())
        assert caught.value.path == path
        assert not scan.report.finished
    finally:
        if kept:
            with open(local, "wb") as file:
                file.write(kept[0])
    assert kept


@_every_order
@pytest.mark.parametrize("hook", ["on_open", "on_read"])
@_every_format
def test_closing_during_the_wait_for_a_retry_tries_nothing_again(table, hook, order):
    io = watch(table)
    path = ice.scan(table).splits()[2].path
    fault = FailTimes(_ERRORS["EIO"], paths={path})
    setattr(io, hook, fault)
    scan = ice.scan(table, order=order, retries=2, retry_wait_seconds=1_000, batch_size=500)
    with assert_no_leaks(ignore_threads=ARROW_THREADS):
        _close_when(scan, lambda: fault.raised == 1)
    assert fault.raised == 1
    assert not scan.report.finished


@pytest.mark.parametrize("hook", ["on_open", "on_read"])
def test_closing_during_the_retry_of_a_delete_file_tries_nothing_again(tmp_path, hook):
    catalog = make_catalog(tmp_path)
    rows = pa.table({"id": pa.array(range(5_000), pa.int64())})
    table = catalog.create_table("db.t", rows.schema)
    commit_files(table, [write_parquet_file(table, rows)])
    (path,) = data_file_paths(table)
    (delete,) = commit_position_deletes(table, {path: range(0, 5_000, 2)})
    io = watch(table)
    fault = FailTimes(_ERRORS["EIO"], paths={delete})
    setattr(io, hook, fault)
    scan = ice.scan(table, retries=2, retry_wait_seconds=1_000)
    with assert_no_leaks(ignore_threads=ARROW_THREADS):
        _close_when(scan, lambda: fault.raised == 1)
    assert fault.raised == 1
    catalog.close()


def _close_when(scan: ice.Scan, condition: Callable[[], bool]) -> None:
    """Close a scan that another thread is reading, which must then end without another error."""
    errors: list[Exception] = []

    def consume() -> None:
        try:
            for _ in scan:
                continue
        except Exception as error:
            errors.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    wait_until(condition)
    scan.close()
    consumer.join()
    assert all(isinstance(error, ice.ScanClosedError) for error in errors), errors


def test_footers_read_for_cutting_splits_are_tried_again(shared):
    table = shared.load_table("db.parquet")
    io = watch(table)
    scan = _scan(table)
    io.on_open = fault = FailTimes(_ERRORS["reset"], 2)
    splits = scan.splits(target_bytes=1)
    assert len(splits) == _FILES * _FILE_ROWS // 1_000
    assert fault.raised == 2
    io.on_open = FailTimes(_ERRORS["reset"])
    with pytest.raises(ice.TransientReadError):
        ice.scan(table, retries=1, retry_wait_seconds=0).splits(target_bytes=1)
