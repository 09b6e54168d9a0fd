"""Random columns: transforms of whole arrays are PyIceberg's of each value, and so are partitions.

PyIceberg's own function for a single value is the model (`Transform.transform`), and a plain
dictionary is that of the partitions' numbers.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
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
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_to_unscaled, unscaled_to_decimal

from icestream.errors import InvalidDataError
from icestream.write.partition.partitioner import Partitioner
from icestream.write.partition.transforms import apply

_DAY_MICROS = 86_400 * 10**6
_DAYS = st.integers(-719_162, 2_932_896)
_MICROS = st.integers(-719_162 * _DAY_MICROS, 2_932_897 * _DAY_MICROS - 1)
_INTS = st.integers(-(2**31), 2**31 - 1)
_LONGS = st.integers(-(2**63), 2**63 - 1)
_TEXTS = st.text(max_size=12) | st.text(st.characters(codec="utf-8"), max_size=70)


def _unscaled(precision: int) -> st.SearchStrategy[int]:
    largest = 10**precision - 1
    near_zero = st.integers(-300, 300).filter(lambda value: abs(value) <= largest)
    powers = st.integers(0, precision - 1).map(lambda digits: 10**digits)
    return st.integers(-largest, largest) | near_zero | powers


@dataclass(frozen=True)
class Column:
    """A type, and random values of it as Iceberg keeps them inside."""

    kind: IcebergType
    arrow_type: pa.DataType
    values: st.SearchStrategy[Any]

    def array(self, values: list[Any]) -> pa.Array:
        if isinstance(self.arrow_type, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(
                self.arrow_type, pa.array(values, self.arrow_type.storage_type)
            )
        return pa.array(values, self.arrow_type)

    def __str__(self) -> str:
        return f"{self.kind} as {self.arrow_type}"


def _decimals(precision: int, scale: int) -> Column:
    values = _unscaled(precision).map(lambda unscaled: unscaled_to_decimal(unscaled, scale))
    return Column(DecimalType(precision, scale), pa.decimal128(precision, scale), values)


_COLUMNS = [
    Column(BooleanType(), pa.bool_(), st.booleans()),
    Column(IntegerType(), pa.int32(), _INTS),
    Column(LongType(), pa.int64(), _LONGS),
    Column(FloatType(), pa.float32(), st.floats(width=32)),
    Column(DoubleType(), pa.float64(), st.floats()),
    _decimals(1, 0),
    _decimals(9, 2),
    _decimals(18, 18),
    _decimals(19, 4),
    _decimals(38, 10),
    Column(DateType(), pa.date32(), _DAYS),
    Column(TimeType(), pa.time64("us"), st.integers(0, _DAY_MICROS - 1)),
    Column(TimestampType(), pa.timestamp("us"), _MICROS),
    Column(TimestamptzType(), pa.timestamp("us", tz="UTC"), _MICROS),
    Column(TimestampNanoType(), pa.timestamp("ns"), _LONGS),
    Column(TimestamptzNanoType(), pa.timestamp("ns", tz="UTC"), _LONGS),
    Column(StringType(), pa.string(), _TEXTS),
    Column(StringType(), pa.large_string(), _TEXTS),
    Column(UUIDType(), pa.uuid(), st.binary(min_size=16, max_size=16)),
    Column(FixedType(7), pa.binary(7), st.binary(min_size=7, max_size=7)),
    Column(BinaryType(), pa.binary(), st.binary(max_size=40)),
    Column(BinaryType(), pa.large_binary(), st.binary(max_size=40)),
]
_NUMBERS = st.integers(1, 20) | st.sampled_from([100, 2**16, 2**31 - 1])
_TRANSFORMS: list[st.SearchStrategy[Transform[Any, Any]]] = [
    st.just(IdentityTransform()),
    st.just(VoidTransform()),
    _NUMBERS.map(BucketTransform),
    _NUMBERS.map(TruncateTransform),
    st.just(YearTransform()),
    st.just(MonthTransform()),
    st.just(DayTransform()),
    st.just(HourTransform()),
]


@functools.cache  # A strategy that is made anew for each example takes most of the time.
def _transforms(column: Column) -> st.SearchStrategy[Transform[Any, Any]]:
    return st.one_of(_TRANSFORMS).filter(lambda transform: transform.can_transform(column.kind))


@functools.cache
def _lists(column: Column, max_size: int = 40) -> st.SearchStrategy[list[Any]]:
    """Values and nulls; with many repeats, since a few values are drawn first."""
    few = st.lists(st.none() | column.values, min_size=1, max_size=5)
    repeated = few.flatmap(lambda values: st.lists(st.sampled_from(values), max_size=max_size))
    return repeated | st.lists(st.none() | column.values, max_size=max_size)


def _expected(column: Column, transform: Transform[Any, Any], value: Any) -> Any:
    """What PyIceberg makes of one value."""
    return transform.transform(column.kind)(value)


def _is_out_of_range(column: Column, result: Any) -> bool:
    if result is None:
        return False
    if isinstance(column.kind, IntegerType):
        return bool(result < -(2**31))
    if isinstance(column.kind, LongType):
        return bool(result < -(2**63))
    if isinstance(column.kind, DecimalType):
        return abs(decimal_to_unscaled(result)) >= 10**column.kind.precision
    return False


@pytest.mark.parametrize("column", _COLUMNS, ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_transformed_column_holds_what_pyiceberg_makes_of_each_value(
    column: Column, data: st.DataObject
) -> None:
    transform = data.draw(_transforms(column))
    values = data.draw(_lists(column))
    start = data.draw(st.integers(0, len(values)))
    array = column.array(values).slice(start)
    expected = [_expected(column, transform, value) for value in values[start:]]
    if isinstance(transform, TruncateTransform) and any(
        _is_out_of_range(column, result) for result in expected
    ):
        with pytest.raises(InvalidDataError):
            apply(transform, column.kind, array)
        return
    got = apply(transform, column.kind, array)
    got.validate(full=True)
    assert repr(got.to_pylist()) == repr(expected)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_rows_are_numbered_by_what_pyiceberg_makes_of_their_values(data: st.DataObject) -> None:
    columns = data.draw(st.lists(st.sampled_from(_COLUMNS), min_size=1, max_size=3))
    schema = Schema(
        *(NestedField(n + 1, f"c{n}", column.kind) for n, column in enumerate(columns)),
        NestedField(99, "row", LongType()),
    )
    sources = data.draw(st.lists(st.integers(0, len(columns) - 1), min_size=1, max_size=4))
    spec = PartitionSpec(
        *(
            PartitionField(source + 1, 1000 + n, data.draw(_safe(columns[source])), f"p{n}")
            for n, source in enumerate(sources)
        )
    )
    partitioner = Partitioner(schema, spec)
    numbers: dict[tuple[str, ...], int] = {}
    for _ in range(data.draw(st.integers(1, 3))):
        rows = data.draw(st.integers(0, 30))
        values = [data.draw(_rows_of(column, rows)) for column in columns]
        batch = _batch(schema, columns, values)
        ids = partitioner.ids(batch)
        keys = [
            tuple(
                repr(_expected(columns[source], field.transform, values[source][row]))
                for source, field in zip(sources, spec.fields, strict=True)
            )
            for row in range(rows)
        ]
        assert ids.tolist() == [numbers.setdefault(key, len(numbers)) for key in keys]
    assert len(partitioner) == len(numbers)
    for key, number in numbers.items():
        assert tuple(repr(_inside(value)) for value in partitioner.key(number)) == key


def _safe(column: Column) -> st.SearchStrategy[Transform[Any, Any]]:
    """Transforms whose results are in range: the test above has the others."""
    numeric = isinstance(column.kind, (IntegerType, LongType, DecimalType))
    return _transforms(column).filter(
        lambda transform: not (numeric and isinstance(transform, TruncateTransform))
    )


def _rows_of(column: Column, rows: int) -> st.SearchStrategy[list[Any]]:
    few = st.lists(st.none() | column.values, min_size=1, max_size=4)
    return few.flatmap(
        lambda values: st.lists(st.sampled_from(values), min_size=rows, max_size=rows)
    )


def _batch(schema: Schema, columns: list[Column], values: list[list[Any]]) -> pa.RecordBatch:
    arrays = [column.array(of) for column, of in zip(columns, values, strict=True)]
    arrays.append(pa.array(range(len(values[0])), pa.int64()))
    fields = [
        field.with_type(array.type)
        for field, array in zip(schema_to_pyarrow(schema), arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _inside(value: Any) -> Any:
    if isinstance(value, UUID):
        return value.bytes
    return math.nan if isinstance(value, float) and math.isnan(value) else value
