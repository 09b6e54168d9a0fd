"""Matches of a stream in memory: several with one key, and more than the limit holds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.loads import listing
from tests.support.merges import filled, found, stream


def test_duplicates_in_the_table_are_all_changed(catalog: SqlCatalog, mode: str) -> None:
    files = [[(1, 1, "a"), (2, 2, "b"), (1, 2, "c")], [(1, 3, "d"), (3, 3, "e")]]
    table = filled(catalog, *files)
    report = ice.merge(table, stream([(1, 9, "A"), (3, 3, "e")]), on="id", write_mode=mode)
    assert found(table) == [(1, 9, "A"), (1, 9, "A"), (1, 9, "A"), (2, 2, "b"), (3, 3, "e")]
    assert (report.rows_updated, report.rows_unchanged, report.target_duplicates) == (3, 1, 2)
    ice.merge(table, stream([(1, 9, "A")]), on="id", when_matched="delete", write_mode=mode)
    assert found(table) == [(2, 2, "b"), (3, 3, "e")]


def _rows(keys: np.ndarray) -> pa.Table:
    return pa.table({"id": keys, "text": pa.array(["a text of some length, " * 4] * len(keys))})


def _table(catalog: SqlCatalog, keys: np.ndarray) -> Table:
    table = catalog.create_table("db.limits", _rows(np.arange(1)).schema)
    ice.append(table, _rows(keys))
    return table


def _refused(table: Table, rows: pa.Table, **options: str) -> ice.MemoryBudgetError:
    before, location = listing(table), table.metadata_location
    with pytest.raises(ice.MemoryBudgetError) as refusal:
        ice.merge(table, rows.to_batches(max_chunksize=10_000), on="id", memory="16MB", **options)
    assert listing(table) == before
    assert table.refresh().metadata_location == location
    assert refusal.value.needed_bytes > refusal.value.limit_bytes == 16_000_000
    return refusal.value


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_one_row_that_matches_too_many(catalog: SqlCatalog, mode: str) -> None:
    table = _table(catalog, np.zeros(700_000, np.int64))
    error = _refused(table, _rows(np.zeros(1, np.int64)), write_mode=mode)
    assert "check that the key columns identify a row" in str(error)
    assert error.needed_bytes > 16_000_000
