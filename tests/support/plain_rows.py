"""Rows as plain Python values, so that those of different engines compare.

Engines choose other Arrow types for the same Iceberg type: text for uuids, large lists, times in
nanoseconds. The table's schema says what a value stands for.
"""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    StructType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

Row = dict[str, Any]


def plain_rows(rows: pa.Table, schema: Schema) -> list[Row]:
    """Return the rows of a table in order of `id`, each value as its Iceberg type means it.

    Floats become their text, so that NaN equals NaN and 0.0 is not -0.0; map entries are sorted.
    """
    expected = [field.name for field in schema.fields]
    if rows.column_names != expected:
        raise AssertionError(f"columns are {rows.column_names}, not {expected}")
    columns = []
    for field in schema.fields:
        values = rows[field.name]
        if isinstance(field.field_type, TimeType):
            values = values.cast(pa.time64("us"))
        columns.append([_plain(value, field.field_type) for value in values.to_pylist()])
    plain = [dict(zip(expected, values, strict=True)) for values in zip(*columns, strict=True)]
    return sorted(plain, key=lambda row: row["id"])


def _plain(value: Any, kind: IcebergType) -> Any:
    if value is None:
        return None
    if isinstance(kind, StructType):
        if set(value) != {field.name for field in kind.fields}:
            raise AssertionError(f"fields are {sorted(value)}, not those of {kind}")
        return {field.name: _plain(value[field.name], field.field_type) for field in kind.fields}
    if isinstance(kind, ListType):
        return [_plain(element, kind.element_type) for element in value]
    if isinstance(kind, MapType):
        pairs = [(_plain(k, kind.key_type), _plain(v, kind.value_type)) for k, v in _pairs(value)]
        return sorted(pairs, key=lambda pair: repr(pair[0]))
    if isinstance(kind, UUIDType):
        return _uuid(value)
    if isinstance(kind, FloatType | DoubleType):
        return repr(float(value))
    if isinstance(kind, TimestamptzType):
        return value.timestamp(), value.utcoffset().total_seconds()
    if isinstance(kind, BinaryType | FixedType):
        return bytes(value)
    return value


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    entries = value.items() if isinstance(value, dict) else value
    return [(e["key"], e["value"]) if isinstance(e, dict) else tuple(e) for e in entries]


def _uuid(value: Any) -> uuid.UUID:
    if isinstance(value, uuid.UUID):
        return value
    return uuid.UUID(value) if isinstance(value, str) else uuid.UUID(bytes=bytes(value))


def differences(found: list[Row], expected: list[Row], *, most: int = 5) -> list[str]:
    """Say where rows differ: the ids that are missing or too many, then values, at most `most`."""
    ids, wanted = [row["id"] for row in found], [row["id"] for row in expected]
    if ids != wanted:
        return [f"ids are {_short(ids)}, not {_short(wanted)}"]
    return [
        f"id {row['id']}, {name}: {row[name]!r}, not {right[name]!r}"
        for row, right in zip(found, expected, strict=True)
        for name in right
        if row[name] != right[name]
    ][:most]


def _short(ids: list[Any]) -> str:
    return f"{len(ids)} ({str(ids)[:80]})"
