"""A stream reads every row that is added to a table, once."""

from __future__ import annotations

import pickle
import pickletools

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import StringType

import icestream as ice
from icestream.errors import InvalidArgumentError
from icestream.spark.streaming import stream_options
from tests.support.spark_stream import Stream, append_orders

needs_limits = pytest.mark.skipif(
    not stream_options.HAS_ADMISSION_CONTROL, reason="PySpark 4.1 has no limits for micro-batches"
)


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


def test_filters_and_columns_are_as_of_a_batch_read(catalog: SqlCatalog, table: Table) -> None:
    append_orders(table, 0, 10)
    append_orders(table, 10, 20)
    stream = Stream(catalog, where="id >= 15", columns="price,id", metadata_columns="_pos")
    start = stream.reader.initialOffset()
    assert stream.schema.names == ["price", "id", "_pos"]
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
