"""Expand dictionary columns in parts that fit the memory limit.

A column that is decoded as a dictionary holds each value once, however many rows have it. Expanding
all rows at a time could take gigabytes if thousands of rows have the same long value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_OFFSET_BYTES = 8
_OFFSETS: dict[pa.DataType, npt.DTypeLike] = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}

Sizes = npt.NDArray[np.int64]


def dictionary_columns(schema: pa.Schema) -> list[int]:
    """The indices of columns that are or contain dictionaries."""
    return [index for index, field in enumerate(schema) if has_dictionary(field.type)]


def rows_that_fit(batch: pa.RecordBatch, dictionaries: list[int], most_bytes: int) -> int:
    """The number of rows from the start that fit `most_bytes` when expanded; at least 1.

    Args:
        batch: The rows.
        dictionaries: The `dictionary_columns` of the batch, the same for all batches of a file.
        most_bytes: Maximum size of the expanded rows.
    """
    columns = [batch.column(index) for index in dictionaries]
    if not columns or sum(_bound(column) for column in columns) <= most_bytes:
        return int(batch.num_rows)
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in columns:
        sizes += _row_sizes(column)
    fitting = int(np.searchsorted(np.cumsum(sizes), most_bytes, side="right"))
    return max(1, fitting)


def cut_out(batch: pa.RecordBatch, rows: int) -> pa.RecordBatch:
    """A copy of the first rows. A slice would count and keep the buffers of all rows."""
    columns = [
        column if has_dictionary(column.type) else pa.concat_arrays([column])
        for column in batch.slice(0, rows).columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def has_dictionary(kind: pa.DataType) -> bool:
    """Whether a type is a dictionary or contains one."""
    if isinstance(kind, pa.DictionaryType):
        return True
    return any(has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def spread_type(kind: pa.DataType) -> pa.DataType:
    """The type with dictionaries replaced by their value type."""
    if not has_dictionary(kind):
        return kind
    if isinstance(kind, pa.DictionaryType):
        return kind.value_type
    if isinstance(kind, pa.StructType):
        return pa.struct([_spread_field(field) for field in kind])
    if isinstance(kind, pa.MapType):
        return pa.map_(
            _spread_field(kind.key_field), _spread_field(kind.item_field), kind.keys_sorted
        )
    if isinstance(kind, pa.FixedSizeListType):
        return pa.list_(_spread_field(kind.value_field), kind.list_size)
    make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
    return make(_spread_field(kind.value_field))


def spread_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with dictionaries replaced by their value type."""
    return pa.schema([_spread_field(field) for field in schema], schema.metadata)


def _spread_field(field: pa.Field) -> pa.Field:
    return field.with_type(spread_type(field.type)) if has_dictionary(field.type) else field


def _bound(array: pa.Array) -> int:
    """Upper bound for the expanded size: the longest value in every row."""
    kind = array.type
    if isinstance(kind, pa.DictionaryType):
        return len(array) * (_longest(array.dictionary) + _OFFSET_BYTES)
    if isinstance(kind, pa.StructType):
        return sum(_bound(array.field(i)) for i in range(kind.num_fields))
    if isinstance(kind, pa.MapType):
        return _bound(array.keys) + _bound(array.items)
    return _bound(array.values) if kind.num_fields else 0


def _row_sizes(array: pa.Array) -> Sizes:
    """Expanded bytes of each row's dictionary values."""
    kind = array.type
    if isinstance(kind, pa.DictionaryType):
        lengths = _lengths(array.dictionary) + _OFFSET_BYTES
        if not len(lengths):
            return np.full(len(array), _OFFSET_BYTES, dtype=np.int64)
        codes = pc.fill_null(array.indices, 0).to_numpy(zero_copy_only=False)
        sizes: Sizes = lengths[codes]
        return sizes
    if isinstance(kind, pa.StructType):
        parts = [p for p in array.flatten() if has_dictionary(p.type)]
        total: Sizes = np.sum([_row_sizes(p) for p in parts], axis=0, dtype=np.int64)
        return total
    if isinstance(kind, pa.MapType):
        return _list_sizes(array, array.keys) + _list_sizes(array, array.items)
    return _list_sizes(array, array.values)


def _list_sizes(lists: pa.Array, values: pa.Array) -> Sizes:
    if not has_dictionary(values.type):
        return np.zeros(len(lists), dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(_row_sizes(values))))
    if isinstance(lists.type, pa.FixedSizeListType):
        size = lists.type.list_size
        edges = (lists.offset + np.arange(len(lists) + 1)) * size
    else:
        edges = lists.offsets.to_numpy().astype(np.int64)
    sizes: Sizes = np.diff(before[edges])
    return sizes


def _longest(values: pa.Array) -> int:
    """The length of the longest value, from the offsets alone, because every step needs it."""
    kind = _OFFSETS.get(values.type)
    if kind is None or not len(values):
        return int(_lengths(values).max(initial=0))
    stored: Any = values.buffers()[1]
    offsets = np.frombuffer(stored, kind)[values.offset : values.offset + len(values) + 1]
    return int(np.diff(offsets).max())


def _lengths(values: pa.Array) -> Sizes:
    given = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
    return np.asarray(given, dtype=np.int64)
