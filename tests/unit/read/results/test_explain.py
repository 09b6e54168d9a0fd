"""A scan predicts what it will do, from metadata alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from tests.fault.watched_io import watch
from tests.support.delete_files import commit_position_deletes
from tests.support.stream_tables import FILE_ROWS, FILES, GROUP_ROWS, GROUPS, every_order
from tests.support.tables import add_parquet_file, data_file_paths


@every_order
def test_explain_opens_no_data_file_and_keeps_to_the_bounds(many_files, order):
    io = watch(many_files)
    explained = ice.scan(many_files, order=order, memory="64MB", batch_size=5_000).explain()
    assert io.opened == []
    assert explained.files == FILES
    assert explained.rows == FILES * FILE_ROWS
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


def test_a_file_that_was_cut_and_its_deletes_count_once(catalog: Catalog) -> None:
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    add_parquet_file(table, pa.table({"id": range(100)}), row_group_rows=10)
    (path,) = data_file_paths(table)
    commit_position_deletes(table, {path: [1, 50]})
    splits = ice.scan(table).splits(target_bytes=1)
    assert len(splits) == 10
    explained = ice.read_splits(splits).explain()
    assert (explained.files, explained.delete_files, explained.rows) == (1, 1, 100)


@pytest.mark.parametrize("memory", ["2MB", "64MB"])
def test_a_scan_opens_no_more_streams_than_predicted(one_file, memory):
    scan = ice.scan(one_file, memory=memory, order=ice.ArrivalOrder(4))
    explained = scan.explain()
    assert sum(batch.num_rows for batch in scan) == explained.rows == GROUPS * GROUP_ROWS
    assert scan.report.streams <= 4
    assert explained.streams <= 4


def test_an_empty_table_is_explained(catalog: Catalog) -> None:
    table = catalog.create_table("db.empty", pa.schema([("id", pa.int64())]))
    explained = ice.scan(table, where="id > 3").explain()
    assert (explained.files, explained.rows, explained.snapshot_id) == (0, 0, None)
    assert explained.row_filter == explained.to_dict()["row_filter"] == "id > 3"
    assert "id > 3" in repr(explained)
    assert ice.scan(table).explain().row_filter == "true"
