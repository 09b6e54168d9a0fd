"""Sort keys: rows compare as the sort order and the Iceberg specification say."""

from __future__ import annotations

import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from icestream.errors import UnsupportedFeatureError
from icestream.write.spill.sort_keys import SortKeys, row_at
from tests.support.tables import all_types_rows, all_types_schema

_MINUS_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
_NUMBERS = ["boolean", "int", "long", "decimal9", "decimal38"]
_TIMES = ["date", "time", "timestamp", "timestamptz"]
_TYPES = [*_NUMBERS, *_TIMES, "string", "uuid", "fixed", "binary"]
_DIRECTIONS = [SortDirection.ASC, SortDirection.DESC]


def _order(name: str, schema: Schema, **options: Any) -> SortOrder:
    return SortOrder(SortField(schema.find_field(name).field_id, IdentityTransform(), **options))


def _one_column(kind: Any, values: list[Any]) -> tuple[Schema, pa.RecordBatch]:
    schema = Schema(NestedField(1, "value", kind, required=False))
    file_schema = schema_to_pyarrow(schema)
    batch = pa.RecordBatch.from_arrays([pa.array(values, file_schema[0].type)], schema=file_schema)
    return schema, batch


def _sorted_values(
    kind: Any, values: list[Any], direction: SortDirection, null_order: NullOrder
) -> list[Any]:
    schema, batch = _one_column(kind, values)
    order = SortOrder(SortField(1, IdentityTransform(), direction, null_order))
    keys = SortKeys(order, schema, batch.schema)
    result: list[Any] = batch.take(keys.indices(batch)).column(0).to_pylist()
    return result


@pytest.mark.parametrize("direction", _DIRECTIONS)
@pytest.mark.parametrize("null_order", list(NullOrder))
def test_nulls_go_where_the_order_says_in_both_directions(direction, null_order) -> None:
    values = _sorted_values(IntegerType(), [2, None, 1, None, 3], direction, null_order)
    present = [1, 2, 3] if direction == SortDirection.ASC else [3, 2, 1]
    first = null_order == NullOrder.NULLS_FIRST
    assert values == ([None, None, *present] if first else [*present, None, None])


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()])
@pytest.mark.parametrize("direction", _DIRECTIONS)
def test_floats_follow_the_total_order_of_the_specification(kind, direction) -> None:
    expected = [_MINUS_NAN, -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, math.nan]
    shuffled = [expected[i] for i in (5, 0, 7, 3, 1, 6, 4, 2)] + [None]
    values = _sorted_values(kind, shuffled, direction, NullOrder.NULLS_LAST)
    if direction == SortDirection.DESC:
        expected.reverse()
    # As bits, which tell the zeros and the NaNs apart.
    assert [struct.pack("<f", value) for value in values[:-1]] == [
        struct.pack("<f", value) for value in expected
    ]
    assert values[-1] is None


@pytest.mark.parametrize("direction", _DIRECTIONS)
@pytest.mark.parametrize("name", _TYPES)
def test_every_type_is_sorted_as_python_sorts_it_and_bounds_agree(name, direction) -> None:
    schema = all_types_schema()
    rows = all_types_rows(400)
    (batch,) = rows.combine_chunks().to_batches()
    file_schema = schema_to_pyarrow(schema)
    batch = pa.RecordBatch.from_arrays(
        [batch.column(field.name).cast(field.type) for field in file_schema], schema=file_schema
    )
    order = _order(name, schema, direction=direction, null_order=NullOrder.NULLS_FIRST)
    keys = SortKeys(order, schema, file_schema)
    ordered = batch.take(keys.indices(batch))
    values = [_as_key(value) for value in ordered.column(name).to_pylist()]
    nulls = values.count(None)
    assert 0 < nulls < len(values)
    assert values[:nulls] == [None] * nulls
    descending = direction == SortDirection.DESC
    assert values[nulls:] == sorted(values[nulls:], reverse=descending)
    for position in (0, nulls - 1, nulls, 200, 399):
        bound = row_at(keys.values(ordered), position)
        last_equal = max(i for i, value in enumerate(values) if value == values[position])
        assert keys.rows_up_to(keys.values(ordered), bound, 0, 400) == last_equal + 1


def _as_key(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()  # Iceberg compares text by its code points, as UTF-8 does.
    return value.bytes if hasattr(value, "bytes") else value


def test_equal_rows_keep_the_order_they_came_in() -> None:
    schema, batch = _one_column(StringType(), ["b", "a", "b", "a"])
    for direction in _DIRECTIONS:
        keys = SortKeys(_order("value", schema, direction=direction), schema, batch.schema)
        indices = keys.indices(batch).to_pylist()
        ascending = direction == SortDirection.ASC
        assert indices == ([1, 3, 0, 2] if ascending else [0, 2, 1, 3])


def test_partition_ids_come_before_the_keys() -> None:
    schema, batch = _one_column(LongType(), [1, 2, 3, 4])
    keys = SortKeys(_order("value", schema, direction=SortDirection.DESC), schema, batch.schema)
    ids = pa.array([1, 0, 1, 0], pa.int32())
    assert keys.indices(batch, ids).to_pylist() == [3, 1, 2, 0]


def test_a_field_of_a_null_struct_is_null() -> None:
    inner = StructType(NestedField(2, "x", IntegerType(), required=False))
    schema = Schema(NestedField(1, "outer", inner, required=False))
    file_schema = schema_to_pyarrow(schema)
    values = pa.StructArray.from_arrays(
        [pa.array([5, -1, 3], pa.int32())],
        fields=list(file_schema[0].type),
        mask=pa.array([False, True, False]),
    )
    batch = pa.RecordBatch.from_arrays([values], schema=file_schema)
    order = SortOrder(SortField(2, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST))
    assert SortKeys(order, schema, file_schema).indices(batch).to_pylist() == [2, 0, 1]


def test_an_order_of_void_fields_leaves_rows_as_they_are() -> None:
    schema, batch = _one_column(LongType(), [3, 1, 2])
    keys = SortKeys(SortOrder(SortField(1, VoidTransform())), schema, batch.schema)
    assert keys.indices(batch).to_pylist() == [0, 1, 2]
    assert keys.rows_up_to(keys.values(batch), row_at(keys.values(batch), 0), 0, 3) == 3


def test_a_column_inside_a_list_can_not_be_sorted_by() -> None:
    kind = ListType(2, LongType(), element_required=False)
    schema = Schema(NestedField(1, "longs", kind, required=False))
    order = SortOrder(SortField(2, IdentityTransform()))
    with pytest.raises(UnsupportedFeatureError, match="longs"):
        SortKeys(order, schema, schema_to_pyarrow(schema))
