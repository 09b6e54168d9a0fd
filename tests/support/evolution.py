"""Tables that went through schema evolution, with data files written before and after each step.

Every recipe takes a catalog and returns an `EvolvedTable`: the table, and the rows that a right
reader must give under the current schema, worked out by hand and not by any reader. `EVOLUTIONS`
lists them all, for parametrized tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from tests.support.data_files import add_orc_file, add_parquet_file

FileFormatName = Literal["parquet", "orc"]
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class EvolvedTable:
    """A table and the rows it must read as, ordered by `id`."""

    table: Table
    expected: Rows


def added_columns(catalog: Catalog, file_format: FileFormatName = "parquet") -> EvolvedTable:
    """Columns added at the end, in the middle and at the front: null in older files."""
    table = _create(catalog, "added", NestedField(1, "id", LongType(), required=True))
    _add(table, file_format, [{"id": 0}, {"id": 1}])
    with table.update_schema() as update:
        update.add_column("name", StringType())
    _add(table, file_format, [{"id": 2, "name": "two"}, {"id": 3, "name": None}])
    with table.update_schema() as update:
        update.add_column("flag", BooleanType())
        update.move_first("flag")
    _add(table, file_format, [{"flag": True, "id": 4, "name": "four"}])
    names = [None, None, "two", None, "four"]
    flags = [None, None, None, None, True]
    return EvolvedTable(
        table, [{"flag": flags[i], "id": i, "name": names[i]} for i in range(len(names))]
    )


def dropped_and_readded_column(
    catalog: Catalog, file_format: FileFormatName = "parquet"
) -> EvolvedTable:
    """A column dropped and added again under its old name: the old values must not come back."""
    table = _create(catalog, "readded", *_id_and(NestedField(2, "value", IntegerType())))
    _add(table, file_format, [{"id": 0, "value": 10}])
    with table.update_schema() as update:
        update.delete_column("value")
    _add(table, file_format, [{"id": 1}])
    with table.update_schema() as update:
        update.add_column("value", IntegerType())
    _add(table, file_format, [{"id": 2, "value": 30}])
    return EvolvedTable(table, [{"id": i, "value": [None, None, 30][i]} for i in range(3)])


def swapped_names(catalog: Catalog, file_format: FileFormatName = "parquet") -> EvolvedTable:
    """Two columns of one type that exchanged their names: resolved by id, never by name."""
    fields = NestedField(2, "left", StringType()), NestedField(3, "right", StringType())
    table = _create(catalog, "swapped", *_id_and(*fields))
    _add(table, file_format, [{"id": 0, "left": "L0", "right": "R0"}])
    for old, new in [("left", "hold"), ("right", "left"), ("hold", "right")]:
        with table.update_schema() as update:
            update.rename_column(old, new)
    _add(table, file_format, [{"id": 1, "left": "R1", "right": "L1"}])
    expected = [{"id": i, "right": f"L{i}", "left": f"R{i}"} for i in range(2)]
    return EvolvedTable(table, expected)


def reordered_columns(catalog: Catalog, file_format: FileFormatName = "parquet") -> EvolvedTable:
    """Columns moved to the front and behind others."""
    fields = NestedField(2, "a", IntegerType()), NestedField(3, "b", StringType())
    table = _create(catalog, "reordered", *_id_and(*fields))
    _add(table, file_format, [{"id": 0, "a": 1, "b": "x"}])
    with table.update_schema() as update:
        update.move_first("b")
        update.move_after("id", "a")
    _add(table, file_format, [{"b": "y", "a": 2, "id": 1}])
    return EvolvedTable(table, [{"b": "xy"[i], "a": i + 1, "id": i} for i in range(2)])


def promoted_types(catalog: Catalog, file_format: FileFormatName = "parquet") -> EvolvedTable:
    """int to long, float to double and a wider decimal; values that only the wider type holds."""
    table = _create(
        catalog,
        "promoted",
        *_id_and(
            NestedField(2, "count", IntegerType()),
            NestedField(3, "ratio", FloatType()),
            NestedField(4, "price", DecimalType(9, 2)),
            NestedField(5, "counts", ListType(6, IntegerType(), element_required=False)),
        ),
    )
    narrow = {"count": 2**31 - 1, "ratio": 0.5, "price": Decimal("9999999.99"), "counts": [1, None]}
    _add(table, file_format, [{"id": 0, **narrow}, {"id": 1}])
    with table.update_schema() as update:
        update.update_column("count", LongType())
        update.update_column("ratio", DoubleType())
        update.update_column("price", DecimalType(20, 2))
        update.update_column(("counts", "element"), LongType())
    wide = {"count": 2**31, "ratio": 0.1, "price": Decimal(10**17), "counts": [2**40]}
    _add(table, file_format, [{"id": 2, **wide}])
    nothing = dict.fromkeys(narrow)
    return EvolvedTable(table, [{"id": i, **(narrow, nothing, wide)[i]} for i in range(3)])


def nested_changes(catalog: Catalog, file_format: FileFormatName = "parquet") -> EvolvedTable:
    """Fields added, renamed and dropped in a struct, a list's struct and a map's struct."""
    table = _create(
        catalog,
        "nested",
        *_id_and(
            NestedField(2, "info", _struct(10)),
            NestedField(3, "items", ListType(4, _struct(20), element_required=False)),
            NestedField(
                5, "by_key", MapType(6, StringType(), 7, _struct(30), value_required=False)
            ),
        ),
    )
    old = {"name": "n", "gone": 1}
    _add(
        table,
        file_format,
        [
            {"id": 0, "info": old, "items": [old, None], "by_key": [("k", old), ("none", None)]},
            {"id": 1, "info": None, "items": [], "by_key": []},
        ],
    )
    for path in [("info",), ("items", "element"), ("by_key", "value")]:
        with table.update_schema() as update:
            update.delete_column((*path, "gone"))
            update.rename_column((*path, "name"), "title")
            update.add_column((*path, "size"), LongType())
    new = {"title": "t", "size": 7}
    _add(
        table,
        file_format,
        [{"id": 2, "info": new, "items": [new], "by_key": [("k", new)]}],
    )
    seen = {"title": "n", "size": None}
    return EvolvedTable(
        table,
        [
            {"id": 0, "info": seen, "items": [seen, None], "by_key": [("k", seen), ("none", None)]},
            {"id": 1, "info": None, "items": [], "by_key": []},
            {"id": 2, "info": new, "items": [new], "by_key": [("k", new)]},
        ],
    )


def loosened_requirement(catalog: Catalog, file_format: FileFormatName = "parquet") -> EvolvedTable:
    """A required column made optional."""
    field = NestedField(2, "value", IntegerType(), required=True)
    table = _create(catalog, "loosened", *_id_and(field))
    _add(table, file_format, [{"id": 0, "value": 1}])
    with table.update_schema() as update:
        update.make_column_optional("value")
    _add(table, file_format, [{"id": 1, "value": None}])
    return EvolvedTable(table, [{"id": 0, "value": 1}, {"id": 1, "value": None}])


EVOLUTIONS: dict[str, Callable[..., EvolvedTable]] = {
    recipe.__name__: recipe
    for recipe in (
        added_columns,
        dropped_and_readded_column,
        swapped_names,
        reordered_columns,
        promoted_types,
        nested_changes,
        loosened_requirement,
    )
}


def _id_and(*fields: NestedField) -> Iterable[NestedField]:
    return NestedField(1, "id", LongType(), required=True), *fields


def _struct(first_id: int) -> StructType:
    return StructType(
        NestedField(first_id, "name", StringType()),
        NestedField(first_id + 1, "gone", IntegerType()),
    )


def _create(catalog: Catalog, name: str, *fields: NestedField) -> Table:
    catalog.create_namespace_if_not_exists("evolved")
    return catalog.create_table(f"evolved.{name}", Schema(*fields))


def _add(table: Table, file_format: FileFormatName, rows: Rows) -> None:
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    add = add_orc_file if file_format == "orc" else add_parquet_file
    add(table, pa.Table.from_pylist(rows, schema=schema))
