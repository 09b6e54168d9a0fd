"""Casts the columns of a frame to those of a table, as Spark's ANSI store assignment does.

A cast that could give a meaningless value, such as from text to a number, is refused before
anything runs. A value that does not fit is an error of the job: it is never cut off or set to null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.errors import (
    InvalidDataError,
    SchemaMismatchError,
    UnknownColumnError,
    UnsupportedFeatureError,
)
from icestream.spark.arrow.types import spark_schema
from icestream.spark.setup.installed import is_classic, pyspark_module
from icestream.spark.setup.registration import setting
from icestream.spark.statements.words import refused
from icestream.spark.tasks.task_notes import error_note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ANSI = "spark.sql.ansi.enabled"
_NUMBERS = (
    "ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType", "DecimalType",
)  # fmt: skip
_TIMES = ("DateType", "TimestampType", "TimestampNTZType")
_TEXTS = ("StringType", "CharType", "VarcharType")
_WORDS = ("BooleanType", "BinaryType", *_NUMBERS, *_TIMES, *_TEXTS)


def target_columns(
    table: Table, names: Sequence[str] | None, *, case_sensitive: bool
) -> list[tuple[str, Any]]:
    """The columns of a table that a statement writes, with their types in Spark.

    Args:
        table: The table.
        names: The columns that the statement lists; None for all of them.
        case_sensitive: Whether names are case-sensitive.

    Raises:
        UnknownColumnError: If the table has no such column.
        InvalidArgumentError: If a column is listed twice.
    """
    schema = table.schema()
    chosen = [column_of(table, name, case_sensitive=case_sensitive) for name in names or ()]
    if names is None:
        chosen = [field.name for field in schema.fields]
    if len(set(chosen)) < len(chosen):
        raise refused(f"a list of columns with {_repeated(chosen)!r} twice")
    arrow = schema_to_pyarrow(
        Schema(*(schema.find_field(name) for name in chosen)), include_field_ids=False
    )
    types = spark_schema(arrow, table=".".join(table.name()))
    return [(field.name, field.dataType) for field in types.fields]


def column_of(table: Table, name: str, *, case_sensitive: bool) -> str:
    """The exact name of one of the table's columns.

    Raises:
        UnknownColumnError: If the table has no such column.
    """
    names = [field.name for field in table.schema().fields]
    if name in names:
        return name
    near = [] if case_sensitive else [each for each in names if each.lower() == name.lower()]
    if len(near) == 1:
        return near[0]
    raise UnknownColumnError(
        f"{'.'.join(table.name())} has no column {name!r}: it has {', '.join(names[:20])}"
    )


def check_required(table: Table, names: Collection[str]) -> None:
    """Refuse new rows without a value for a column that must have one.

    Args:
        table: The table.
        names: The columns that a statement sets.

    Raises:
        SchemaMismatchError: If the statement leaves out a required column.
    """
    absent = [
        field.name
        for field in table.schema().fields
        if field.required and field.write_default is None and field.name not in names
    ]
    if absent:
        differences = tuple(f"{name!r} is required, and the statement lacks it" for name in absent)
        raise SchemaMismatchError(
            f"new rows of {'.'.join(table.name())} need a value for {', '.join(absent)}: add it to "
            "the columns of the INSERT",
            differences=differences,
        )


def assigned(
    frame: DataFrame, columns: Sequence[tuple[str, Any]], *, table: str, by_name: bool = False
) -> DataFrame:
    """A frame with the names and types of a table's columns. The order of columns decides.

    Args:
        frame: The rows.
        columns: A name and a type in Spark for each column of the frame.
        table: The table's name, for messages.
        by_name: Whether the fields of structs must have the names of the column's fields.

    Raises:
        SchemaMismatchError: If there are too few or too many columns, or a type does not fit.
    """
    if len(frame.columns) != len(columns):
        message = (
            f"the statement writes {len(columns)} columns of {table} "
            f"({', '.join(name for name, _ in columns[:20])}), but the query has "
            f"{len(frame.columns)}: add the others, or list the columns to write"
        )
        raise SchemaMismatchError(message, differences=(message,))
    given = [field.dataType for field in frame.schema.fields]
    differences = tuple(
        f"{name!r} is {to.simpleString()}, and the query has {kind.simpleString()}"
        for kind, (name, to) in zip(given, columns, strict=True)
        if not is_assignable(kind, to, by_name=by_name)
    )
    if differences:
        raise SchemaMismatchError(
            f"these columns of {table} can't take the values of the query: "
            f"{'; '.join(differences)}. Cast them in the query",
            differences=differences,
        )
    functions = pyspark_module("pyspark.sql.functions")
    numbered = frame.toDF(*(f"c{number}" for number in range(len(columns))))
    casts = [
        kind.simpleString() != to.simpleString()
        for kind, (_, to) in zip(given, columns, strict=True)
    ]
    with ansi_casts(frame.sparkSession, needed=any(casts)):
        return numbered.select(
            *(
                (functions.col(f"c{n}").cast(to) if cast else functions.col(f"c{n}")).alias(name)
                for n, (cast, (name, to)) in enumerate(zip(casts, columns, strict=True))
            )
        )


def readable_columns(table: Table) -> Any:
    """The columns of a table in Spark, without those that Spark has no type for."""
    fields = []
    for column in schema_to_pyarrow(table.schema(), include_field_ids=False):
        with suppress(UnsupportedFeatureError):
            fields += spark_schema(pa.schema([column]), table="").fields
    return pyspark_module("pyspark.sql.types").StructType(fields)


def cast_text(spark: SparkSession, value: str, given: Any, to: Any, *, table: str) -> str:
    """An expression that casts a value to the type of a column.

    Args:
        spark: The session.
        value: The expression to cast.
        given: The column's name with the type of the expression, as a field in Spark.
        to: The type of the column.
        table: The table's name, for messages.

    Raises:
        SchemaMismatchError: If the column can't take the value.
    """
    kind, wanted = given.dataType.simpleString(), to.simpleString()
    if kind == wanted:
        return f"({value})"
    if not is_assignable(given.dataType, to, by_name=True):
        difference = f"{given.name!r} is {wanted}, and the value is {kind}"
        raise SchemaMismatchError(
            f"this column of {table} can't take the value {value}: {difference}. Cast the value",
            differences=(difference,),
        )
    if type(to).__name__ in ("ArrayType", "MapType", "StructType"):
        # `try_cast` would turn elements that do not fit into null.
        if str(setting(spark, _ANSI)).lower() == "false":
            raise refused(f"casts of {kind} with {_ANSI}=false", f"set {_ANSI} to true")
        return f"CAST(({value}) AS {wanted})"
    error = InvalidDataError(
        f"column {given.name!r} has a value of type {kind} that does not fit the table's type "
        f"{wanted}: change the value, or widen the table's column",
        column=given.name,
    )
    attempt = f"try_cast(({value}) AS {wanted})"
    return (
        f"CASE WHEN ({value}) IS NULL OR {attempt} IS NOT NULL THEN {attempt} "
        f"ELSE CAST(raise_error('{error_note(error)}') AS {wanted}) END"
    )


def is_assignable(given: Any, to: Any, *, by_name: bool = False) -> bool:
    """Whether Spark's ANSI store assignment casts one type to another.

    Args:
        given: The type of a value.
        to: The type of the column.
        by_name: Whether the fields of structs must have the names of the column's fields, in the
            same order. Otherwise only their places count.
    """
    kind, wanted = type(given).__name__, type(to).__name__
    if kind == "NullType" or given.simpleString() == to.simpleString():
        return True
    if wanted in _NUMBERS:
        return kind in _NUMBERS
    if wanted in _TEXTS:
        return kind in _WORDS
    if wanted in _TIMES:
        return kind in _TIMES
    if kind != wanted:
        return False
    if kind == "ArrayType":
        return is_assignable(given.elementType, to.elementType, by_name=by_name)
    if kind == "MapType":
        keys = is_assignable(given.keyType, to.keyType, by_name=by_name)
        return keys and is_assignable(given.valueType, to.valueType, by_name=by_name)
    if kind == "StructType":
        pairs = list(zip(given.fields, to.fields, strict=False))
        return len(given.fields) == len(to.fields) and all(
            is_assignable(one.dataType, other.dataType, by_name=by_name)
            and (not by_name or one.name == other.name)
            for one, other in pairs
        )
    return False


@contextmanager
def ansi_casts(spark: SparkSession, *, needed: bool) -> Iterator[None]:
    """Make casts raise errors for values that do not fit."""
    before = setting(spark, _ANSI)
    if not needed or str(before).lower() != "false":  # Spark 4 has it on by default
        yield
        return
    if not is_classic(spark):
        raise refused(f"casts with {_ANSI}=false on Spark Connect", f"set {_ANSI} to true")
    spark.conf.set(_ANSI, "true")
    try:
        yield
    finally:
        spark.conf.set(_ANSI, "false")


def _repeated(names: list[str]) -> str:
    return next(name for name in names if names.count(name) > 1)
