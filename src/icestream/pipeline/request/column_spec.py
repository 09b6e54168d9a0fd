"""Columns in a request: the types of text columns, the columns to load, and the row filter."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator

from icestream.errors import InvalidArgumentError
from icestream.pipeline.request.validation import (
    NotBlank,
    error_at,
    expect,
    listed,
    locate_unknown_keys,
)
from icestream.write.rules.column_rules import SelectedColumn, constant
from icestream.write.sources.file_columns import plain_type

_ENTRY = "a name, {name: price, from: amount, type: double} or {name: country, value: NO}"
_KEYS = ("name", "from", "type", "value")
_VALUES = (str, int, float, bool, date, datetime, time, Decimal, bytes, type(None))


class ColumnEntry(BaseModel):
    """A column of `select`: renamed, cast, or constant."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(description="Name of the column in the table.")
    from_: str = Field("", alias="from", description="Column of the source; the name by default.")
    type: str = Field("", description="Type to cast to, such as decimal(10,2).")
    value: str | int | float | bool | None = Field(None, description="Value of a constant column.")


def _column_types(value: Any) -> pa.Schema:
    """Column types, from an Arrow schema or from names and type names."""
    if isinstance(value, pa.Schema):
        return value
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(
            f"schema is a {type(value).__name__}: give a pyarrow.Schema, or names and types such "
            "as {'id': 'int64', 'price': 'decimal(10,2)'}"
        )
    return pa.schema([(str(name), _type(str(name), kind)) for name, kind in value.items()])


def _type(name: str, kind: object, option: str = "schema") -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return kind
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    from icestream.catalogs.arrow_io import schema_to_pyarrow

    try:
        return pa.type_for_alias(str(kind))
    except ValueError:
        pass
    try:
        field_ = NestedField.model_validate(
            {"id": 1, "name": name, "type": str(kind), "required": False}
        )
        return schema_to_pyarrow(Schema(field_), include_field_ids=False).field(0).type
    except Exception:
        raise InvalidArgumentError(
            f"{option} says that {name!r} is {kind!r}: give an Arrow or Iceberg type, such as "
            "'int64', 'string', 'decimal(10, 2)', 'date' or 'timestamptz'"
        ) from None


def _selection(value: Any) -> tuple[SelectedColumn, ...]:
    entries = listed(value)
    if not isinstance(entries, tuple) or not entries:
        raise InvalidArgumentError(f"select lists no columns: give a list, each entry {_ENTRY}")
    columns: list[SelectedColumn] = []
    for number, entry in enumerate(entries):
        column = _selected(entry, number)
        if any(column.name == each.name for each in columns):
            raise error_at((number,), f"select has two columns with the name {column.name!r}")
        columns.append(column)
    return tuple(columns)


def _selected(entry: Any, number: int) -> SelectedColumn:
    if isinstance(entry, SelectedColumn):
        return entry
    if isinstance(entry, str) and entry.strip():
        return SelectedColumn(entry, entry)
    if not isinstance(entry, Mapping):
        raise error_at((number,), f"an entry of select is not valid: give {_ENTRY}")
    locate_unknown_keys("a column of select", entry, _KEYS, (number,))
    for key in ("name", "from"):
        text = entry.get(key, "a" if key == "from" else None)
        if not isinstance(text, str) or not text.strip():
            raise error_at((number,), f"a column of select needs a {key!r} that is text: {_ENTRY}")
    name = entry["name"]
    kind = entry.get("type")
    kind = None if kind is None else plain_type(_type(name, kind, "select"))
    if "value" not in entry:
        return SelectedColumn(name, entry.get("from", name), kind)
    value = entry["value"]
    if "from" in entry:
        both = f"column {name!r} of select has 'from' and 'value'"
        raise error_at((number, "from"), f"{both}: give one of them")
    if not isinstance(value, _VALUES):
        text = f"select gives {name!r} a {type(value).__name__}"
        raise error_at((number, "value"), f"{text}: give text, a number, a date, true or false")
    column = SelectedColumn(name, None, kind, value)
    try:
        return SelectedColumn(name, None, plain_type(constant(column).type), value)
    except ValueError as error:
        raise error_at((number, "value"), str(error)) from error


def _row_filter(where: str) -> str:
    from icestream.read.filters.fitting import parse_filter

    parse_filter(where)
    return where


ColumnTypes = Annotated[
    pa.Schema, PlainValidator(_column_types, json_schema_input_type=dict[str, str])
]
Selection = Annotated[
    tuple[SelectedColumn, ...],
    PlainValidator(_selection, json_schema_input_type=str | list[str | ColumnEntry]),
]
RowFilter = Annotated[NotBlank, AfterValidator(_row_filter), expect("give a filter, as in 'a > 0'")]
