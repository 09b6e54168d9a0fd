"""One write, from the call to the finished commit, whatever the verb."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.in_flight import MARKER_PREFIX
from icestream.write.parquet.encode_pool import EncodePool
from tests.support.leaks import assert_no_leaks
from tests.support.loads import head_of, ids, ids_of, listing, make_table, snapshots_of
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import create_v3_table


def test_an_empty_stream_makes_no_snapshot(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 1))
    before = listing(table)
    for source in (iter(()), ids(0, 0), [], ids(0, 0).to_reader(), lambda: iter(())):
        report = ice.append(table, source)
        assert report.snapshot_id is None
        assert (report.rows_inserted, report.files_added, report.commit_attempts) == (0, 0, 0)
    assert len(snapshots_of(table)) == 1
    assert listing(table) == before


def test_an_empty_stream_with_a_load_id_is_remembered(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 1))
    report = ice.append(table, iter(()), load_id="empty")
    assert report.snapshot_id == head_of(table).snapshot_id
    assert ice.append(table, ids(1, 2), load_id="empty").already_committed
    assert ids_of(table) == [0]


def test_the_table_object_has_the_new_snapshot_afterwards(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    report = ice.append(table, ids(0, 1))
    assert table.metadata.current_snapshot_id == report.snapshot_id


def test_a_stale_table_object_appends_to_the_newest_snapshot(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    stale = make_table(catalog)
    ice.append(other.load_table("db.t"), ids(0, 2))
    ice.append(stale, ids(2, 3))
    assert ids_of(stale) == [0, 1, 2]


def test_a_version_3_table_is_refused_and_nothing_is_left(catalog: SqlCatalog) -> None:
    table = create_v3_table(catalog, "db.three", ids(0, 1).schema)
    before = listing(table)
    for write in (
        lambda: ice.append(table, ids(0, 1)),
        lambda: ice.overwrite(table, ids(0, 1)),
        lambda: ice.delete(table, "id = 1"),
        lambda: ice.write_files(table, ids(0, 1)),
        lambda: ice.write_target(table),
        lambda: ice.append(table.transaction(), ids(0, 1)),
    ):
        with pytest.raises(ice.UnsupportedFeatureError, match="format version 3"):
            write()
    assert listing(table) == before
    assert table.refresh().current_snapshot() is None


def test_a_table_that_was_dropped_is_a_catalog_error(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog)
    other.drop_table("db.t")
    with pytest.raises(ice.CatalogError, match=r"db\.t does not exist"):
        ice.append(table, ids(0, 1))


def test_a_table_that_was_dropped_and_made_again_is_a_catalog_error(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog)
    other.drop_table("db.t")
    again = make_table(other)
    with pytest.raises(ice.CatalogError, match="UUID"):
        ice.append(table, ids(0, 1))
    assert snapshots_of(again) == []


@pytest.mark.parametrize("table", [7, None, pa.table({"a": [1]})], ids=str)
def test_what_is_no_table_is_refused(table: object) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=r"give a name such as 'db\.t', a PyIceberg"):
        ice.append(table, ids(0, 1))  # type: ignore[arg-type]


_ROWS = pa.table({"id": range(2_000_000)})
_ROW_GROUP = "write.parquet.row-group-size-bytes"


@pytest.mark.parametrize("moment", ["cancel", "close"])
def test_no_thread_goes_on_and_no_row_is_lost(catalog: Catalog, moment: str) -> None:
    table = catalog.create_table("db.t", _ROWS.schema, properties={_ROW_GROUP: "1000000"})

    def rows() -> Iterator[pa.RecordBatch]:
        yield from _ROWS.to_batches(max_chunksize=100_000)
        raise KeyboardInterrupt

    with assert_no_leaks():
        with (
            mock.patch.object(EncodePool, moment, side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            ice.append(table, pa.RecordBatchReader.from_batches(_ROWS.schema, rows()))
        gc.collect()
    assert table.refresh().current_snapshot() is None
    (marker,) = [path for path in stored_files(folder_of(table)) if MARKER_PREFIX in path]
    ice.append(table, _ROWS.slice(0, 3))
    # What the first write has left stays as long as this process may still be about to use it.
    ice.orphans(table, older_than=0, delete=True)
    assert marker in stored_files(folder_of(table))
    assert referenced_files(table) <= stored_files(folder_of(table))


_CHANGES: dict[str, Callable[[Table, pa.Table], object]] = {
    "delete": lambda table, rows: ice.delete(table, "id > 100000"),
    "overwrite": lambda table, rows: ice.overwrite(table, rows, where="id > 100000"),
    "merge": lambda table, rows: ice.merge(table, rows, on="id"),
    "merge-on-read": lambda table, rows: ice.merge(
        table, rows, on="id", write_mode="merge-on-read"
    ),
    "compact": lambda table, rows: ice.compact(table),
}


@pytest.mark.parametrize("verb", _CHANGES)
def test_threads_and_files_are_closed_without_the_garbage_collector(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    rows = _ROWS.slice(0, 200_000)
    table = catalog.create_table("db.t", rows.schema, properties={_ROW_GROUP: "100000"})
    for _ in range(2):
        ice.append(table, rows.slice(1))
    submit, interrupts = EncodePool.submit, [KeyboardInterrupt()]

    def submit_and_interrupt(*arguments: object) -> None:
        submit(*arguments)
        raise KeyboardInterrupt

    def interrupt_once(pool: EncodePool) -> None:
        if interrupts:
            raise interrupts.pop()
        cancel(pool)

    cancel = EncodePool.cancel
    monkeypatch.setattr(EncodePool, "submit", submit_and_interrupt)
    monkeypatch.setattr(EncodePool, "cancel", interrupt_once)
    gc.disable()
    try:
        with assert_no_leaks(), pytest.raises(KeyboardInterrupt):
            _CHANGES[verb](table, rows)
    finally:
        gc.enable()
    assert not interrupts
