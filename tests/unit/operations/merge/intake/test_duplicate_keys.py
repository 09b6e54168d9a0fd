"""Rows of a stream with the same key: they are refused, or the last one counts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from tests.support.loads import snapshots_of
from tests.support.merges import filled, found, nothing_in_vain, stream


def test_duplicates_in_the_stream_are_refused_with_examples(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, [(1, 1, "a")])
    rows = stream([(n % 10, n, "x") for n in range(16)]).to_batches(max_chunksize=3)
    with pytest.raises(ice.DuplicateKeysError) as refusal:
        ice.merge(table, rows, on="id", write_mode=mode)
    assert "12 rows of the stream repeat the key" in str(refusal.value)
    assert refusal.value.column == "id"
    assert len(refusal.value.examples) == 5
    assert set(refusal.value.examples) <= {f"id = {n}" for n in range(6)}
    assert found(table) == [(1, 1, "a")]
    assert len(snapshots_of(table)) == 1
    assert nothing_in_vain(table)


def test_the_last_of_duplicates_can_count(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, [(1, 1, "a"), (2, 2, "b")])
    rows = stream([(1, 9, "x"), (3, 1, "y"), (1, 8, "w"), (3, 0, "v"), (1, 7, "A"), (3, 5, "c")])
    report = ice.merge(
        table, rows.to_batches(max_chunksize=2), on="id", on_duplicate="last", write_mode=mode
    )
    assert found(table) == [(1, 7, "A"), (2, 2, "b"), (3, 5, "c")]
    assert (report.rows_superseded, report.rows_updated, report.rows_inserted) == (4, 1, 1)


def test_the_last_may_be_one_that_deletes(catalog: SqlCatalog, mode: str) -> None:
    """Changes of one row in order: inserted, updated, deleted, and once more inserted."""
    table = filled(catalog, [(1, 1, "a"), (2, 2, "b")])
    rows = stream(
        [(1, 1, "x"), (1, 1, ""), (3, 3, "y"), (3, 3, ""), (2, 2, ""), (2, 5, "B")],
        op=pa.array(["U", "D", "I", "D", "D", "I"]),
    )
    options = {"on_duplicate": "last", "delete_when": "op = 'D'", "write_mode": mode}
    report = ice.merge(table, rows, on="id", **options)
    assert found(table) == [(2, 5, "B")]
    assert (report.rows_deleted, report.rows_updated, report.rows_inserted) == (1, 1, 0)


@pytest.mark.parametrize("in_table", [True, False])
def test_a_column_can_say_which_is_last(catalog: SqlCatalog, mode: str, in_table: bool) -> None:
    """Null is lowest, and of equal values the later row counts."""
    table = filled(catalog, [(1, 1, "a")])
    moments = [5, None, 5, None, None, 3, None, -1]
    rows = [(1, 5, "x"), (1, None, "w"), (1, 5, "A"), (2, None, "v"), (2, None, "B")]
    rows += [(3, 3, "C"), (3, None, "u"), (3, -1, "t")]
    if in_table:
        given, last_by = stream(rows), "part"
    else:
        given, last_by = stream(rows, at=pa.array(moments, pa.timestamp("us"))), "at"
    report = ice.merge(
        table,
        given.to_batches(max_chunksize=1),
        on="id",
        on_duplicate="last",
        last_by=last_by,
        write_mode=mode,
    )
    assert found(table) == [(1, 5, "A"), (2, None, "B"), (3, 3, "C")]
    assert report.rows_superseded == 5
