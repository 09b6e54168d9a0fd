"""Keys of every type, of several columns, and of fields of structs."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import icestream as ice
from tests.support.merges import filled, found, stream

_NAN = float("nan")
_NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 123_456)
_KEYS: list[tuple[str, IcebergType, list[Any]]] = [
    ("int", IntegerType(), [-(2**31), -1, 0, 2**31 - 1]),
    ("long", LongType(), [-(2**63), -1, 0, 2**63 - 1]),
    ("string", StringType(), ["", "a", "a\0", "\U0001f9ca" * 30]),
    ("uuid", UUIDType(), [uuid.UUID(int=n).bytes for n in (0, 1, 2**127, 2**128 - 1)]),
    ("decimal9", DecimalType(9, 2), [Decimal(v) for v in ("-9999999.99", "0.00", "0.01", "1.00")]),
    ("decimal38", DecimalType(38, 0), [Decimal(v) for v in (-(10**37), 0, 1, 10**37)]),
    ("date", DateType(), [dt.date.min, dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date.max]),
    ("time", TimeType(), [dt.time(0), dt.time(0, 0, 0, 1), dt.time(12), dt.time.max]),
    ("timestamp", TimestampType(), [_NOON - dt.timedelta(days=d) for d in (0, 1, 20_000, 40_000)]),
    (
        "timestamptz",
        TimestamptzType(),
        [_NOON.replace(tzinfo=dt.UTC) - dt.timedelta(days=d) for d in (0, 1, 20_000, 40_000)],
    ),
    ("binary", BinaryType(), [b"", b"\0", b"\0\0", b"\xff" * 100]),
    ("fixed", FixedType(5), [b"\0" * 5, b"\0\0\0\0\1", b"hello", b"\xff" * 5]),
    ("float", FloatType(), [_NAN, 0.0, 1.5, float("-inf")]),
    ("double", DoubleType(), [_NAN, 0.0, 1e300, float("-inf")]),
]


def _table(catalog: SqlCatalog, kind: IcebergType) -> Table:
    schema = Schema(
        NestedField(1, "key", kind, required=False),
        NestedField(2, "value", StringType(), required=False),
    )
    return catalog.create_table("db.t", schema, properties={"format-version": "2"})


def _rows(table: Table, keys: list[Any], values: list[str]) -> pa.Table:
    kind = schema_to_pyarrow(table.schema(), include_field_ids=False).field("key").type
    storage = pa.binary(16) if isinstance(kind, pa.UuidType) else kind
    column = pa.array(keys, storage).cast(kind)
    return pa.table({"key": column, "value": pa.array(values, pa.string())})


def _values(table: Table) -> list[str]:
    return sorted(table.refresh().scan().to_arrow()["value"].to_pylist())


@pytest.mark.parametrize(("kind", "keys"), [k[1:] for k in _KEYS], ids=[k[0] for k in _KEYS])
def test_every_type_can_be_a_key(
    catalog: SqlCatalog, mode: str, kind: IcebergType, keys: list[Any]
) -> None:
    table = _table(catalog, kind)
    ice.append(table, _rows(table, keys[:3], ["0", "1", "2"]))
    report = ice.merge(
        table, _rows(table, keys[::-1], ["d", "c", "b", "a"]), write_mode=mode, on="key"
    )
    assert (report.rows_updated, report.rows_inserted) == (3, 1)
    assert _values(table) == ["a", "b", "c", "d"]
    again = ice.merge(table, _rows(table, keys, ["a", "b", "c", "d"]), write_mode=mode, on="key")
    assert (again.rows_unchanged, again.snapshot_id) == (4, None)
    gone = _rows(table, [keys[0], keys[3]], ["", ""])
    ice.merge(table, gone, on="key", when_matched="delete", write_mode=mode)
    assert _values(table) == ["b", "c"]


def test_a_bool_can_be_a_key(catalog: SqlCatalog, mode: str) -> None:
    table = _table(catalog, BooleanType())
    ice.append(table, _rows(table, [True, None], ["true", "null"]))
    rows = _rows(table, [False, True], ["FALSE", "TRUE"])
    report = ice.merge(table, rows, on="key", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (1, 1)
    assert _values(table) == ["FALSE", "TRUE", "null"]


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
def test_zeros_are_equal_and_so_is_every_nan(
    catalog: SqlCatalog, mode: str, kind: IcebergType
) -> None:
    table = _table(catalog, kind)
    ice.append(table, _rows(table, [-0.0, -_NAN, 5.0], ["zero", "nan", "five"]))
    report = ice.merge(table, _rows(table, [0.0, _NAN], ["ZERO", "NAN"]), on="key", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (2, 0)
    assert _values(table) == ["NAN", "ZERO", "five"]
    with pytest.raises(ice.DuplicateKeysError):
        ice.merge(table, _rows(table, [0.0, -0.0], ["a", "b"]), on="key", write_mode=mode)


@pytest.mark.parametrize(
    ("kind", "far"),
    [(TimestampType(), 2**62), (TimestamptzType(), -(2**62)), (DateType(), 2**31 - 1)],
    ids=["timestamp", "timestamptz", "date"],
)
def test_moments_that_python_has_no_value_for_are_looked_up_too(
    catalog: SqlCatalog, mode: str, kind: IcebergType, far: int
) -> None:
    table = _table(catalog, kind)
    key = schema_to_pyarrow(table.schema(), include_field_ids=False).field("key").type
    numbers = pa.int32() if isinstance(kind, DateType) else pa.int64()
    near = pa.array([0, 1000], numbers).cast(key)
    ice.append(table, pa.table({"key": near, "value": ["0", "1"]}))
    column = pa.array([far, 1000], numbers).cast(key)
    rows = pa.table({"key": column, "value": ["far", "new"]})
    report = ice.merge(table, rows, on="key", when_not_matched="ignore", write_mode=mode)
    assert report.rows_updated == 1
    assert _values(table) == ["0", "new"]


def test_a_key_of_several_columns_matches_as_a_whole(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, [(1, 1, "a"), (1, 2, "b"), (2, 1, "c")])
    rows = [(1, 2, "B"), (2, 1, "C"), (2, 2, "d")]
    assert ice.merge(table, stream(rows), on=["part", "id"], write_mode=mode).rows_updated == 2
    assert found(table) == [(1, 1, "a"), (1, 2, "B"), (2, 1, "C"), (2, 2, "d")]


def test_columns_of_a_key_do_not_run_together(catalog: SqlCatalog, mode: str) -> None:
    names = ["one", "two", "value"]
    schema = Schema(
        *(NestedField(n, name, StringType(), required=False) for n, name in enumerate(names, 1))
    )
    table = catalog.create_table("db.t", schema, properties={"format-version": "2"})
    old = [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", ""), ("x" * 8, "y" * 9)]
    ice.append(table, pa.table([*zip(*old, strict=True), ["old"] * 5], names=names))
    new = [("ab", "c"), ("", "abc"), ("x" * 9, "y" * 8)]
    columns = [*zip(*new, strict=True), ["new"] * 3]
    ice.merge(table, pa.table(columns, names=names), on=["one", "two"], write_mode=mode)
    kept = [(*row, "new" if row in new else "old") for row in old]
    assert found(table) == sorted([*kept, ("x" * 9, "y" * 8, "new")])


def _nested(catalog: SqlCatalog) -> Table:
    who = StructType(
        NestedField(3, "name", StringType(), required=False),
        NestedField(4, "number", LongType(), required=False),
    )
    schema = Schema(
        NestedField(1, "who", who, required=False),
        NestedField(2, "value", StringType(), required=False),
        NestedField(5, "many", ListType(6, LongType(), element_required=False), required=False),
    )
    return catalog.create_table("db.t", schema, properties={"format-version": "2"})


def test_a_field_of_a_struct_can_be_a_key(catalog: SqlCatalog, mode: str) -> None:
    table = _nested(catalog)
    rows = [{"name": "a", "number": 1}, {"name": "b", "number": 2}, None]
    ice.append(table, pa.table({"who": rows, "value": ["x", "y", "z"]}))
    new = pa.table({"who": [{"name": "B", "number": 2}, rows[0]], "value": ["Y", "x"]})
    report = ice.merge(table, new, on="who.number", write_mode=mode)
    assert (report.rows_updated, report.rows_unchanged) == (1, 1)
    left = table.refresh().scan().to_arrow().to_pylist()
    assert sorted((row["value"], (row["who"] or {}).get("name")) for row in left) == [
        ("Y", "B"),
        ("x", "a"),
        ("z", None),
    ]
    null = pa.table({"who": pa.array([None], new["who"].type), "value": ["n"]})
    with pytest.raises(ice.InvalidDataError, match=r"who\.number"):
        ice.merge(table, null, on="who.number", write_mode=mode)


@pytest.mark.parametrize(
    ("on", "message"),
    [("who", "single values"), ("many", "single values"), ("many.element", "list")],
)
def test_other_nested_columns_can_not(catalog: SqlCatalog, on: str, message: str) -> None:
    table = _nested(catalog)
    with pytest.raises(ice.InvalidArgumentError, match=message):
        ice.merge(table, pa.table({"value": ["x"]}), on=on)
