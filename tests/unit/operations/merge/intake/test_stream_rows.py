"""Rows of the stream: null keys, and the rows that a merge leaves out."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.support.merges import filled, found, nothing_in_vain, stream


def test_null_keys_are_refused_with_an_example(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, [(1, 1, "a")])
    rows = stream([(5, 1, "x"), (6, 1, "y"), (7, None, "n"), (None, 8, "m"), (8, 1, "z")])
    with pytest.raises(ice.InvalidDataError) as refusal:
        ice.merge(table, rows.to_batches(max_chunksize=2), on=["id", "part"], write_mode=mode)
    assert "a null in the key of 2 rows of the stream" in str(refusal.value)
    assert "id = 7, part = None" in str(refusal.value)
    assert "row 2, counted from 0" in str(refusal.value)
    assert found(table) == [(1, 1, "a")]
    assert nothing_in_vain(table)


def test_null_keys_can_be_inserted_and_match_nothing(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, [(1, 1, "a"), (None, 2, "b")])
    rows = stream([(None, 3, "c"), (1, 1, "A"), (None, 3, "c"), (None, 4, "d")])
    report = ice.merge(table, rows, on="id", null_keys="insert", write_mode=mode)
    assert (report.rows_inserted, report.rows_updated) == (3, 1)
    expected = [(None, 2, "b"), (None, 3, "c"), (None, 3, "c"), (None, 4, "d"), (1, 1, "A")]
    assert found(table) == expected
    only = ice.merge(table, stream([(None, 9, "e")]), on="id", null_keys="insert", write_mode=mode)
    assert (only.rows_inserted, only.files_read) == (1, 0)
    gone = {"null_keys": "insert", "delete_when": "part > 0", "write_mode": mode}
    assert ice.merge(table, stream([(None, 9, "e")]), on="id", **gone).snapshot_id is None


def test_null_keys_are_left_out_where_nothing_is_inserted(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, [(1, 1, "a"), (None, 2, "b")])
    rows = stream([(None, 2, "c"), (1, 1, "A")])
    options = {"null_keys": "insert", "when_not_matched": "ignore", "write_mode": mode}
    ice.merge(table, rows, on="id", **options)
    assert found(table) == [(None, 2, "b"), (1, 1, "A")]
