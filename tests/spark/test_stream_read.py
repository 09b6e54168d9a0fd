"""A stream tells of every row that is added to a table, once."""

from __future__ import annotations

import gc
import pickle
import pickletools
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import StringType
from pyspark.errors import StreamingQueryException

import icestream as ice
from icestream.errors import (
    InvalidArgumentError,
    MemoryBudgetError,
    StreamError,
    UnknownColumnError,
    UnsupportedFeatureError,
)
from icestream.spark.data_source import IcestreamSource
from icestream.spark.errors import typed
from icestream.spark.streaming import stream_options
from tests.support.many_files import add_many_files, wide_rows
from tests.support.spark_orders import ORDERS, order_ids
from tests.support.spark_stream import Copying, Stream, append_orders, catalog_options

needs_limits = pytest.mark.skipif(
    not stream_options.HAS_ADMISSION_CONTROL, reason="PySpark 4.1 has no limits for micro-batches"
)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """An empty table of orders."""
    return catalog.create_table("db.orders", ORDERS)


def _expire(table: Table, snapshot_id: int) -> None:
    table.refresh().maintenance.expire_snapshots().by_id(snapshot_id).commit()


def test_a_stream_reads_what_is_there_and_then_what_is_added(
    catalog: SqlCatalog, table: Table
) -> None:
    append_orders(table, 0, 10)
    append_orders(table, 10, 20)
    ice.delete(table, "id = 3")
    there = [n for n in range(20) if n != 3]
    stream = Stream(catalog)
    assert stream.next() == there
    assert stream.next() == []
    append_orders(table, 20, 25)
    append_orders(table, 25, 30)
    assert stream.next() == list(range(20, 30))


def test_a_stream_of_an_empty_table_reads_its_first_rows(catalog: SqlCatalog, table: Table) -> None:
    stream = Stream(catalog)
    assert stream.next() == []
    append_orders(table, 0, 5)
    assert stream.next() == list(range(5))


def test_a_stream_starts_now_or_after_a_snapshot_or_a_moment(
    catalog: SqlCatalog, table: Table
) -> None:
    first = append_orders(table, 0, 10)
    append_orders(table, 10, 20)
    late = Stream(catalog, start="latest")
    assert late.next() == []
    after = Stream(catalog, start_snapshot_id=str(first))
    assert after.next() == list(range(10, 20))
    moment = table.metadata.snapshot_by_id(first).timestamp_ms
    assert Stream(catalog, start_timestamp=str(moment)).next() == list(range(10, 20))
    assert Stream(catalog, start_timestamp=str(moment - 1)).next() == list(range(20))
    assert Stream(catalog, start_timestamp="1999-01-01T00:00:00").next() == list(range(20))
    append_orders(table, 20, 30)
    assert late.next() == after.next() == list(range(20, 30))


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
def test_micro_batches_keep_to_files_and_bytes(catalog: SqlCatalog, table: Table) -> None:
    for first in range(0, 50, 10):
        append_orders(table, first, first + 10)
    size = max(task.file.file_size_in_bytes for task in table.scan().plan_files())
    by_files = Stream(catalog, max_files_per_micro_batch="2")
    by_bytes = Stream(catalog, max_bytes_per_micro_batch=str(2 * size))
    tiny = Stream(catalog, max_bytes_per_micro_batch="1", max_files_per_micro_batch="9")
    for stream, files in ((by_files, 2), (by_bytes, 2), (tiny, 1)):
        seen: list[int] = []
        while len(seen) < 50:
            ids = stream.next()
            assert 0 < len(ids) <= 10 * files
            seen += ids
        assert sorted(seen) == list(range(50))
        assert stream.next() == []
    with pytest.raises(InvalidArgumentError, match="'max-files-per-micro-batch' is '0'"):
        Stream(catalog, max_files_per_micro_batch="0")
    append_orders(table, 50, 60)
    append_orders(table, 60, 70)
    append_orders(table, 70, 80)
    assert [by_files.next() for _ in range(3)] == [
        list(range(50, 70)),
        list(range(70, 80)),
        [],
    ]


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


@needs_limits
def test_a_micro_batch_is_the_same_in_another_process(catalog: SqlCatalog, table: Table) -> None:
    for first in range(0, 40, 10):
        append_orders(table, first, first + 10)
    stream = Stream(catalog, max_files_per_micro_batch="3")
    start = stream.reader.initialOffset()
    first_ids, middle = stream.next(), stream.offset
    append_orders(table, 40, 50)
    second_ids, end = stream.next(), stream.offset
    assert middle is not None
    assert end is not None
    ice.delete(table, "id < 20")
    again = Stream(catalog)
    assert again.ids(start, middle) == first_ids
    assert again.ids(middle, end) == second_ids
    assert sorted(first_ids + second_ids) == list(range(50))


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


