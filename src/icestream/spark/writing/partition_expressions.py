"""Spark expressions for a table's partition values, by which Spark groups rows.

An expression need not return the partition value itself. Two rows have the same result if and only
if they belong to the same partition (except that the floats -0.0 and 0.0 are equal). Most
expressions run in the JVM. Python computes buckets of text, bytes and decimals, from that column
alone, because Spark's hash treats the last bytes of a text differently from Iceberg's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
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
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    PrimitiveType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from icestream.spark.arrow.frame_schema import quoted
from icestream.spark.setup.installed import pyspark_module
from icestream.write.partition import transforms
from icestream.write.schema.types import conversion, plain

if TYPE_CHECKING:
    from pyspark.sql import Column

_HOUR_MICROS = 3_600 * 10**6
_DAY_MICROS = 24 * _HOUR_MICROS
# Spark's hash starts with 42 and Iceberg's with 0. With several values, the hash of one is the
# start for the next, and the hash of this number is 0.
_HASHES_TO_ZERO = -1_693_959_553
_POSITIVE = 0x7FFFFFFF
_HASHED_AS_LONGS = (IntegerType, LongType, DateType, TimestampType, TimestamptzType)


def expression(
    schema: Schema, source_id: int, transform: Transform[Any, Any], columns: list[str]
) -> Column | None:
    """An expression for one partition field, or None if the field is the same for all rows.

    Args:
        schema: The table's schema.
        source_id: The column's field id.
        transform: The transform of the partition field.
        columns: The frame's columns.
    """
    path = _path(schema, source_id)
    if isinstance(transform, VoidTransform) or not path or path[0] not in columns:
        return None
    functions = pyspark_module("pyspark.sql.functions")
    column = functions.col(quoted(*path))
    kind = schema.find_type(source_id)
    if isinstance(transform, IdentityTransform):
        return column
    assert isinstance(kind, PrimitiveType)
    if isinstance(transform, BucketTransform):
        return _bucket(functions, column, kind, transform)
    if isinstance(transform, TruncateTransform):
        return _truncated(functions, column, kind, transform.width)
    return _time(functions, column, kind, transform)


def _path(schema: Schema, source_id: int) -> tuple[str, ...]:
    """The path to a field through structs, or an empty path for fields in lists and maps."""

    def search(fields: Any) -> tuple[str, ...]:
        for field in fields:
            if field.field_id == source_id:
                return (field.name,)
            nested = field.field_type
            if isinstance(nested, StructType) and (path := search(nested.fields)):
                return (field.name, *path)
        return ()

    return search(schema.fields)


def _bucket(
    functions: Any, column: Column, kind: PrimitiveType, transform: BucketTransform[Any]
) -> Column:
    if not isinstance(kind, _HASHED_AS_LONGS):
        return _in_python(functions, column, kind, transform)
    if isinstance(kind, DateType):
        column = functions.unix_date(column)
    long = column
    if not isinstance(kind, (TimestampType, TimestamptzType)):  # hashed as their microseconds
        long = column.cast("bigint")
    number = functions.hash(functions.lit(_HASHES_TO_ZERO).cast("int"), long)
    bucket = number.bitwiseAND(_POSITIVE) % transform.num_buckets
    return functions.when(column.isNotNull(), bucket)


def _in_python(
    functions: Any, column: Column, kind: PrimitiveType, transform: Transform[Any, Any]
) -> Column:
    def values_of(values: pa.Array) -> pa.Array:
        convert = conversion(plain(values.type), kind, downcast_ns=False)
        assert convert is not None  # the frame was checked against the table
        stored = convert(values)
        if isinstance(stored, pa.ExtensionArray):
            stored = stored.storage
        return transforms.apply(transform, kind, stored).cast(pa.string())

    # PySpark evaluates the type hints, which are strings in this module.
    values_of.__annotations__ = {"values": pa.Array, "return": pa.Array}
    bucket: Column = functions.arrow_udf(values_of, "string")(column)
    return bucket


def _truncated(functions: Any, column: Column, kind: PrimitiveType, width: int) -> Column:
    if isinstance(kind, (IntegerType, LongType)):
        long = column.cast("bigint")
        # Null where the multiple would be below the lowest number: the write refuses it anyway.
        return functions.try_subtract(long, functions.pmod(long, functions.lit(width)))
    if isinstance(kind, DecimalType):
        return _in_python(functions, column, kind, TruncateTransform(width))
    return functions.substring(column, 1, width)


def _time(
    functions: Any, column: Column, kind: PrimitiveType, transform: Transform[Any, Any]
) -> Column:
    if isinstance(transform, HourTransform):
        if isinstance(kind, TimestamptzType):
            micros = functions.unix_micros(column)
            return micros - functions.pmod(micros, functions.lit(_HOUR_MICROS))
        return functions.unix_date(column.cast("date")) * 24 + functions.hour(column)
    day = _day(functions, column, kind)
    if isinstance(transform, DayTransform):
        return day
    if isinstance(transform, MonthTransform):
        return functions.year(day) * 12 + functions.month(day)
    assert isinstance(transform, YearTransform)
    return functions.year(day)


def _day(functions: Any, column: Column, kind: PrimitiveType) -> Column:
    """The date in UTC, whatever the time zone of the session."""
    if not isinstance(kind, TimestamptzType):
        day: Column = column.cast("date")
        return day
    micros = functions.unix_micros(column)
    midnight = micros - functions.pmod(micros, functions.lit(_DAY_MICROS))
    date: Column = functions.date_from_unix_date((midnight / _DAY_MICROS).cast("int"))
    return date
