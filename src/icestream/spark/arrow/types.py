"""The Spark types for the Arrow types of a scan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icestream.errors import UnsupportedFeatureError
from icestream.spark.setup.installed import pyspark_module

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Frequent types come first. A UUID is an extension type here and not a binary.
_PRIMITIVES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_int64, "LongType"),
    (pa.types.is_large_string, "StringType"),
    (pa.types.is_string, "StringType"),
    (pa.types.is_float64, "DoubleType"),
    (pa.types.is_int32, "IntegerType"),
    (pa.types.is_float32, "FloatType"),
    (pa.types.is_boolean, "BooleanType"),
    (pa.types.is_date32, "DateType"),
    (pa.types.is_large_binary, "BinaryType"),
    (pa.types.is_binary, "BinaryType"),
    (pa.types.is_fixed_size_binary, "BinaryType"),
    (pa.types.is_time64, "TimeType"),  # PySpark may lack it
)
_NAMES_SHOWN = 20


class _NoSparkType(Exception):  # noqa: N818 - internal: becomes an UnsupportedFeatureError
    """A field for which Spark has no type."""

    def __init__(self, path: str, kind: pa.DataType) -> None:
        self.path = path
        self.kind = kind


def spark_schema(schema: pa.Schema, *, table: str) -> StructType:
    """The Spark schema of a scan, with the nullability of each column.

    Args:
        schema: The scan's schema, as PyIceberg translates the table's.
        table: The table's name, for the message.

    Raises:
        UnsupportedFeatureError: If Spark has no type for a column.
    """
    sql = pyspark_module("pyspark.sql.types")
    fields: list[Any] = []
    refused: list[_NoSparkType] = []
    for field in schema:
        try:
            fields.append(_field(field, field.name, sql))
        except _NoSparkType as error:
            refused.append(error)
    if refused:
        raise _unsupported(refused, [field.name for field in fields], table)
    struct: StructType = sql.StructType(fields)
    return struct


def _unsupported(
    refused: list[_NoSparkType], others: list[str], table: str
) -> UnsupportedFeatureError:
    columns = ", ".join(f"{error.path!r} ({_iceberg_name(error.kind)})" for error in refused)
    if not others:
        return UnsupportedFeatureError(
            f"Spark has no type for {columns} of {table}: select other columns"
        )
    shown = ", ".join(repr(name) for name in others[:_NAMES_SHOWN])
    more = ", ..." if len(others) > _NAMES_SHOWN else ""
    return UnsupportedFeatureError(
        f"Spark has no type for {columns} of {table}: select other columns, such as "
        f"columns=[{shown}{more}]"
    )


def _iceberg_name(kind: pa.DataType) -> str:
    if pa.types.is_time(kind):
        return "time"
    if pa.types.is_null(kind):
        return "unknown"
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return "timestamp_ns" if kind.tz is None else "timestamptz_ns"
    return str(kind)


def _field(field: pa.Field, path: str, sql: Any) -> Any:
    return sql.StructField(field.name, _type(field.type, path, sql), field.nullable)


def _type(kind: pa.DataType, path: str, sql: Any) -> Any:
    if isinstance(kind, pa.UuidType):
        return sql.StringType()
    for matches, name in _PRIMITIVES:
        if matches(kind) and hasattr(sql, name):
            return getattr(sql, name)()
    if pa.types.is_decimal(kind):
        return sql.DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return sql.TimestampNTZType() if kind.tz is None else sql.TimestampType()
    if pa.types.is_struct(kind):
        return sql.StructType([_field(f, f"{path}.{f.name}", sql) for f in kind])
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        element = kind.value_field
        return sql.ArrayType(_type(element.type, f"{path}.element", sql), element.nullable)
    if pa.types.is_map(kind):
        key = _type(kind.key_type, f"{path}.key", sql)
        value = _type(kind.item_type, f"{path}.value", sql)
        return sql.MapType(key, value, kind.item_field.nullable)
    raise _NoSparkType(path, kind)
