"""Many streams become one: in order or as they come, to the end, inside the budget (S2)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby, pairwise

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.fault.watched_io import settled, wait_until, watch
from tests.support.tables import (
    add_orc_file,
    add_parquet_file,
    commit_files,
    make_catalog,
    write_orc_file,
    write_parquet_file,
)

_FILES = 12
_FILE_ROWS = 10_000
_GROUPS = 40
_GROUP_ROWS = 2_000
# Every second row group is ruled out, so that each of the others is a unit of its own.
_KEPT = [i for i in range(_GROUPS * _GROUP_ROWS) if i // _GROUP_ROWS % 2]
_BIG_FILES = 16
_BIG_FILE_ROWS = 250_000
_BIG_FILE_BYTES = 16 * _BIG_FILE_ROWS

_ORDERS = {
    "task": ice.TaskOrder(),
    "arrival-1": ice.ArrivalOrder(1),
    "arrival-3": ice.ArrivalOrder(3),
    "arrival-8": ice.ArrivalOrder(8),
}
_LATER = ("arrival-3",)
_every_order = pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, id=name, marks=pytest.mark.slow if name in _LATER else ())
        for name, order in _ORDERS.items()
    ],
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path_factory.mktemp("order"))
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def _many_files(shared: SqlCatalog) -> str:
    """Parquet and ORC files in one table, ids rising from file to file."""
    schema = pa.schema([("id", pa.int64()), ("file", pa.int64()), ("text", pa.string())])
    table = shared.create_table("db.many_files", schema)
    written = []
    for file in range(_FILES):
        ids = range(file * _FILE_ROWS, (file + 1) * _FILE_ROWS)
        columns = [list(ids), [file] * _FILE_ROWS, [f"row {i}" for i in ids]]
        rows = pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema)
        if file % 3 == 2:
            written.append(write_orc_file(table, rows, stripe_rows=700))
        else:
            written.append(write_parquet_file(table, rows, row_group_rows=2_500))
    commit_files(table, written)
    return "db.many_files"


@pytest.fixture
def many_files(shared: SqlCatalog, _many_files: str) -> Table:
    return shared.load_table(_many_files)


@pytest.fixture(scope="module")
def _one_file(shared: SqlCatalog) -> str:
    ids = range(_GROUPS * _GROUP_ROWS)
    keep = [i // _GROUP_ROWS % 2 for i in ids]
    rows = pa.table({"id": pa.array(ids, pa.int64()), "keep": pa.array(keep, pa.int64())})
    table = shared.create_table("db.one_file", rows.schema)
    add_parquet_file(table, rows, row_group_rows=_GROUP_ROWS)
    return "db.one_file"


@pytest.fixture
def one_file(shared: SqlCatalog, _one_file: str) -> Table:
    """One file of 40 row groups; `keep = 1` matches every second one, which makes 20 units."""
    return shared.load_table(_one_file)


@pytest.fixture(scope="module")
def _big(shared: SqlCatalog) -> str:
    schema = pa.schema([("id", pa.int64()), ("noise", pa.int64())])
    table = shared.create_table("db.big", schema)
    random = np.random.default_rng(7)
    written = []
    for file in range(_BIG_FILES):
        ids = np.arange(file * _BIG_FILE_ROWS, (file + 1) * _BIG_FILE_ROWS)
        noise = random.integers(0, 2**62, _BIG_FILE_ROWS)
        rows = pa.table({"id": ids, "noise": noise}, schema=schema)
        written.append(write_parquet_file(table, rows, use_dictionary=False))
    commit_files(table, written)
    return "db.big"


@pytest.fixture
def big(shared: SqlCatalog, _big: str) -> Table:
    """16 files of 4 MB in memory, 64 MB together."""
    return shared.load_table(_big)


def _ids(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [value for batch in batches for value in batch.column("id").to_pylist()]


def _rows(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


# The order of rows


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_task_order_is_plan_order_whatever_the_number_of_streams(many_files, monkeypatch, cores):
    monkeypatch.setattr("icestream.read.order.cores", lambda: cores)
    scan = ice.scan(many_files)
    assert _ids(scan) == many_files.scan().to_arrow()["id"].to_pylist()
    assert scan.report.streams <= cores


@pytest.mark.parametrize("cores", [1, 8])
def test_task_order_groups_batches_by_file(many_files, monkeypatch, cores):
    monkeypatch.setattr("icestream.read.order.cores", lambda: cores)
    seen = []
    for batch in ice.scan(many_files, batch_size=900):
        (file,) = pc.unique(batch.column("file")).to_pylist()
        seen.append(file)
    planned = [many_files.io.new_input(split.path) for split in ice.scan(many_files).splits()]
    assert len([file for file, _ in groupby(seen)]) == len(planned) == _FILES


@pytest.mark.parametrize("cores", [2, 8])
def test_task_order_keeps_row_order_across_the_row_groups_of_a_file(one_file, monkeypatch, cores):
    monkeypatch.setattr("icestream.read.order.cores", lambda: cores)
    assert _ids(ice.scan(one_file, where="keep = 1", batch_size=300)) == _KEPT


@pytest.mark.parametrize("streams", [1, 2, 3, 8])
def test_arrival_order_gives_every_row_once_in_row_order_inside_each_file(many_files, streams):
    scan = ice.scan(many_files, order=ice.ArrivalOrder(streams), batch_size=900)
    by_file: dict[int, list[int]] = {}
    for batch in scan:
        (file,) = pc.unique(batch.column("file")).to_pylist()
        by_file.setdefault(file, []).extend(batch.column("id").to_pylist())
    assert by_file == {
        file: list(range(file * _FILE_ROWS, (file + 1) * _FILE_ROWS)) for file in range(_FILES)
    }
    assert scan.report.streams <= streams


def test_arrival_order_with_one_stream_is_sequential_and_grouped_by_file(many_files):
    scan = ice.scan(many_files, order=ice.ArrivalOrder(1), batch_size=900)
    assert _ids(scan) == many_files.scan().to_arrow()["id"].to_pylist()
    assert scan.report.streams == 1


@_every_order
def test_rows_of_a_file_that_was_cut_into_splits_stay_in_order(one_file, order):
    splits = ice.scan(one_file).splits(target_bytes=1)
    assert len(splits) == _GROUPS
    assert _ids(ice.read_splits(splits, order=order)) == list(range(_GROUPS * _GROUP_ROWS))


def test_the_limit_is_exact_in_every_order(many_files):
    for order in _ORDERS.values():
        for limit in (1, 999, _FILE_ROWS, 3 * _FILE_ROWS + 1, 2 * _FILES * _FILE_ROWS):
            scan = ice.scan(many_files, order=order, limit=limit)
            ids = _ids(scan)
            assert len(ids) == len(set(ids)) == min(limit, _FILES * _FILE_ROWS)
            assert scan.report.finished


# Nothing stalls


@pytest.mark.timeout(60)
@pytest.mark.parametrize("max_buffered_batches", [1, 2, 16])
@pytest.mark.parametrize("streams", [2, 3, 8])
def test_a_small_buffer_never_stalls_a_file_of_many_units(one_file, streams, max_buffered_batches):
    order = ice.ArrivalOrder(streams, max_buffered_batches=max_buffered_batches)
    for _ in range(5):
        scan = ice.scan(one_file, where="keep = 1", order=order, batch_size=500)
        assert _ids(scan) == _KEPT
        assert scan.report.finished
        assert scan.report.streams <= streams


@pytest.mark.timeout(60)
@pytest.mark.parametrize("batch_size", [100, 2_000])
@_every_order
def test_a_scan_goes_on_while_others_hold_the_whole_budget(one_file, order, batch_size):
    budget = ice.MemoryBudget("64MB")
    scan = ice.scan(one_file, where="keep = 1", memory=budget, order=order, batch_size=batch_size)
    batches = iter(scan)
    first = next(batches).column("id").to_pylist()
    others = budget.force(budget.limit_bytes)
    assert first + _ids(batches) == _KEPT
    others.release()
    assert budget.held_bytes == 0


@pytest.mark.timeout(60)
@_every_order
def test_files_without_a_match_never_stall_the_rest(many_files, monkeypatch, order):
    monkeypatch.setattr("icestream.read.order.cores", lambda: 8)
    wanted = [5, _FILE_ROWS + 5, 7 * _FILE_ROWS + 5, (_FILES - 1) * _FILE_ROWS + 5]
    where = f"id in ({', '.join(map(str, wanted))})"
    for _ in range(5):
        assert sorted(_ids(ice.scan(many_files, where=where, order=order))) == wanted


@_every_order
def test_a_consumer_that_keeps_every_batch_never_stalls_the_scan(big, order):
    scan = ice.scan(big, memory="12MB", order=order)
    kept = list(scan)
    assert _rows(kept) == _BIG_FILES * _BIG_FILE_ROWS
    assert sum(batch.nbytes for batch in kept) > 5 * 12_000_000


# Bounds


def test_as_many_streams_run_as_were_asked_for_and_no_more(big):
    for streams in (1, 2, 4):
        scan = ice.scan(big, order=ice.ArrivalOrder(streams), batch_size=5_000)
        batches = iter(scan)
        rows = next(batches).num_rows
        wait_until(lambda wanted=streams, scan=scan: scan.report.streams == wanted)
        assert rows + _rows(batches) == _BIG_FILES * _BIG_FILE_ROWS
        assert scan.report.streams == streams


@pytest.mark.parametrize(("streams", "most"), [(1, 1), (1, 3), (3, 1), (4, 2)])
def test_no_more_than_max_buffered_batches_wait_for_the_consumer(catalog, streams, most):
    schema = pa.schema([("id", pa.int64())])
    table = catalog.create_table("db.t", schema)
    files = [pa.table({"id": pa.array(range(k * 10, k * 10 + 10), pa.int64())}) for k in range(40)]
    commit_files(table, [write_parquet_file(table, rows) for rows in files])
    io = watch(table)
    together = threading.Barrier(streams)
    decoded: set[str] = set()

    def decode_together(path: str, offset: int, length: int) -> None:
        if offset == 4:  # The first page: after the magic number, and before the footer.
            decoded.add(path)
            if len(decoded) > 1:
                with suppress(threading.BrokenBarrierError):
                    together.wait(1)

    io.on_read = decode_together
    scan = ice.scan(table, order=ice.ArrivalOrder(streams, max_buffered_batches=most))
    batches = iter(scan)
    seen = next(batches).num_rows
    wait_until(lambda: len(decoded) >= 1 + most)
    # Each file is one batch. One was delivered; the head of the line may have one more than fits.
    assert settled(lambda: len(decoded), quiet_seconds=1.5) <= 1 + most + 1
    assert seen + _rows(batches) == 400


@_every_order
def test_no_batch_is_larger_than_batch_size(many_files, order):
    batches = list(ice.scan(many_files, batch_size=777, order=order))
    assert max(batch.num_rows for batch in batches) <= 777
    assert _rows(batches) == _FILES * _FILE_ROWS


@pytest.mark.parametrize(("of_scan", "of_order"), [(None, 321), (321, 5_000), (5_000, 321)])
def test_the_smaller_batch_size_of_scan_and_arrival_order_holds(many_files, of_scan, of_order):
    order = ice.ArrivalOrder(2, batch_size=of_order)
    batches = list(ice.scan(many_files, batch_size=of_scan, order=order))
    assert max(batch.num_rows for batch in batches) <= 321
    assert _rows(batches) == _FILES * _FILE_ROWS


@pytest.mark.parametrize(
    "arguments",
    [
        {"concurrent_streams": 0},
        {"concurrent_streams": True},
        {"concurrent_streams": 1.5},
        {"batch_size": 0},
        {"max_buffered_batches": 0},
        {"max_buffered_batches": None},
    ],
    ids=str,
)
def test_arrival_order_refuses_what_is_no_positive_whole_number(arguments):
    (name,) = arguments
    with pytest.raises(ice.InvalidArgumentError, match=name):
        ice.ArrivalOrder(**arguments)


@pytest.mark.parametrize("batch_size", [0, -1, True, 2.5, "10"])
def test_a_bad_batch_size_is_refused_before_any_file_is_opened(many_files, batch_size):
    io = watch(many_files)
    with pytest.raises(ice.InvalidArgumentError, match="batch_size"):
        ice.scan(many_files, batch_size=batch_size)
    assert io.opened == []


def test_tiny_stripes_come_out_as_large_batches(catalog):
    rows = pa.table({"id": pa.array(range(30_000), pa.int64())})
    table = catalog.create_table("db.t", rows.schema)
    add_orc_file(table, rows, stripe_rows=10)
    batches = list(ice.scan(table))
    assert _ids(batches) == list(range(30_000))
    assert len(batches) <= 30


def test_a_selective_filter_gives_few_batches(catalog):
    rows = pa.table(
        {
            "id": pa.array(range(100_000), pa.int64()),
            "hundredth": pa.array([i % 100 for i in range(100_000)], pa.int64()),
        }
    )
    table = catalog.create_table("db.t", rows.schema)
    add_parquet_file(table, rows, row_group_rows=500)
    batches = list(ice.scan(table, where="hundredth = 42"))
    assert _ids(batches) == list(range(42, 100_000, 100))
    assert len(batches) <= 5


# A slow consumer


@_every_order
def test_a_slow_consumer_keeps_arrow_bytes_under_the_limit_and_stops_the_producers(big, order):
    limit_bytes = 16_000_000
    io = watch(big)
    before = pa.total_allocated_bytes()
    scan = ice.scan(big, memory=limit_bytes, order=order)
    rows = 0
    for number, batch in enumerate(scan):
        rows += batch.num_rows
        if number < 4:
            settled(lambda: (len(io.opened), pa.total_allocated_bytes()))
        assert pa.total_allocated_bytes() - before <= limit_bytes
        # What was delivered, what fits into the limit, and a file for each stream.
        most = rows // _BIG_FILE_ROWS + limit_bytes // _BIG_FILE_BYTES + 8 + 1
        assert len(io.opened) <= most
        del batch
    assert rows == _BIG_FILES * _BIG_FILE_ROWS
    assert scan.report.peak_bytes_held <= limit_bytes


# The budget


@_every_order
def test_every_byte_is_given_back_at_the_end_on_close_and_after_an_error(many_files, order):
    budget = ice.MemoryBudget("32MB")
    assert _rows(ice.scan(many_files, memory=budget, order=order)) == _FILES * _FILE_ROWS
    assert budget.held_bytes == 0
    with ice.scan(many_files, memory=budget, order=order, batch_size=100) as scan:
        batches = iter(scan)
        next(batches)
        assert budget.held_bytes > 0
    assert budget.held_bytes == 0
    io = watch(many_files)

    def fail(path: str) -> None:
        if len(io.opened) > 3:
            raise PermissionError(13, "not yours", path)

    io.on_open = fail
    with pytest.raises(ice.ReadError, match="not yours"):
        list(ice.scan(many_files, memory=budget, order=order))
    assert budget.held_bytes == 0


@pytest.mark.parametrize("order", [ice.TaskOrder(), ice.ArrivalOrder(4)], ids=["task", "arrival"])
def test_two_scans_that_take_turns_share_a_budget(big, order):
    budget = ice.MemoryBudget("24MB")
    before = pa.total_allocated_bytes()
    one, two = (ice.scan(big, memory=budget, order=order) for _ in range(2))
    rows = [0, 0]
    scans = [iter(one), iter(two)]
    while scans:
        for position, scan in enumerate(list(scans)):
            batch = next(scan, None)
            if batch is None:
                scans.remove(scan)
                break
            rows[position] += batch.num_rows
            del batch
            assert pa.total_allocated_bytes() - before <= budget.limit_bytes
    assert sum(rows) == 2 * _BIG_FILES * _BIG_FILE_ROWS
    assert one.report.finished
    assert two.report.finished
    assert budget.held_bytes == 0


def test_two_scans_in_two_threads_share_a_budget(big):
    budget = ice.MemoryBudget("24MB")
    rows: dict[int, int] = {}

    def consume(number: int) -> None:
        order = ice.TaskOrder() if number else ice.ArrivalOrder(4)
        rows[number] = _rows(ice.scan(big, memory=budget, order=order))

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows == dict.fromkeys(range(2), _BIG_FILES * _BIG_FILE_ROWS)
    assert budget.held_bytes == 0


@pytest.mark.parametrize("memory", [1_000, 100_000])
@_every_order
def test_a_limit_that_is_too_small_names_one_that_is_enough(big, order, memory):
    seen = []
    with pytest.raises(ice.MemoryBudgetError) as caught:
        seen.extend(ice.scan(big, memory=memory, order=order))
    assert seen == []
    assert caught.value.limit_bytes == memory
    assert caught.value.needed_bytes > memory
    scan = ice.scan(big, memory=caught.value.needed_bytes, order=order)
    assert _rows(scan) == _BIG_FILES * _BIG_FILE_ROWS


# What a scan says about itself


@_every_order
def test_explain_opens_no_data_file_and_keeps_to_the_bounds(many_files, order):
    io = watch(many_files)
    explained = ice.scan(many_files, order=order, memory="64MB", batch_size=5_000).explain()
    assert io.opened == []
    assert explained.files == _FILES
    assert explained.rows == _FILES * _FILE_ROWS
    assert explained.delete_files == 0
    assert explained.columns == 3
    assert explained.memory_limit_bytes == 64_000_000
    assert explained.order == ("task" if isinstance(order, ice.TaskOrder) else "arrival")
    assert 1 <= explained.batch_rows <= 5_000
    assert explained.batch_bytes >= explained.batch_rows * 16
    if isinstance(order, ice.ArrivalOrder):
        assert 1 <= explained.streams <= order.concurrent_streams
    held = explained.streams * explained.stream_bytes + explained.buffer_bytes
    assert held <= explained.memory_limit_bytes
    assert explained.compressed_bytes == sum(s.bytes for s in ice.scan(many_files).splits())
    assert explained.snapshot_id == many_files.current_snapshot().snapshot_id


def test_the_report_counts_what_was_delivered(many_files):
    scan = ice.scan(many_files, memory="64MB")
    with pytest.raises(ice.ScanClosedError):
        _ = scan.report
    batches = list(scan)
    report = scan.report
    assert report.rows == _FILES * _FILE_ROWS
    assert report.batches == len(batches)
    assert report.bytes >= sum(batch.nbytes for batch in batches) * 0.99
    assert report.files == report.files_planned == _FILES
    assert report.row_groups_skipped == report.retries == 0
    assert report.memory_limit_bytes == 64_000_000
    assert 0 < report.peak_bytes_held <= 64_000_000
    assert report.finished
    assert 0 < report.seconds_to_first_batch <= report.seconds
    assert report == scan.report


def test_the_report_counts_a_file_once_however_it_was_cut(one_file):
    scan = ice.read_splits(ice.scan(one_file).splits(target_bytes=1))
    assert _rows(scan) == _GROUPS * _GROUP_ROWS
    assert scan.report.files == scan.report.files_planned == 1


def test_the_report_counts_row_groups_that_statistics_ruled_out(one_file):
    scan = ice.scan(one_file, where=f"id >= {_GROUP_ROWS * 10} and id < {_GROUP_ROWS * 12}")
    assert _rows(scan) == 2 * _GROUP_ROWS
    assert scan.report.row_groups_skipped == _GROUPS - 2


def test_a_scan_that_was_left_early_is_not_reported_as_finished(many_files):
    scan = ice.scan(many_files, batch_size=1_000)
    for _ in scan:
        break
    assert not scan.report.finished
    assert scan.report.batches == 1
    assert scan.report.rows <= 1_000


def test_an_empty_table_is_a_finished_scan_of_no_batches(catalog):
    table = catalog.create_table("db.empty", pa.schema([("id", pa.int64())]))
    for order in _ORDERS.values():
        scan = ice.scan(table, order=order)
        assert list(scan) == []
        assert scan.report.finished
        assert scan.report.seconds_to_first_batch is None
        assert scan.report.files == scan.report.files_planned == 0


# Iterating and handing over


@_every_order
def test_each_iteration_reads_from_the_start(many_files, order):
    scan = ice.scan(many_files, order=order)
    first, second = _ids(scan), _ids(scan)
    assert sorted(first) == sorted(second) == list(range(_FILES * _FILE_ROWS))


@_every_order
def test_two_iterations_of_one_scan_can_run_at_the_same_time(many_files, order):
    scan = ice.scan(many_files, order=order, batch_size=1_000, memory="16MB")
    seen: list[list[int]] = [[], []]
    for pair in zip(scan, scan, strict=False):
        for ids, batch in zip(seen, pair, strict=True):
            ids.extend(batch.column("id").to_pylist())
    assert len(seen[0]) > _FILE_ROWS
    for ids in seen:
        assert len(ids) == len(set(ids))
        by_file = [list(rows) for _, rows in groupby(sorted(ids), lambda i: i // _FILE_ROWS)]
        # Row order inside a file: what came of each file is its beginning.
        assert all(b - a == 1 for rows in by_file for a, b in pairwise(rows))


def test_a_closed_scan_can_not_be_used_again(many_files):
    scan = ice.scan(many_files)
    scan.close()
    scan.close()
    with pytest.raises(ice.ScanClosedError):
        iter(scan)


@_every_order
def test_a_reader_gives_what_the_scan_gives(many_files, order):
    reader = ice.scan(many_files, order=order).to_reader()
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema == ice.scan(many_files).schema
    assert sorted(reader.read_all()["id"].to_pylist()) == list(range(_FILES * _FILE_ROWS))


@_every_order
def test_duckdb_reads_a_scan(many_files, order):
    scan = ice.scan(many_files, order=order)
    with duckdb.connect() as connection:
        connection.register("scanned", scan.to_reader())
        query = "select count(*), sum(id), count(distinct text) from scanned"
        count, total, texts = connection.execute(query).fetchone()
    rows = _FILES * _FILE_ROWS
    assert (count, total, texts) == (rows, rows * (rows - 1) // 2, rows)


@_every_order
def test_polars_reads_a_scan(many_files, order):
    frame = pl.DataFrame(ice.scan(many_files, order=order))
    assert sorted(frame["id"].to_list()) == list(range(_FILES * _FILE_ROWS))
    assert frame["text"].n_unique() == _FILES * _FILE_ROWS
