"""A scan: what it reports, and how it is iterated over and handed to other libraries."""

from __future__ import annotations

from itertools import groupby, pairwise

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import icestream as ice
from tests.fault.watched_io import watch
from tests.support.stream_tables import (
    FILE_ROWS,
    FILES,
    GROUP_ROWS,
    GROUPS,
    ORDERS,
    every_order,
    ids_in,
    rows_in,
)


@pytest.mark.parametrize("batch_size", [0, -1, True, 2.5, "10"])
def test_a_bad_batch_size_is_refused_before_any_file_is_opened(many_files, batch_size):
    io = watch(many_files)
    with pytest.raises(ice.InvalidArgumentError, match="batch_size"):
        ice.scan(many_files, batch_size=batch_size)
    assert io.opened == []


# The report


def test_the_report_counts_what_was_delivered(many_files):
    scan = ice.scan(many_files, memory="64MB")
    with pytest.raises(ice.ScanClosedError):
        _ = scan.report
    batches = list(scan)
    report = scan.report
    assert report.rows == FILES * FILE_ROWS
    assert report.batches == len(batches)
    assert report.bytes >= sum(batch.nbytes for batch in batches) * 0.99
    assert report.files == report.files_planned == FILES
    assert report.row_groups_skipped == report.retries == 0
    assert report.memory_limit_bytes == 64_000_000
    assert 0 < report.peak_bytes_held <= 64_000_000
    assert report.finished
    assert 0 < report.seconds_to_first_batch <= report.seconds
    assert report == scan.report


def test_the_report_counts_a_file_once_however_it_was_cut(one_file):
    scan = ice.read_splits(ice.scan(one_file).splits(target_bytes=1))
    assert rows_in(scan) == GROUPS * GROUP_ROWS
    assert scan.report.files == scan.report.files_planned == 1


def test_the_report_counts_row_groups_that_statistics_ruled_out(one_file):
    scan = ice.scan(one_file, where=f"id >= {GROUP_ROWS * 10} and id < {GROUP_ROWS * 12}")
    assert rows_in(scan) == 2 * GROUP_ROWS
    assert scan.report.row_groups_skipped == GROUPS - 2


def test_a_scan_that_was_left_early_is_not_reported_as_finished(many_files):
    scan = ice.scan(many_files, batch_size=1_000)
    for _ in scan:
        break
    assert not scan.report.finished
    assert scan.report.batches == 1
    assert scan.report.rows <= 1_000


def test_an_empty_table_is_a_finished_scan_of_no_batches(catalog):
    table = catalog.create_table("db.empty", pa.schema([("id", pa.int64())]))
    for order in ORDERS.values():
        scan = ice.scan(table, order=order)
        assert list(scan) == []
        assert scan.report.finished
        assert scan.report.seconds_to_first_batch is None
        assert scan.report.files == scan.report.files_planned == 0


# Iterating and handing over


@every_order
def test_each_iteration_reads_from_the_start(many_files, order):
    scan = ice.scan(many_files, order=order)
    first, second = ids_in(scan), ids_in(scan)
    assert sorted(first) == sorted(second) == list(range(FILES * FILE_ROWS))


@every_order
def test_two_iterations_of_one_scan_can_run_at_the_same_time(many_files, order):
    scan = ice.scan(many_files, order=order, batch_size=1_000, memory="16MB")
    seen: list[list[int]] = [[], []]
    for pair in zip(scan, scan, strict=False):
        for ids, batch in zip(seen, pair, strict=True):
            ids.extend(batch.column("id").to_pylist())
    assert len(seen[0]) > FILE_ROWS
    for ids in seen:
        assert len(ids) == len(set(ids))
        by_file = [list(rows) for _, rows in groupby(sorted(ids), lambda i: i // FILE_ROWS)]
        # Row order inside a file: what came of each file is its beginning.
        assert all(b - a == 1 for rows in by_file for a, b in pairwise(rows))


def test_a_closed_scan_can_not_be_used_again(many_files):
    scan = ice.scan(many_files)
    scan.close()
    scan.close()
    with pytest.raises(ice.ScanClosedError):
        iter(scan)


@every_order
def test_a_reader_gives_what_the_scan_gives(many_files, order):
    reader = ice.scan(many_files, order=order).to_reader()
    assert isinstance(reader, pa.RecordBatchReader)
    assert reader.schema == ice.scan(many_files).schema
    assert sorted(reader.read_all()["id"].to_pylist()) == list(range(FILES * FILE_ROWS))


@every_order
def test_duckdb_reads_a_scan(many_files, order):
    scan = ice.scan(many_files, order=order)
    with duckdb.connect() as connection:
        connection.register("scanned", scan.to_reader())
        query = "select count(*), sum(id), count(distinct text) from scanned"
        count, total, texts = connection.execute(query).fetchone()
    rows = FILES * FILE_ROWS
    assert (count, total, texts) == (rows, rows * (rows - 1) // 2, rows)


@every_order
def test_polars_reads_a_scan(many_files, order):
    frame = pl.DataFrame(ice.scan(many_files, order=order))
    assert sorted(frame["id"].to_list()) == list(range(FILES * FILE_ROWS))
    assert frame["text"].n_unique() == FILES * FILE_ROWS
