"""Primitive types: which arrays become which, value by value, and which are refused."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import icestream as ice
from icestream.read.project.conversion import convert_primitive
from tests.support.foreign_files import add_foreign_file
from tests.support.scans import table_of
from tests.support.tables import add_orc_file, create_v3_table

_ONE_UUID = UUID(int=2**127 + 1)


def _converted(array: pa.Array, kind: PrimitiveType, *, downcast_ns: bool = True) -> pa.Array:
    target = schema_to_pyarrow(kind)
    convert = convert_primitive(array.type, target, kind, downcast_ns=downcast_ns)
    assert convert is not None, f"{array.type} is refused for {kind}"
    got = convert(array)
    assert got.type == target
    got.validate(full=True)
    return got


def _is_refused(source: pa.DataType, kind: PrimitiveType, *, downcast_ns: bool = True) -> bool:
    target = schema_to_pyarrow(kind)
    return convert_primitive(source, target, kind, downcast_ns=downcast_ns) is None


@pytest.mark.parametrize(
    ("source", "kind", "values"),
    [
        (pa.int8(), IntegerType(), [-128, None, 127]),
        (pa.int16(), IntegerType(), [-(2**15), None, 2**15 - 1]),
        (pa.uint8(), IntegerType(), [0, None, 255]),
        (pa.uint16(), IntegerType(), [0, None, 2**16 - 1]),
        (pa.int8(), LongType(), [-128, None, 127]),
        (pa.int32(), LongType(), [-(2**31), None, 2**31 - 1]),
        (pa.uint32(), LongType(), [0, None, 2**32 - 1]),
        (pa.float16(), FloatType(), [0.5, None, -2.0]),
        (pa.float32(), DoubleType(), [0.5, None, float("inf"), -0.0]),
        (pa.decimal128(9, 2), DecimalType(20, 2), [Decimal("-9999999.99"), None]),
        (pa.decimal32(9, 2), DecimalType(9, 2), [Decimal("-9999999.99"), None]),
        (pa.decimal64(18, 2), DecimalType(38, 2), [Decimal("-9999999.99"), None]),
        (pa.decimal256(18, 2), DecimalType(38, 2), [Decimal("-9999999.99"), None]),
        (pa.string(), StringType(), ["", None, "ü"]),
        (pa.large_string(), StringType(), ["", None, "ü"]),
        (pa.string_view(), StringType(), ["", None, "ü", "longer than twelve bytes"]),
        (pa.binary(), BinaryType(), [b"", None, b"\xff"]),
        (pa.binary_view(), BinaryType(), [b"", None, b"\xff"]),
        (pa.time32("s"), TimeType(), [datetime.time(1, 2, 3), None]),
        (pa.time32("ms"), TimeType(), [datetime.time(1, 2, 3, 4000), None]),
        (pa.time64("ns"), TimeType(), [datetime.time(1, 2, 3, 4), None]),
        (pa.date64(), DateType(), [datetime.date(1969, 12, 31), None]),
        (pa.timestamp("s"), TimestampType(), [datetime.datetime(1969, 1, 1), None]),
        (pa.timestamp("ms"), TimestampType(), [datetime.datetime(1969, 1, 1, 0, 0, 1), None]),
        (pa.timestamp("ns"), TimestampType(), [datetime.datetime(1969, 1, 1, 0, 0, 1, 1), None]),
        (pa.date32(), DateType(), [datetime.date(1969, 12, 31), None]),
    ],
    ids=str,
)
def test_values_survive(source: pa.DataType, kind: PrimitiveType, values: list[Any]) -> None:
    array = pa.array(values, source)
    assert _converted(array, kind).to_pylist() == values
    assert _converted(array.slice(1), kind).to_pylist() == values[1:]


@pytest.mark.parametrize("tz", ["UTC", "+00:00", "Etc/UTC", "Z", None])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", [TimestampType(), TimestamptzType()], ids=str)
def test_every_name_of_utc_is_one_zone_and_none_is_taken_as_utc(
    unit: str, tz: str | None, kind: PrimitiveType
) -> None:
    array = pa.array([0, None, 86_400], pa.int64()).cast(pa.timestamp(unit, tz))
    got = _converted(array, kind)
    per_unit = {"s": 10**6, "ms": 10**3, "us": 1}.get(unit)
    micros = 86_400 * per_unit if per_unit else 86
    assert got.cast(pa.int64()).to_pylist() == [0, None, micros]


def test_nanoseconds_are_cut_off_towards_zero_in_versions_1_and_2() -> None:
    array = pa.array([1_999, -1, -1_999, None], pa.timestamp("ns"))
    assert _converted(array, TimestampType()).cast(pa.int64()).to_pylist() == [1, 0, -1, None]


def test_nanoseconds_are_not_cut_off_in_version_3() -> None:
    whole = pa.array([2_000, None], pa.timestamp("ns"))
    got = _converted(whole, TimestampType(), downcast_ns=False)
    assert got.cast(pa.int64()).to_pylist() == [2, None]
    with pytest.raises(pa.ArrowInvalid, match="lose data"):
        _converted(pa.array([2_001], pa.timestamp("ns")), TimestampType(), downcast_ns=False)


@pytest.mark.parametrize("source", [pa.string(), pa.large_string(), pa.binary()], ids=str)
@pytest.mark.parametrize("index", [pa.int8(), pa.int32(), pa.uint16()], ids=str)
def test_dictionaries_are_decoded(source: pa.DataType, index: pa.DataType) -> None:
    values = [b"a", None, b"b", b"a"]
    array = pa.array(values, pa.binary()).cast(source).dictionary_encode()
    array = array.cast(pa.dictionary(index, source))
    assert _converted(array, BinaryType()).to_pylist() == values
    if source != pa.binary():
        assert _converted(array, StringType()).to_pylist() == ["a", None, "b", "a"]


def test_a_dictionary_of_numbers_is_decoded_and_promoted() -> None:
    array = pa.array([1, None, 1], pa.int32()).dictionary_encode()
    assert _converted(array, LongType()).to_pylist() == [1, None, 1]


@pytest.mark.parametrize(
    "source", [pa.uuid(), pa.binary(16), pa.binary(), pa.large_binary()], ids=str
)
def test_uuids_are_read_from_uuids_and_from_sixteen_bytes(source: pa.DataType) -> None:
    storage = pa.array([_ONE_UUID.bytes, None], pa.binary(16))
    array = source.wrap_array(storage) if source == pa.uuid() else storage.cast(source)
    if source == pa.uuid():
        target = schema_to_pyarrow(UUIDType())
        assert target == source  # so that the projection passes it through
    got = _converted(array, UUIDType())
    assert got.to_pylist() == [_ONE_UUID, None]


def test_an_extension_type_is_read_as_what_it_is_stored_as() -> None:
    array = pa.array(["{}", None], pa.json_(pa.string()))
    assert _converted(array, StringType()).to_pylist() == ["{}", None]


def test_a_uuid_can_be_read_as_fixed_bytes() -> None:
    array = pa.uuid().wrap_array(pa.array([_ONE_UUID.bytes, None], pa.binary(16)))
    assert _converted(array, FixedType(16)).to_pylist() == [_ONE_UUID.bytes, None]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (pa.int64(), IntegerType()),
        (pa.uint32(), IntegerType()),
        (pa.uint64(), LongType()),
        (pa.float32(), LongType()),
        (pa.int32(), DoubleType()),
        (pa.float64(), FloatType()),
        (pa.string(), LongType()),
        (pa.int64(), StringType()),
        (pa.int64(), BooleanType()),
        (pa.bool_(), LongType()),
        (pa.decimal128(9, 3), DecimalType(9, 2)),
        (pa.decimal128(10, 2), DecimalType(9, 2)),
        (pa.int64(), DecimalType(9, 2)),
        (pa.float64(), DecimalType(9, 2)),
        (pa.binary(4), FixedType(3)),
        (pa.binary(15), UUIDType()),
        (pa.string(), UUIDType()),
        (pa.uuid(), StringType()),
        (pa.timestamp("us"), DateType()),
        (pa.date32(), TimestamptzType()),
        (pa.int64(), TimestampType()),
        (pa.string(), TimestampType()),
        (pa.timestamp("us", "America/New_York"), TimestamptzType()),
        (pa.timestamp("us", "+02:00"), TimestamptzType()),
        (pa.int64(), TimeType()),
        (pa.list_(pa.int64()), LongType()),
        (pa.struct({"a": pa.int64()}), LongType()),
        (pa.dictionary(pa.int8(), pa.string()), LongType()),
    ],
    ids=str,
)
def test_what_is_no_promotion_is_refused(source: pa.DataType, kind: PrimitiveType) -> None:
    assert _is_refused(source, kind)


@pytest.mark.parametrize("tz", [None, "UTC"])
def test_sub_microseconds_in_a_parquet_file_of_a_version_2_table_are_cut_off(
    catalog: Catalog, tz: str | None
) -> None:
    kind = TimestampType() if tz is None else TimestamptzType()
    table = catalog.create_table("db.nanos", Schema(NestedField(1, "at", kind)))
    nanos = [1_700_000_000_123_456_789, None, -1_001]
    add_foreign_file(table, pa.table({"at": pa.array(nanos, pa.timestamp("ns", tz))}))
    got = table_of(ice.scan(table))["at"]
    assert got.type == pa.timestamp("us", tz)
    assert got.cast(pa.int64()).to_pylist() == [1_700_000_000_123_456, None, -1]


@pytest.mark.parametrize("tz", [None, "UTC"])
@pytest.mark.parametrize("version", [2, 3])
def test_orc_timestamps_are_read_in_every_format_version(
    catalog: Catalog, version: int, tz: str | None
) -> None:
    kind = TimestampType() if tz is None else TimestamptzType()
    schema = Schema(NestedField(1, "at", kind))
    if version == 3:
        table = create_v3_table(catalog, "db.orc", schema)
    else:
        table = catalog.create_table("db.orc", schema)
    micros = [1_700_000_000_123_456, None, -1]
    add_orc_file(table, pa.table({"at": pa.array(micros, pa.timestamp("us", tz))}))
    got = table_of(ice.scan(table))["at"]
    assert got.type == pa.timestamp("us", tz)
    assert got.cast(pa.int64()).to_pylist() == micros


def test_nanoseconds_that_a_version_3_microsecond_column_would_lose_are_refused(
    catalog: Catalog,
) -> None:
    table = create_v3_table(catalog, "db.lossy", Schema(NestedField(1, "at", TimestampType())))
    nanos = pa.table({"at": pa.array([1_001], pa.timestamp("ns"))})
    file = add_foreign_file(table, nanos)
    with pytest.raises(ice.ProjectionError, match="lose data") as caught:
        list(ice.scan(table))
    assert caught.value.path == file.file_path


@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType()], ids=str)
def test_microseconds_become_nanoseconds_where_the_table_has_them(kind: PrimitiveType) -> None:
    tz = "UTC" if isinstance(kind, TimestamptzNanoType) else None
    array = pa.array([1, None, -1], pa.timestamp("us", tz))
    got = _converted(array, kind, downcast_ns=False)
    assert got.cast(pa.int64()).to_pylist() == [1_000, None, -1_000]


def test_uuids_written_without_an_arrow_schema_are_read(catalog: Catalog) -> None:
    table = catalog.create_table("db.uuids", Schema(NestedField(1, "u", UUIDType())))
    storage = pa.array([_ONE_UUID.bytes, None], pa.binary(16))
    add_foreign_file(table, pa.table({"u": storage}), store_schema=False)
    assert table_of(ice.scan(table))["u"].to_pylist() == [_ONE_UUID, None]


def test_a_fixed_column_is_read_from_orc_where_it_is_plain_binary(catalog: Catalog) -> None:
    table = catalog.create_table("db.fixed", Schema(NestedField(1, "f", FixedType(2))))
    add_orc_file(table, pa.table({"f": pa.array([b"ab", None], pa.binary(2))}))
    assert table_of(ice.scan(table))["f"].to_pylist() == [b"ab", None]


@pytest.mark.parametrize("source", [pa.binary(), pa.large_binary()], ids=str)
def test_bytes_of_another_length_than_the_fixed_column_are_refused(
    catalog: Catalog, source: pa.DataType
) -> None:
    table = catalog.create_table("db.fixed", Schema(NestedField(1, "f", FixedType(2))))
    file = add_foreign_file(table, pa.table({"f": pa.array([b"ab", b"abc"], source)}))
    with pytest.raises(ice.ProjectionError) as caught:
        list(ice.scan(table))
    assert caught.value.path == file.file_path
