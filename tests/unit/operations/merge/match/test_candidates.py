"""Files that statistics rule out are not opened: their bytes are spoilt here."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)

import icestream as ice
from tests.support.merges import stream
from tests.support.tables import data_file_paths


def _table(catalog: SqlCatalog, kind: IcebergType, files: list[list[Any]]) -> Table:
    """A file for each list of keys."""
    schema = Schema(
        NestedField(1, "key", kind, required=False),
        NestedField(2, "value", LongType(), required=False),
    )
    table = catalog.create_table("db.t", schema, properties={"format-version": "2"})
    for keys in files:
        ice.append(table, _rows(keys, 0))
    return table


def _rows(keys: list[Any], value: int) -> pa.Table:
    kind = pa.decimal128(9, 2) if isinstance(keys[0], Decimal) else None
    return pa.table({"key": pa.array(keys, kind), "value": [value] * len(keys)})


def _spoil(table: Table, *numbers: int) -> None:
    paths = data_file_paths(table)
    for number in numbers:
        Path(paths[number].removeprefix("file://")).write_bytes(b"spoilt")


def _day(number: int) -> dt.date:
    return dt.date(2024, 1, 1) + dt.timedelta(days=number)


def _moment(number: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=number)


_MAKERS: dict[str, tuple[IcebergType, Any]] = {
    "long": (LongType(), lambda n: n - 50),
    "date": (DateType(), _day),
    "timestamptz": (TimestamptzType(), _moment),
    "string": (StringType(), lambda n: f"{n:05}"),
    "decimal": (DecimalType(9, 2), lambda n: Decimal(f"{n}.00")),
}


@pytest.mark.parametrize("name", _MAKERS)
def test_files_outside_of_the_range_are_not_read(catalog: SqlCatalog, mode: str, name: str) -> None:
    kind, make = _MAKERS[name]
    keys = [[make(n) for n in range(start, start + 10)] for start in (0, 20, 40)]
    table = _table(catalog, kind, keys)
    _spoil(table, 0, 2)
    report = ice.merge(table, _rows([make(20), make(29)], 1), on="key", write_mode=mode)
    assert (report.files_read, report.rows_updated) == (1, 2)


@pytest.mark.parametrize("name", ["long", "date", "timestamptz"])
def test_files_in_a_gap_between_the_keys_are_not_read(
    catalog: SqlCatalog, mode: str, name: str
) -> None:
    kind, make = _MAKERS[name]
    keys = [[make(n) for n in range(start, start + 10)] for start in (0, 20, 40)]
    table = _table(catalog, kind, keys)
    _spoil(table, 1)
    given = [make(9), make(10), make(19), make(30), make(40)]
    report = ice.merge(table, _rows(given, 1), on="key", write_mode=mode)
    assert (report.files_read, report.rows_updated, report.rows_inserted) == (2, 2, 3)


@pytest.mark.parametrize("kind", [DoubleType(), UUIDType()], ids=str)
def test_types_without_a_usable_order_are_looked_for_everywhere(
    catalog: SqlCatalog, mode: str, kind: IcebergType
) -> None:
    make = float if isinstance(kind, DoubleType) else lambda n: bytes([n] * 16)
    table = _table(catalog, kind, [[make(n) for n in (start, start + 1)] for start in (0, 10)])
    report = ice.merge(table, _rows([make(10)], 1), on="key", write_mode=mode)
    assert (report.files_read, report.rows_updated) == (2, 1)


def test_files_with_long_texts_are_read_by_their_cut_bounds(catalog: SqlCatalog, mode: str) -> None:
    """Statistics hold the first sixteen characters, the upper one rounded up."""
    common = "x" * 30
    table = _table(catalog, StringType(), [[f"{common}{n}" for n in range(3)], ["a"], ["z"]])
    _spoil(table, 1, 2)
    rows = _rows([f"{common}1", f"{common}2"], 1)
    report = ice.merge(table, rows, on="key", write_mode=mode)
    assert (report.files_read, report.rows_updated) == (1, 2)


def test_a_file_of_null_keys_is_passed_over_or_read_without_harm(
    catalog: SqlCatalog, mode: str
) -> None:
    table = _table(catalog, LongType(), [[1, 2]])
    nulls = pa.table({"key": pa.array([None, None], pa.int64()), "value": [7, 8]})
    ice.append(table, nulls)
    assert ice.merge(table, _rows([2, 0], 1), on="key", write_mode=mode).rows_updated == 1
    assert sorted(table.refresh().scan().to_arrow()["value"].to_pylist()) == [0, 1, 1, 7, 8]


# Which rows of the stream delete


@pytest.mark.parametrize(
    ("flag", "where"),
    [
        (pa.array(["D", "U"]), "flag = 'D'"),
        (pa.array(["D", "U"], pa.large_string()), "flag in ('D', 'X')"),
        (pa.array(["D", "U"], pa.string_view()), "flag = 'D'"),
        (pa.array([True, False]), "flag = true"),
        (pa.array([1, 0], pa.int8()), "flag = 1"),
        (pa.array([1, 0], pa.uint16()), "flag > 0"),
        (pa.array([1.5, None]), "flag is not null"),
        (pa.array([dt.date(2024, 1, 2), dt.date(2024, 1, 1)]), "flag > '2024-01-01'"),
        (pa.array(["D", "U"]).dictionary_encode(), "flag = 'D' and part = 9"),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_flags_of_many_types_say_which_rows_go(
    catalog: SqlCatalog, flag: pa.Array, where: str
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "part", LongType(), required=False),
        NestedField(3, "text", StringType(), required=False),
    )
    table = catalog.create_table("db.t", schema, properties={"format-version": "2"})
    ice.append(table, stream([(1, 1, "a"), (2, 2, "b")]))
    rows = stream([(1, 9, "x"), (2, 9, "y")], flag=flag)
    report = ice.merge(table, rows, on="id", delete_when=where)
    assert (report.rows_deleted, report.rows_updated) == (1, 1)
    assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 2, "part": 9, "text": "y"}]
