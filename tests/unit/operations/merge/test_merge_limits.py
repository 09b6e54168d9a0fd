"""Merges that no way of doing them fits in the limit are refused, and nothing is left."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.loads import listing


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


def test_too_many_rows_of_one_key(catalog: SqlCatalog) -> None:
    table = _table(catalog, np.arange(10))
    rows = _rows(np.zeros(200_000, np.int64))
    error = _refused(table, rows, on_duplicate="last")
    assert "have the same key" in str(error)
    report = ice.merge(
        table, rows, on="id", on_duplicate="last", memory=max(error.needed_bytes, 128_000_000)
    )
    assert report.rows_superseded == 199_999


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_one_row_that_matches_too_many(catalog: SqlCatalog, mode: str) -> None:
    table = _table(catalog, np.zeros(700_000, np.int64))
    error = _refused(table, _rows(np.zeros(1, np.int64)), write_mode=mode)
    assert "check that the key columns identify a row" in str(error)
    assert error.needed_bytes > 16_000_000
