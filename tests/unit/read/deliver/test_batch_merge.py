"""Many streams become one: in order or as they come, to the end, inside the budget (S2)."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import icestream as ice
from tests.fault.watched_io import settled, wait_until, watch
from tests.support.stream_tables import (
    BIG_FILE_ROWS,
    BIG_FILES,
    FILE_ROWS,
    FILES,
    GROUP_ROWS,
    GROUPS,
    ORDERS,
    every_order,
    ids_in,
    rows_in,
)
from tests.support.tables import (
    add_orc_file,
    add_parquet_file,
    commit_files,
    write_parquet_file,
)

# Every second row group is ruled out, so that each of the others is a unit of its own.
_KEPT = [i for i in range(GROUPS * GROUP_ROWS) if i // GROUP_ROWS % 2]
_BIG_FILE_BYTES = 16 * BIG_FILE_ROWS


# The order of rows


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_task_order_is_plan_order_whatever_the_number_of_streams(many_files, monkeypatch, cores):
    monkeypatch.setattr("icestream.read.order.cores", lambda: cores)
    scan = ice.scan(many_files)
    assert ids_in(scan) == many_files.scan().to_arrow()["id"].to_pylist()
    assert scan.report.streams <= cores


@pytest.mark.parametrize("cores", [1, 8])
def test_task_order_groups_batches_by_file(many_files, monkeypatch, cores):
    monkeypatch.setattr("icestream.read.order.cores", lambda: cores)
    seen = []
    for batch in ice.scan(many_files, batch_size=900):
        (file,) = pc.unique(batch.column("file")).to_pylist()
        seen.append(file)
    planned = [many_files.io.new_input(split.path) for split in ice.scan(many_files).splits()]
    assert len([file for file, _ in groupby(seen)]) == len(planned) == FILES


@pytest.mark.parametrize("cores", [2, 8])
def test_task_order_keeps_row_order_across_the_row_groups_of_a_file(one_file, monkeypatch, cores):
    monkeypatch.setattr("icestream.read.order.cores", lambda: cores)
    assert ids_in(ice.scan(one_file, where="keep = 1", batch_size=300)) == _KEPT


@pytest.mark.parametrize("streams", [1, 2, 3, 8])
def test_arrival_order_gives_every_row_once_in_row_order_inside_each_file(many_files, streams):
    scan = ice.scan(many_files, order=ice.ArrivalOrder(streams), batch_size=900)
    by_file: dict[int, list[int]] = {}
    for batch in scan:
        (file,) = pc.unique(batch.column("file")).to_pylist()
        by_file.setdefault(file, []).extend(batch.column("id").to_pylist())
    assert by_file == {
        file: list(range(file * FILE_ROWS, (file + 1) * FILE_ROWS)) for file in range(FILES)
    }
    assert scan.report.streams <= streams


def test_arrival_order_with_one_stream_is_sequential_and_grouped_by_file(many_files):
    scan = ice.scan(many_files, order=ice.ArrivalOrder(1), batch_size=900)
    assert ids_in(scan) == many_files.scan().to_arrow()["id"].to_pylist()
    assert scan.report.streams == 1


@every_order
def test_rows_of_a_file_that_was_cut_into_splits_stay_in_order(one_file, order):
    splits = ice.scan(one_file).splits(target_bytes=1)
    assert len(splits) == GROUPS
    assert ids_in(ice.read_splits(splits, order=order)) == list(range(GROUPS * GROUP_ROWS))


def test_the_limit_is_exact_in_every_order(many_files):
    for order in ORDERS.values():
        for limit in (1, 999, FILE_ROWS, 3 * FILE_ROWS + 1, 2 * FILES * FILE_ROWS):
            scan = ice.scan(many_files, order=order, limit=limit)
            ids = ids_in(scan)
            assert len(ids) == len(set(ids)) == min(limit, FILES * FILE_ROWS)
            assert scan.report.finished


# Nothing stalls


@pytest.mark.timeout(60)
@pytest.mark.parametrize("max_buffered_batches", [1, 2, 16])
@pytest.mark.parametrize("streams", [2, 3, 8])
def test_a_small_buffer_never_stalls_a_file_of_many_units(one_file, streams, max_buffered_batches):
    order = ice.ArrivalOrder(streams, max_buffered_batches=max_buffered_batches)
    for _ in range(5):
        scan = ice.scan(one_file, where="keep = 1", order=order, batch_size=500)
        assert ids_in(scan) == _KEPT
        assert scan.report.finished
        assert scan.report.streams <= streams


@pytest.mark.timeout(60)
@pytest.mark.parametrize("batch_size", [100, 2_000])
@every_order
def test_a_scan_goes_on_while_others_hold_the_whole_budget(one_file, order, batch_size):
    budget = ice.MemoryBudget("64MB")
    scan = ice.scan(one_file, where="keep = 1", memory=budget, order=order, batch_size=batch_size)
    batches = iter(scan)
    first = next(batches).column("id").to_pylist()
    others = budget.force(budget.limit_bytes)
    assert first + ids_in(batches) == _KEPT
    others.release()
    assert budget.held_bytes == 0


@pytest.mark.timeout(60)
@every_order
def test_files_without_a_match_never_stall_the_rest(many_files, monkeypatch, order):
    monkeypatch.setattr("icestream.read.order.cores", lambda: 8)
    wanted = [5, FILE_ROWS + 5, 7 * FILE_ROWS + 5, (FILES - 1) * FILE_ROWS + 5]
    where = f"id in ({', '.join(map(str, wanted))})"
    for _ in range(5):
        assert sorted(ids_in(ice.scan(many_files, where=where, order=order))) == wanted


@every_order
def test_a_consumer_that_keeps_every_batch_never_stalls_the_scan(big, order):
    scan = ice.scan(big, memory="12MB", order=order)
    kept = list(scan)
    assert rows_in(kept) == BIG_FILES * BIG_FILE_ROWS
    assert sum(batch.nbytes for batch in kept) > 5 * 12_000_000


# Bounds


def test_as_many_streams_run_as_were_asked_for_and_no_more(big):
    for streams in (1, 2, 4):
        scan = ice.scan(big, order=ice.ArrivalOrder(streams), batch_size=5_000)
        batches = iter(scan)
        rows = next(batches).num_rows
        wait_until(lambda wanted=streams, scan=scan: scan.report.streams == wanted)
        assert rows + rows_in(batches) == BIG_FILES * BIG_FILE_ROWS
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
    assert seen + rows_in(batches) == 400


@every_order
def test_no_batch_is_larger_than_batch_size(many_files, order):
    batches = list(ice.scan(many_files, batch_size=777, order=order))
    assert max(batch.num_rows for batch in batches) <= 777
    assert rows_in(batches) == FILES * FILE_ROWS


@pytest.mark.parametrize(("of_scan", "of_order"), [(None, 321), (321, 5_000), (5_000, 321)])
def test_the_smaller_batch_size_of_scan_and_arrival_order_holds(many_files, of_scan, of_order):
    order = ice.ArrivalOrder(2, batch_size=of_order)
    batches = list(ice.scan(many_files, batch_size=of_scan, order=order))
    assert max(batch.num_rows for batch in batches) <= 321
    assert rows_in(batches) == FILES * FILE_ROWS


def test_tiny_stripes_come_out_as_large_batches(catalog):
    rows = pa.table({"id": pa.array(range(30_000), pa.int64())})
    table = catalog.create_table("db.t", rows.schema)
    add_orc_file(table, rows, stripe_rows=10)
    batches = list(ice.scan(table))
    assert ids_in(batches) == list(range(30_000))
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
    assert ids_in(batches) == list(range(42, 100_000, 100))
    assert len(batches) <= 5


# A slow consumer


@every_order
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
        most = rows // BIG_FILE_ROWS + limit_bytes // _BIG_FILE_BYTES + 8 + 1
        assert len(io.opened) <= most
        del batch
    assert rows == BIG_FILES * BIG_FILE_ROWS
    assert scan.report.peak_bytes_held <= limit_bytes


# The budget


@every_order
def test_every_byte_is_given_back_at_the_end_on_close_and_after_an_error(many_files, order):
    budget = ice.MemoryBudget("32MB")
    assert rows_in(ice.scan(many_files, memory=budget, order=order)) == FILES * FILE_ROWS
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
    assert sum(rows) == 2 * BIG_FILES * BIG_FILE_ROWS
    assert one.report.finished
    assert two.report.finished
    assert budget.held_bytes == 0


def test_two_scans_in_two_threads_share_a_budget(big):
    budget = ice.MemoryBudget("24MB")
    rows: dict[int, int] = {}

    def consume(number: int) -> None:
        order = ice.TaskOrder() if number else ice.ArrivalOrder(4)
        rows[number] = rows_in(ice.scan(big, memory=budget, order=order))

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows == dict.fromkeys(range(2), BIG_FILES * BIG_FILE_ROWS)
    assert budget.held_bytes == 0


@pytest.mark.parametrize("memory", [1_000, 100_000])
@every_order
def test_a_limit_that_is_too_small_names_one_that_is_enough(big, order, memory):
    seen = []
    with pytest.raises(ice.MemoryBudgetError) as caught:
        seen.extend(ice.scan(big, memory=memory, order=order))
    assert seen == []
    assert caught.value.limit_bytes == memory
    assert caught.value.needed_bytes > memory
    scan = ice.scan(big, memory=caught.value.needed_bytes, order=order)
    assert rows_in(scan) == BIG_FILES * BIG_FILE_ROWS
