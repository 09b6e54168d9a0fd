"""Required columns: rows that are never written need not have them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

import icestream as ice

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=True),
    NestedField(3, "size", LongType(), required=True),
    identifier_field_ids=[1],
)
_MODES = pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = catalog.create_table("db.required", _SCHEMA)
    ice.append(table, _rows({1: ("a", 1), 2: ("b", 2), 3: ("c", 3)}))
    return table


def _rows(rows: dict[int, tuple[str, int]]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "name": [name for name, _ in rows.values()],
            "size": [size for _, size in rows.values()],
        }
    )


def _found(table: Table) -> dict[int, tuple[str, int]]:
    rows = table.refresh().scan().to_arrow().to_pylist()
    return {row["id"]: (row["name"], row["size"]) for row in sorted(rows, key=lambda r: r["id"])}


@_MODES
@pytest.mark.parametrize("schema_mode", ["freeze", "evolve", "discard"])
def test_keys_alone_delete(table: Table, mode: str, schema_mode: str) -> None:
    report = ice.merge(
        table,
        pa.table({"id": [2, 9]}),
        when_matched="delete",
        when_not_matched="ignore",
        write_mode=mode,
        schema_mode=schema_mode,
    )
    assert (report.rows_deleted, report.schema_changes) == (1, ())
    assert _found(table) == {1: ("a", 1), 3: ("c", 3)}
    assert all(field.required for field in table.schema().fields)


@_MODES
@pytest.mark.parametrize("schema_mode", ["freeze", "evolve", "discard"])
def test_an_update_need_not_give_all_columns(table: Table, mode: str, schema_mode: str) -> None:
    report = ice.merge(
        table,
        pa.table({"id": [2, 9], "size": [20, 90]}),
        when_not_matched="ignore",
        write_mode=mode,
        schema_mode=schema_mode,
    )
    assert (report.rows_updated, report.schema_changes) == (1, ())
    assert _found(table) == {1: ("a", 1), 2: ("b", 20), 3: ("c", 3)}
    assert all(field.required for field in table.schema().fields)


@_MODES
@pytest.mark.parametrize("schema_mode", ["freeze", "evolve", "discard"])
def test_rows_that_delete_may_have_nulls_for_the_rest(
    table: Table, mode: str, schema_mode: str
) -> None:
    feed = pa.table(
        {
            "id": [1, 3, 9, 4],
            "name": ["A", None, None, "d"],
            "size": [10, None, None, 4],
            "op": ["U", "D", "D", "I"],
        }
    )
    report = ice.merge(
        table, feed, delete_when="op = 'D'", write_mode=mode, schema_mode=schema_mode
    )
    assert (report.rows_updated, report.rows_deleted, report.rows_inserted) == (1, 1, 1)
    assert report.schema_changes == ()
    assert _found(table) == {1: ("A", 10), 2: ("b", 2), 4: ("d", 4)}


def test_the_last_of_several_rows_counts_also_where_some_delete(table: Table) -> None:
    feed = pa.table(
        {
            "id": [1, 1, 2, 2],
            "name": ["A", None, None, "B"],
            "size": [10, None, None, 20],
            "op": ["U", "D", "D", "I"],
        }
    )
    ice.merge(table, feed, delete_when="op = 'D'", on_duplicate="last")
    assert _found(table) == {2: ("B", 20), 3: ("c", 3)}


def test_other_rows_may_not_have_nulls(table: Table) -> None:
    feed = pa.table({"id": [1, 3], "name": [None, None], "size": [1, 1], "op": ["U", "D"]})
    feed = feed.set_column(1, "name", pa.nulls(2, pa.string()))
    with pytest.raises(ice.InvalidDataError, match="'name'"):
        ice.merge(table, feed, delete_when="op = 'D'")
    assert _found(table) == {1: ("a", 1), 2: ("b", 2), 3: ("c", 3)}


def test_rows_that_may_be_inserted_need_all_columns(table: Table) -> None:
    with pytest.raises(ice.SchemaMismatchError, match="'name'"):
        ice.merge(table, pa.table({"id": [2], "size": [20]}))
