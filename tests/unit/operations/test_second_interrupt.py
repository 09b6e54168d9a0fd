"""A second Ctrl-C, while the first one is cleaned up after."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.in_flight import MARKER_PREFIX
from icestream.write.parquet.encode_pool import EncodePool
from tests.support.leaks import assert_no_leaks
from tests.support.stored import folder_of, referenced_files, stored_files

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