def test_filters_and_columns_are_as_of_a_batch_read(catalog: SqlCatalog, table: Table) -> None:
    append_orders(table, 0, 10)
    append_orders(table, 10, 20)
    stream = Stream(catalog, where="id >= 15", columns="price,id", metadata_columns="_pos")
    start = stream.reader.initialOffset()
    assert stream.schema.names == ["id", "price", "_pos"]
    assert stream.next() == list(range(15, 20))
    assert len(stream.reader.partitions(start, stream.offset)) == 1, "of the two files"


def test_a_stream_keeps_its_columns_when_the_table_gets_others(
    catalog: SqlCatalog, table: Table
) -> None:
    append_orders(table, 0, 2)
    stream = Stream(catalog)
    assert stream.next() == [0, 1]
    middle = stream.offset
    assert middle is not None
    with table.update_schema() as update:
        update.rename_column("region", "area")
        update.add_column("note", StringType())
        update.delete_column("price")
    row = pa.table({"id": [2], "area": ["north"], "note": ["new"]})
    ice.append(table, row)
    assert stream.next() == [2]
    assert stream.offset is not None
    (batch,) = stream.batches(middle, stream.offset)
    assert batch.to_pylist() == [{"id": 2, "region": "north", "price": None}]
    assert Stream(catalog).schema.names == ["id", "area", "note"], "after a restart"


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "yesterday"}, "'start' is 'yesterday': give earliest or latest"),
        ({"start_snapshot_id": "12"}, "branch 'main' of db.orders has no such snapshot"),
        ({"start": "latest", "start_timestamp": "0"}, "give one of start, start-timestamp"),
        ({"push_filters": "true"}, "'push-filters' is for spark.read"),
        ({"skip_delete_snapshots": "yes"}, "'skip-delete-snapshots' is 'yes'"),
        ({"no_such": "1"}, "no option 'no-such'"),
        ({"columns": "nothing"}, "nothing"),
    ],
)
def test_options_that_make_no_sense_are_named(
    catalog: SqlCatalog, table: Table, options: dict[str, str], message: str
) -> None:
    with pytest.raises((InvalidArgumentError, UnknownColumnError), match=message):
        Stream(catalog, **options).next()


def test_options_of_streams_are_refused_in_batch_reads(catalog: SqlCatalog, table: Table) -> None:
    source = IcestreamSource({**catalog_options(catalog, start="latest"), "path": "db.orders"})
    schema = source.schema()
    with pytest.raises(InvalidArgumentError, match="no option 'start'"):
        source.reader(schema)


def test_limits_are_refused_where_spark_has_none(
    catalog: SqlCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_options, "HAS_ADMISSION_CONTROL", False)
    with pytest.raises(UnsupportedFeatureError, match=r"needs PySpark 4\.2"):
        Stream(catalog, max_files_per_micro_batch="1")


def test_older_sparks_ask_without_a_start(catalog: SqlCatalog, table: Table) -> None:
    append_orders(table, 0, 10)
    stream = Stream(catalog)
    append_orders(table, 10, 20)
    end = stream.reader.latestOffset()
    append_orders(table, 20, 30)
    assert stream.ids(stream.reader.initialOffset(), end) == list(range(20))
    assert stream.ids(end, stream.reader.latestOffset()) == list(range(20, 30))


def test_tasks_get_neither_credentials_nor_the_tables_metadata(
    catalog: SqlCatalog, table: Table
) -> None:
    stream = Stream(catalog, **{"catalog.password": "hunter2"})
    stream.next()
    state = pickle.dumps(stream.reader)
    texts = [arg for _, arg, _ in pickletools.genops(state) if isinstance(arg, str)]
    assert not [text for text in texts if "hunter2" in text or "sqlite" in text]
    assert len(state) < 1000


@pytest.mark.slow
def test_spark_copies_a_table_that_grows_meanwhile(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, table: Table
) -> None:
    copy = catalog.create_table("db.copy", ORDERS)
    copying = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="copy")
    for first in range(0, 30, 10):
        append_orders(table, first, first + 10)
    limit = {"max_files_per_micro_batch": "2"} if stream_options.HAS_ADMISSION_CONTROL else {}
    frame = copying.source(**limit)
    query = copying.writer(frame).trigger(processingTime="100 milliseconds").start("db.copy")
    try:
        for first in range(30, 60, 10):
            append_orders(table, first, first + 10)
        query.processAllAvailable()
    finally:
        query.stop()
    assert order_ids(copy) == list(range(60))
    append_orders(table, 60, 70)
    assert copying.run().lastProgress["numInputRows"] == 10
    assert order_ids(copy) == list(range(70))


@pytest.mark.slow
def test_spark_tells_of_an_overwrite_in_the_way_by_its_type(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, table: Table
) -> None:
    catalog.create_table("db.copy", ORDERS)
    copying = Copying(spark, catalog, tmp_path, into="db.copy", stream_id="copy")
    first = append_orders(table, 0, 10)
    report = ice.overwrite(table, pa.table({"id": [1], "region": ["x"], "price": [0.0]}))
    with pytest.raises(StreamingQueryException) as caught:
        copying.run(copying.source(start_snapshot_id=str(first)))
    error = typed(caught.value)
    assert isinstance(error, StreamError)
    assert str(report.snapshot_id) in str(error)
