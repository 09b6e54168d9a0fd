"""A stream follows its branch: rows that are added, snapshots that expire, and rollbacks."""

from __future__ import annotations

import gc
import tracemalloc

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

import icestream as ice
from icestream.errors import InvalidArgumentError, MemoryBudgetError, StreamError
from icestream.spark.streaming import stream_options
from tests.support.many_files import add_many_files, wide_rows
from tests.support.spark_orders import ORDERS
from tests.support.spark_stream import Stream, append_orders

needs_limits = pytest.mark.skipif(
    not stream_options.HAS_ADMISSION_CONTROL, reason="PySpark 4.1 has no limits for micro-batches"
)


def _expire(table: Table, snapshot_id: int) -> None:
    table.refresh().maintenance.expire_snapshots().by_id(snapshot_id).commit()


def test_a_compaction_brings_nothing_new(catalog: SqlCatalog, table: Table) -> None:
    stream = Stream(catalog)
    assert stream.next() == []
    append_orders(table, 0, 10)
    append_orders(table, 10, 20)
    ice.compact(table)
    assert table.refresh().current_snapshot().summary.operation is Operation.REPLACE
    append_orders(table, 20, 30)
    assert stream.next() == list(range(30))


@pytest.mark.parametrize("kind", ["overwrite", "delete"])
def test_a_snapshot_that_takes_rows_away_is_named_after_the_rows_before_it(
    catalog: SqlCatalog, table: Table, kind: str
) -> None:
    append_orders(table, 0, 10)
    option = f"skip_{kind}_snapshots"
    stream, passing = Stream(catalog), Stream(catalog, **{option: "true"})
    assert stream.next() == passing.next() == list(range(10))
    append_orders(table, 10, 20)
    ice.append(table, pa.table({"id": [99], "region": ["gone"], "price": [0.0]}))
    if kind == "delete":
        report = ice.delete(table, "region = 'gone'")
    else:
        replaced = pa.table({"id": [77], "region": ["gone"], "price": [0.0]})
        report = ice.overwrite(table, replaced, where="region = 'gone'")
    append_orders(table, 20, 30)
    assert passing.next() == [*range(10, 30), 99]
    if stream_options.HAS_ADMISSION_CONTROL:
        assert stream.next() == [*range(10, 20), 99]
    shown = f"{report.snapshot_id}.*'skip-{kind}-snapshots'"
    for _ in range(2):
        with pytest.raises(StreamError, match=shown):
            stream.next()


@needs_limits
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_what_is_known_of_many_files_is_on_the_account(catalog: SqlCatalog, start: str) -> None:
    rows, count = wide_rows(3), 4_000
    table = catalog.create_table("db.many", rows.schema, properties={"format-version": "2"})
    ice.append(table, rows)
    if start == "earliest":  # then all files of the table are listed, else those that are new
        add_many_files(table, count, per_manifest=200, linked=False)
    options = {"max_files_per_micro_batch": "5", "start": start}
    stream, small = (Stream(catalog, "db.many", **options, memory=m) for m in ("8MB", "1MB"))
    begin = stream.reader.initialOffset()
    if start == "latest":
        add_many_files(table, count, per_manifest=200, linked=False)
    limit = stream.reader.getDefaultReadLimit()
    gc.collect()
    tracemalloc.start()
    try:
        end = stream.reader.latestOffset(begin, limit)
        stream.reader.partitions(begin, end)
        gc.collect()
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 600 * count
    assert 100 * count < stream.reader._budget.held_bytes < held_bytes + 100_000
    stream.reader.stop()
    assert stream.reader._budget.held_bytes == 0
    with pytest.raises(MemoryBudgetError, match="memory limit is 1 MB"):
        small.reader.latestOffset(begin, limit)
    assert small.reader._budget.held_bytes == 0


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_the_first_micro_batch_is_the_same_when_it_is_run_again_later(
    catalog: SqlCatalog, table: Table, start: str
) -> None:
    append_orders(table, 0, 10)
    stream = Stream(catalog, start=start)
    asked = stream.reader.initialOffset()
    if start == "latest":
        append_orders(table, 10, 20)
    end = stream.reader.latestOffset(asked, None)
    append_orders(table, 20, 30)
    ice.delete(table, "id = 3")
    later = Stream(catalog, start=start)
    expected = list(range(10)) if start == "earliest" else list(range(10, 20))
    assert later.ids(later.reader.initialOffset(), end) == expected


