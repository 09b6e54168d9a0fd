"""A frame's columns as Arrow has them, or why they can't be stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from icestream.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError
from icestream.spark.installed import pyspark_module

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStruct

_OWN = "__icestream_"
_UNSUPPORTED = (
    "CalendarIntervalType",
    "DayTimeIntervalType",
    "GeographyType",
    "GeometryType",
    "UserDefinedType",
    "VariantType",
    "YearMonthIntervalType",
)


def arrow_schema(schema: SparkStruct) -> pa.Schema:
    """The Arrow schema in which tasks get a frame's rows.

    Raises:
        UnsupportedFeatureError: If Iceberg has no type for columns; names all of them.
        InvalidArgumentError: If a column has the name of one that jobs add.
    """
    own = [name for name in schema.names if name.lower().startswith(_OWN)]
    if own:
        raise InvalidArgumentError(
            f"the frame has the column {own[0]!r}: names with {_OWN} in front are those of columns "
            "that icestream adds while it works. Rename it"
        )
    refused = [f"{path!r} ({kind.simpleString()})" for path, kind in _unsupported(schema, "")]
    if refused:
        raise UnsupportedFeatureError(
            f"these columns of the frame have types that Iceberg can't store: {', '.join(refused)}."
            " Cast them, for example to string, or drop them"
        )
    types = pyspark_module("pyspark.sql.pandas.types")
    try:
        return types.to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # PySpark 4.1: always in UTC
        return types.to_arrow_schema(schema)


def _unsupported(kind: Any, path: str) -> Iterator[tuple[str, Any]]:
    names = {base.__name__ for base in type(kind).__mro__}
    if not names.isdisjoint(_UNSUPPORTED):
        yield path, kind
    elif "StructType" in names:
        for field in kind.fields:
            yield from _unsupported(field.dataType, f"{path}.{field.name}" if path else field.name)
    elif "ArrayType" in names:
        yield from _unsupported(kind.elementType, f"{path}.element")
    elif "MapType" in names:
        yield from _unsupported(kind.keyType, f"{path}.key")
        yield from _unsupported(kind.valueType, f"{path}.value")


def refuse_case_clashes(stream: pa.Schema, schema: Schema | None, *, table: str) -> None:
    """Refuse columns that differ by case only: Spark could not tell them apart afterwards.

    Args:
        stream: The frame's columns.
        schema: The table's, if there is one.
        table: The table's name, for messages.

    Raises:
        SchemaMismatchError: Listing every clash.
    """
    known = schema.as_struct() if schema is not None else None
    clashes = [
        [path + name for name in names]
        for path, fields, existing in _structs(pa.struct(list(stream)), known, "")
        for names in _clashes({field.name for field in fields}, existing)
    ]
    if not clashes:
        return
    told = tuple(f"columns {', '.join(map(repr, names))} differ by case only" for names in clashes)
    raise SchemaMismatchError(
        f"the frame can't be written to table {table}: {'; '.join(told)}: rename them, or set "
        "spark.sql.caseSensitive to true (with format('icestream'), the option case-sensitive) if "
        "they are to be columns of their own",
        differences=told,
    )


def _clashes(given: set[str], existing: set[str]) -> Iterator[list[str]]:
    named: dict[str, set[str]] = defaultdict(set)
    for name in given:
        named[name.lower()].add(name)
    for name in existing:
        if name.lower() in named:
            named[name.lower()].add(name)
    for names in named.values():
        # A table that has both already was made by somebody who knows.
        if len(names) > 1 and not existing.issuperset(names):
            yield sorted(names)


def _structs(
    kind: pa.DataType, known: IcebergType | None, path: str
) -> Iterator[tuple[str, list[pa.Field], set[str]]]:
    """Every struct in a type: where it is, its fields, and the names that the table has there."""
    if pa.types.is_struct(kind):
        below = known.fields if isinstance(known, StructType) else ()
        types = {field.name: field.field_type for field in below}
        yield path, list(kind), set(types)
        for field in kind:
            yield from _structs(field.type, types.get(field.name), f"{path}{field.name}.")
    elif pa.types.is_map(kind):
        of_key = known.key_type if isinstance(known, MapType) else None
        of_value = known.value_type if isinstance(known, MapType) else None
        yield from _structs(kind.key_type, of_key, f"{path}key.")
        yield from _structs(kind.item_type, of_value, f"{path}value.")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of_element = known.element_type if isinstance(known, ListType) else None
        yield from _structs(kind.value_type, of_element, f"{path}element.")
