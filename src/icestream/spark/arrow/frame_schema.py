"""The columns of a frame: their Arrow schema, checks, and access by any name.

PySpark reads a dot in a column name as a nested field. The functions at the end of this module work
for names with dots and backticks as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from icestream.errors import InvalidArgumentError, SchemaMismatchError, UnsupportedFeatureError
from icestream.spark.setup.installed import pyspark_module

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType as SparkStruct

_Map = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_OWN = "__icestream_"
_ROW = f"{_OWN}row"
_UNSUPPORTED = (
    "CalendarIntervalType",
    "DayTimeIntervalType",
    "GeographyType",
    "GeometryType",
    "UserDefinedType",
    "VariantType",
    "YearMonthIntervalType",
)


def arrow_schema(schema: SparkStruct, *, untyped: bool = False) -> pa.Schema:
    """The Arrow schema in which tasks get a frame's rows.

    Args:
        schema: The frame's schema.
        untyped: Whether elements of arrays and maps may lack a type, as in `array()`.

    Raises:
        SchemaMismatchError: If elements lack a type.
        UnsupportedFeatureError: If Iceberg has no type for some columns. The error lists them all.
        InvalidArgumentError: If a column has a name that is reserved for the columns of jobs.
    """
    own = [name for name in schema.names if name.lower().startswith(_OWN)]
    if own:
        raise InvalidArgumentError(
            f"the frame has the column {own[0]!r}: names that start with {_OWN} are reserved for "
            "columns that icestream adds while it works. Rename the column"
        )
    refused = [f"{path!r} ({kind.simpleString()})" for path, kind in _unsupported(schema, "")]
    if refused:
        raise UnsupportedFeatureError(
            f"these columns of the frame have types that Iceberg can't store: {', '.join(refused)}."
            " Cast them, for example to string, or drop them"
        )
    paths = list(untyped_paths(schema, ""))
    if paths and not untyped:
        raise _untyped_error(paths)
    types = pyspark_module("pyspark.sql.pandas.types")
    schema = _nullable(schema) if paths else schema
    try:
        return types.to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # PySpark 4.1: always in UTC
        return types.to_arrow_schema(schema)


def _nullable(kind: Any) -> Any:
    """The same type, with nullable elements where they have no type: Arrow requires it.

    Arrow has no keys without a type. A map that has such keys is empty, so its type is void here.
    """
    sql = pyspark_module("pyspark.sql.types")
    if isinstance(kind, sql.StructType):
        return sql.StructType([_nullable_field(field) for field in kind.fields])
    if isinstance(kind, sql.ArrayType):
        element = _nullable(kind.elementType)
        return sql.ArrayType(element, kind.containsNull or isinstance(element, sql.NullType))
    if isinstance(kind, sql.MapType):
        key, value = _nullable(kind.keyType), _nullable(kind.valueType)
        if isinstance(key, sql.NullType):
            return key
        return sql.MapType(key, value, kind.valueContainsNull or isinstance(value, sql.NullType))
    return kind


def _nullable_field(field: Any) -> Any:
    sql = pyspark_module("pyspark.sql.types")
    kind = _nullable(field.dataType)
    nullable = field.nullable or isinstance(kind, sql.NullType)
    return sql.StructField(field.name, kind, nullable, field.metadata)


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


def untyped_paths(kind: Any, path: str) -> Iterator[str]:
    """The paths of elements, keys and values without a type, as in `array()`."""
    name = type(kind).__name__
    if name == "ArrayType":
        yield from _untyped_below(kind.elementType, f"{path}.element")
    elif name == "MapType":
        yield from _untyped_below(kind.keyType, f"{path}.key")
        yield from _untyped_below(kind.valueType, f"{path}.value")
    elif name == "StructType":
        for field in kind.fields:
            yield from untyped_paths(field.dataType, f"{path}.{field.name}" if path else field.name)


def _untyped_below(kind: Any, path: str) -> Iterator[str]:
    if type(kind).__name__ == "NullType":
        yield path
    else:
        yield from untyped_paths(kind, path)


def _untyped_error(paths: list[str]) -> SchemaMismatchError:
    differences = tuple(f"{path!r} has no type (void)" for path in paths)
    return SchemaMismatchError(
        f"the frame can't be written: {'; '.join(differences)}, as in array() and map(): cast the "
        "column, for example to array<string>",
        differences=differences,
    )


def refuse_case_clashes(stream: pa.Schema, schema: Schema | None, *, table: str) -> None:
    """Refuse columns that differ only by case, because Spark could not distinguish them.

    Args:
        stream: The frame's columns.
        schema: The table's schema, if the table exists.
        table: The table's name, for messages.

    Raises:
        SchemaMismatchError: If there are such columns. The error lists them all.
    """
    known = schema.as_struct() if schema is not None else None
    clashes = [
        [path + name for name in names]
        for path, fields, existing in _structs(pa.struct(list(stream)), known, "")
        for names in _clashes({field.name for field in fields}, existing)
    ]
    if not clashes:
        return
    differences = tuple(
        f"columns {', '.join(map(repr, names))} differ only by case" for names in clashes
    )
    raise SchemaMismatchError(
        f"the frame can't be written to table {table}: {'; '.join(differences)}: rename them, or, "
        "to keep them as separate columns, set spark.sql.caseSensitive to true (with "
        "format('icestream'), the option case-sensitive)",
        differences=differences,
    )


def _clashes(given: set[str], existing: set[str]) -> Iterator[list[str]]:
    named: dict[str, set[str]] = defaultdict(set)
    for name in given:
        named[name.lower()].add(name)
    for name in existing:
        if name.lower() in named:
            named[name.lower()].add(name)
    for names in named.values():
        # If the table already has both columns, they are intended.
        if len(names) > 1 and not existing.issuperset(names):
            yield sorted(names)


def _structs(
    kind: pa.DataType, known: IcebergType | None, path: str
) -> Iterator[tuple[str, list[pa.Field], set[str]]]:
    """Every struct in a type: its path, its fields, and the table's names at that path."""
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


def quoted(*path: str) -> str:
    """The name of a column, or the path of a field in structs, quoted for Spark."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in path)


def quoted_in(columns: Sequence[str], name: str) -> str:
    """Quote a name in which dots separate struct fields, unless a column has exactly that name."""
    return quoted(name) if name in columns else quoted(*name.split("."))


def map_in_arrow(frame: DataFrame, function: _Map, schema: Any) -> DataFrame:
    """`frame.mapInArrow` that also works for column names with dots or backticks."""
    if not any("." in name or "`" in name for name in frame.columns):
        return frame.mapInArrow(function, schema)
    functions = pyspark_module("pyspark.sql.functions")
    whole = frame.select(functions.struct("*").alias(_ROW))
    return whole.mapInArrow(_OfStructs(function), schema)


@dataclass(frozen=True, slots=True)
class _OfStructs:
    """In a task: unpacks the struct that holds all columns, and calls the function."""

    function: _Map

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.function(
            pa.RecordBatch.from_struct_array(batch.column(0)) for batch in batches
        )
