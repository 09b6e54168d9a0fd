"""Casts the columns of a frame to the types of a table, by Spark's ANSI rules for assignments.

Spark applies these rules to `INSERT INTO`, and Iceberg's runtime relies on them: an int may go into
a decimal or a string, a date into a timestamp, but a string not into an int. A value that does not
fit raises an error while the job runs. Columns that icestream writes without a cast are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, NestedField, UUIDType

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.errors import InvalidDataError, UnsupportedFeatureError
from icestream.spark.arrow.frame_schema import arrow_schema, quoted, untyped_paths
from icestream.spark.arrow.types import spark_schema
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.tasks.task_notes import error_note
from icestream.write.schema.comparison import SchemaMode, compare
from icestream.write.schema.types import downcasts_nanoseconds
from icestream.write.target import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ANSI_SETTING = "spark.sql.ansi.enabled"


def assigned(frame: DataFrame, target: WriteTarget | None, mode: SchemaMode) -> DataFrame:
    """The frame with the columns cast that need it, and the others as they are.

    Args:
        frame: The frame to write.
        target: The table, or None if the write creates it.
        mode: The schema mode. Where `evolve` widens the table's column, nothing is cast.

    Returns:
        The frame. Elements without a type, as in `array()`, get the type of the table's elements.
    """
    known = {field.name: field for field in target.schema.fields} if target is not None else {}
    casts: dict[str, Column] = {}
    for field in frame.schema.fields:
        wanted = known.get(field.name)
        if target is None or wanted is None or _fits(field, wanted, target, mode):
            continue
        kind = _spark_type(wanted)
        if kind is not None and _assignable(field.dataType, kind):
            column = _cast(frame, field, kind)
            if column is not None:
                casts[field.name] = column
    if not casts:
        return frame
    functions = pyspark_module("pyspark.sql.functions")
    return frame.select(
        *[
            casts[name].alias(name) if name in casts else functions.col(quoted(name))
            for name in frame.columns
        ]
    )


def _fits(field: Any, wanted: NestedField, target: WriteTarget, mode: SchemaMode) -> bool:
    """Whether icestream writes the column as it is, or refuses it for another reason."""
    if any(untyped_paths(field.dataType, "")):
        return False
    sql = pyspark_module("pyspark.sql.types")
    try:
        stream = arrow_schema(sql.StructType([field]))
    except UnsupportedFeatureError:
        return True
    comparison = compare(
        Schema(wanted),
        stream,
        mode=mode,
        format_version=target.metadata.format_version,
        downcast_ns=downcasts_nanoseconds(),
    )
    return not comparison.differences


def _spark_type(wanted: NestedField) -> Any:
    """The type of a column in Spark. None if there is none, or if texts or bytes are checked."""
    if isinstance(wanted.field_type, (FixedType, UUIDType)):
        return None
    arrow = schema_to_pyarrow(Schema(wanted))
    try:
        return spark_schema(pa.schema(list(arrow)), table="").fields[0].dataType
    except UnsupportedFeatureError:
        return None


def _assignable(source: Any, target: Any) -> bool:
    """Whether Spark's policy `ANSI` assigns values of `source` (`canANSIStoreAssign`)."""
    sql = pyspark_module("pyspark.sql.types")
    if source == target or isinstance(source, sql.NullType):
        return True
    if isinstance(target, sql.StringType):
        return isinstance(source, sql.AtomicType)
    if isinstance(source, sql.NumericType):
        return isinstance(target, sql.NumericType)
    moments = (sql.DateType, sql.TimestampType, sql.TimestampNTZType)
    if isinstance(source, moments):
        return isinstance(target, moments)
    if isinstance(source, sql.ArrayType) and isinstance(target, sql.ArrayType):
        return _assignable(source.elementType, target.elementType)
    if isinstance(source, sql.MapType) and isinstance(target, sql.MapType):
        keys = _assignable(source.keyType, target.keyType)
        return keys and _assignable(source.valueType, target.valueType)
    if isinstance(source, sql.StructType) and isinstance(target, sql.StructType):
        return source.names == target.names and all(
            _assignable(a.dataType, b.dataType)
            for a, b in zip(source.fields, target.fields, strict=True)
        )
    return False


def checked_cast(column: Column, name: str, given: Any, kind: Any) -> Column:
    """A cast of a simple value that raises an error where the value does not fit, in any ANSI mode.

    Args:
        column: The value. The cast evaluates it several times.
        name: The table's column, for the message.
        given: The type of the value.
        kind: The type of the table's column.

    Returns:
        The cast. In a job it raises `InvalidDataError`.
    """
    functions = pyspark_module("pyspark.sql.functions")
    attempt = column.try_cast(kind)
    error = InvalidDataError(
        f"column {name!r} has a value of type {given.simpleString()} that does not fit the table's "
        f"type {kind.simpleString()}: change the value, or widen the table's column",
        column=name,
    )
    failure = functions.raise_error(functions.lit(f"{error} {error_note(error)}")).cast(kind)
    return functions.when(column.isNull() | attempt.isNotNull(), attempt).otherwise(failure)


def _cast(frame: DataFrame, field: Any, kind: Any) -> Column | None:
    functions = pyspark_module("pyspark.sql.functions")
    sql = pyspark_module("pyspark.sql.types")
    column: Column = functions.col(quoted(field.name))
    if not isinstance(kind, (sql.ArrayType, sql.MapType, sql.StructType)):
        return checked_cast(column, field.name, field.dataType, kind)
    # `try_cast` would turn elements that do not fit into null.
    if str(frame.sparkSession.conf.get(_ANSI_SETTING, "true")).lower() == "true":
        return column.cast(kind)
    if any(untyped_paths(field.dataType, "")):
        return column.cast(_typed(field.dataType, kind))
    return None


def _typed(source: Any, target: Any) -> Any:
    """A type with the parts that have none taken from the target. A cast to it loses nothing."""
    sql = pyspark_module("pyspark.sql.types")
    if isinstance(source, sql.NullType):
        return target
    if isinstance(source, sql.ArrayType):
        return sql.ArrayType(_typed(source.elementType, target.elementType), source.containsNull)
    if isinstance(source, sql.MapType):
        keys = _typed(source.keyType, target.keyType)
        values = _typed(source.valueType, target.valueType)
        return sql.MapType(keys, values, source.valueContainsNull)
    if isinstance(source, sql.StructType):
        return sql.StructType(
            [
                sql.StructField(own.name, _typed(own.dataType, other.dataType), own.nullable)
                for own, other in zip(source.fields, target.fields, strict=True)
            ]
        )
    return source
