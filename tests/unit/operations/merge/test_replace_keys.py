"""All rows of some keys are replaced, in one snapshot and inside the limit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from icestream.operations.append import append
from icestream.operations.merge.replace_keys import replace_keys

_SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])


def _rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v} for k, v in pairs], _SCHEMA)


def _keys(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def _stored(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.refresh().scan().to_arrow().to_pylist())


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_of_the_keys_are_replaced_whatever_their_number(
    catalog: SqlCatalog, mode: str
) -> None:
    table = catalog.create_table("db.t", _SCHEMA, properties={"write.merge.mode": mode})
    append(table, _rows((1, "a"), (1, "b"), (2, "c"), (3, "d")))
    append(table, _rows((3, "e"), (4, "f")))
    report = replace_keys(
        table, _rows((1, "x"), (5, "y"), (5, "z")), keys=_keys(1, 3, 5, 3), on=["k"], load_id="a"
    )
    assert _stored(table) == [(1, "x"), (2, "c"), (4, "f"), (5, "y"), (5, "z")]
    assert (report.rows_inserted, report.rows_deleted) == (3, 4)
    assert len(table.metadata.snapshots) == 3
    again = replace_keys(table, _rows((1, "x")), keys=_keys(1), on=["k"], load_id="a")
    assert again.already_committed


def test_keys_without_new_rows_are_deleted_and_a_new_column_is_added(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", _SCHEMA)
    append(table, _rows((1, "a"), (2, "b")))
    replace_keys(table, iter(()), keys=_keys(1), on=["k"])
    assert _stored(table) == [(2, "b")]
    wider = _rows((3, "c")).append_column("w", pa.array([7]))
    replace_keys(table, wider, keys=_keys(3), on=["k"], schema_mode="evolve")
    assert _stored(table) == [(2, "b", None), (3, "c", 7)]
    assert len(table.metadata.snapshots) == 3


def test_keys_that_do_not_fit_in_memory_are_spilled(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", _SCHEMA)
    count = 200_000
    values = pa.array([f"value {n:0100d}" for n in range(count)])
    stored = pa.table([pa.array(range(count)), values], schema=_SCHEMA)
    append(table, stored)
    report = replace_keys(
        table, stored.slice(0, 1000), keys=_keys(*range(count - 10)), on=["k"], memory="16MB"
    )
    assert report.bytes_spilled
    assert report.peak_bytes_held <= 1.05 * report.memory_limit_bytes
    assert [key for key, _ in _stored(table)] == [*range(1000), *range(count - 10, count)]
