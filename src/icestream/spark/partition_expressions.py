"""A table's partition values as Spark expressions, so that Spark can bring their rows together.

They need not be the values themselves: two rows get the same one if and only if they belong to the
same partition (of floats -0.0 and 0.0 come together). Most are expressions of the JVM. A bucket of
text, bytes or a decimal is worked out in Python, from that column alone: Spark's own hash takes the
last bytes of a text in another way than Iceberg's.
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

from icestream.spark.arrow_map import quoted
from icestream.spark.installed import pyspark_module
from icestream.write import transforms
from icestream.write.types import conversion, plain

if TYPE_CHECKING:
    from pyspark.sql import Column

_HOUR_MICROS = 3_600 * 10**6
_DAY_MICROS = 24 * _HOUR_MICROS
# Spark's hash starts from 42 and Iceberg's from 0. Each value starts from the hash of those before
# it, and the hash of this number is 0.
_HASHES_TO_ZERO = -1_693_959_553
_POSITIVE = 0x7FFFFFFF
_HASHED_AS_LONGS = (IntegerType, LongType, DateType, TimestampType, TimestamptzType)


def expression(
    schema: Schema, source_id: int, transform: Transform[Any, Any], columns: list[str]
) -> Column | None:
    """An expression that tells partitions apart by one field; None if all rows are alike in it.

    Args:
        schema: The table's schema.
        source_id: The column's field id.
        transform: What is done to it.
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
    """The names on the way to a field through structs; none if it is elsewhere."""

    def search(fields: Any) -> tuple[str, ...]:
        for field in fields:
            if field.field_id == source_id:
                return (field.name,)
            nested = field.field_type
            if isinstance(nested, StructType) and (found := search(nested.fields)):
                return (field.name, *found)
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

    # PySpark looks at the hints, which are texts here.
    values_of.__annotations__ = {"values": pa.Array, "return": pa.Array}
    found: Column = functions.arrow_udf(values_of, "string")(column)
    return found


def _truncated(functions: Any, column: Column, kind: PrimitiveType, width: int) -> Column:
    if isinstance(kind, (IntegerType, LongType)):
        long = column.cast("bigint")
        # Below the lowest number there is no multiple: null, as the write refuses it anyway.
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
    """The date, in UTC whatever the session's zone is."""
    if not isinstance(kind, TimestamptzType):
        day: Column = column.cast("date")
        return day
    micros = functions.unix_micros(column)
    midnight = micros - functions.pmod(micros, functions.lit(_DAY_MICROS))
    date: Column = functions.date_from_unix_date((midnight / _DAY_MICROS).cast("int"))
    return date
