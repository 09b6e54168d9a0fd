"""Converts Arrow batches for Spark: 32-bit offsets, UUIDs as text, bytes of fixed size, times.

Spark requires that the batches of a data source have exactly Spark's schema, including nullability.
Spark's JVM code supports neither large lists nor extension types.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from icestream.read.project.conversion import uuid_text

Convert = Callable[[pa.Array], pa.Array]


def spark_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """The Arrow schema that Spark expects for a scan's schema."""
    return pa.schema([_spark_field(field, field.name) for field in schema])


def _spark_field(field: pa.Field, name: str) -> pa.Field:
    return pa.field(name, _spark_type(field.type), field.nullable)


def _spark_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.UuidType) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_spark_field(kind.value_field, "element"))
    if pa.types.is_map(kind):
        key, value = _spark_field(kind.key_field, "key"), _spark_field(kind.item_field, "value")
        return pa.map_(key, value)
    if pa.types.is_struct(kind):
        return pa.struct([_spark_field(field, field.name) for field in kind])
    if pa.types.is_time64(kind):
        return pa.time64("ns")
    return kind


class SparkBatches:
    """Converts batches of one schema into batches that Spark accepts.

    Args:
        schema: The scan's schema.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = spark_arrow_schema(schema)
        self._columns = [
            _converter(field.type, target.type)
            for field, target in zip(schema, self.schema, strict=True)
        ]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            array if convert is None else convert(array)
            for array, convert in zip(batch.columns, self._columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _converter(source: pa.DataType, target: pa.DataType) -> Convert | None:
    """A function from arrays of `source` to arrays of `target`, or None if the types are equal."""
    if isinstance(source, pa.UuidType):
        return uuid_text
    if not _has_uuid(source):
        # Compare the text as well, because equality ignores the names of list elements.
        same = source.equals(target) and str(source) == str(target)
        return None if same else (lambda array: array.cast(target))
    if pa.types.is_struct(source):
        return _struct_converter(source, target)
    if pa.types.is_map(source):
        return _map_converter(source, target)
    return _list_converter(source, target)


def _has_uuid(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.UuidType):
        return True
    if pa.types.is_map(kind):
        return _has_uuid(kind.key_type) or _has_uuid(kind.item_type)
    if pa.types.is_struct(kind):
        return any(_has_uuid(field.type) for field in kind)
    nested = pa.types.is_large_list(kind) or pa.types.is_list(kind)
    return nested and _has_uuid(kind.value_type)


def _struct_converter(source: pa.StructType, target: pa.StructType) -> Convert:
    parts = [_converter(a.type, b.type) for a, b in zip(source, target, strict=True)]
    fields = list(target)

    def convert(array: pa.StructArray) -> pa.StructArray:
        children = [_apply(part, array.field(i)) for i, part in enumerate(parts)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=_nulls(array))

    return convert


def _list_converter(source: pa.DataType, target: pa.ListType) -> Convert:
    part = _converter(source.value_type, target.value_type)

    def convert(array: pa.Array) -> pa.ListArray:
        values = _apply(part, array.values)
        return pa.ListArray.from_arrays(_offsets(array), values, type=target, mask=_nulls(array))

    return convert


def _map_converter(source: pa.MapType, target: pa.MapType) -> Convert:
    key = _converter(source.key_type, target.key_type)
    item = _converter(source.item_type, target.item_type)

    def convert(array: pa.MapArray) -> pa.MapArray:
        return pa.MapArray.from_arrays(
            _offsets(array),
            _apply(key, array.keys),
            _apply(item, array.items),
            type=target,
            mask=_nulls(array),
        )

    return convert


def _apply(part: Convert | None, array: pa.Array) -> pa.Array:
    return array if part is None else part(array)


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _offsets(array: pa.Array) -> pa.Array:
    """A copy of the offsets, because `from_arrays` can't combine sliced offsets with a mask."""
    return pa.array(array.offsets.to_numpy().astype(np.int32))