def test_a_first_micro_batch_without_rows_stays_without(catalog: SqlCatalog, table: Table) -> None:
    stream = Stream(catalog)
    assert stream.next() == []
    end = stream.offset
    assert end is not None
    append_orders(table, 0, 10)
    later = Stream(catalog)
    assert later.ids(later.reader.initialOffset(), end) == []
    later.offset = end
    assert later.next() == list(range(10))


def test_what_comes_after_the_start_is_no_part_of_available_now(
    catalog: SqlCatalog, table: Table
) -> None:
    append_orders(table, 0, 10)
    stream = Stream(catalog)
    stream.reader.prepareForTriggerAvailableNow()
    append_orders(table, 10, 20)
    if stream_options.HAS_ADMISSION_CONTROL:
        assert stream.next() == list(range(10))
        assert stream.next() == []


def test_a_branch_is_followed_apart_from_main(catalog: SqlCatalog, table: Table) -> None:
    base = append_orders(table, 0, 10)
    table.manage_snapshots().create_branch(base, "work").commit()
    stream = Stream(catalog, branch="work")
    assert stream.next() == list(range(10))
    append_orders(table, 10, 20)
    assert stream.next() == []
    ice.append(table, pa.table({"id": [50], "region": ["x"], "price": [0.0]}), branch="work")
    assert stream.next() == [50]
    with pytest.raises(InvalidArgumentError, match="no branch 'wrok'"):
        Stream(catalog, branch="wrok")


def test_an_expired_snapshot_and_a_rollback_end_the_stream(
    catalog: SqlCatalog, table: Table
) -> None:
    first = append_orders(table, 0, 10)
    stream = Stream(catalog)
    stream.next()
    second = append_orders(table, 10, 20)
    append_orders(table, 20, 30)
    _expire(table, first)
    with pytest.raises(StreamError, match=f"snapshot {first} .* it has expired"):
        stream.next()
    with pytest.raises(StreamError, match="from that time have expired"):
        Stream(catalog, start_timestamp="0").next()
    with pytest.raises(ice.InvalidArgumentError, match=r"in the future: .*start=latest"):
        Stream(catalog, start_timestamp="9999-01-01T00:00:00").next()
    stream = Stream(catalog)
    stream.next()
    third = table.refresh().metadata.current_snapshot_id
    table.manage_snapshots().rollback_to_snapshot(second).commit()
    with pytest.raises(StreamError, match=f"snapshot {third}.*rolled back"):
        stream.next()


@pytest.mark.parametrize("version", ["1", "2"])
def test_snapshots_that_expire_unread_are_missed_by_nobody_silently(
    catalog: SqlCatalog, version: str
) -> None:
    table = catalog.create_table("db.orders", ORDERS, properties={"format-version": version})
    stream = Stream(catalog)
    stream.next()
    first = append_orders(table, 0, 10)
    append_orders(table, 10, 20)
    _expire(table, first)
    with pytest.raises(StreamError, match="expired before the stream has read them"):
        stream.next()
    late = Stream(catalog, start="latest")
    late.next()
    second = append_orders(table, 20, 30)
    append_orders(table, 30, 40)
    _expire(table, second)
    with pytest.raises(StreamError, match="snapshots after it have expired"):
        late.next()


def test_the_checkpoint_of_another_table_is_refused(catalog: SqlCatalog, table: Table) -> None:
    append_orders(table, 0, 10)
    stream = Stream(catalog)
    stream.next()
    other = catalog.create_table("db.other", ORDERS)
    append_orders(other, 0, 10)
    wrong = Stream(catalog, "db.other")
    wrong.offset = stream.offset
    with pytest.raises(StreamError, match=r"belongs to another table: .*db\.other is"):
        wrong.next()
    wrong.offset = {"value": 3}
    with pytest.raises(StreamError, match="did another source write it"):
        wrong.next()
