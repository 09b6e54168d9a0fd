"""A table's sort order, as Arrow can sort by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import Transform, VoidTransform
from pyiceberg.types import IcebergType

from icestream.errors import UnsupportedFeatureError
from icestream.write import transforms

Row = tuple[Any, ...]

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class _Key:
    """One field of a sort order: where its column is, and how its values compare."""

    path: tuple[int, ...]
    source_type: IcebergType
    transform: Transform[Any, Any]
    descending: bool
    nulls_first: bool

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """What is compared, row by row: no floats, whose NaN Arrow would set apart."""
        array = batch.column(self.path[0])
        for position in self.path[1:]:
            array = array.flatten()[position]  # A field of a null struct is null.
        array = transforms.apply(self.transform, self.source_type, array)
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        return _float_order(array) if pa.types.is_floating(array.type) else array


class SortKeys:
    """Compares rows as a sort order says.

    Floats follow Java's total order, as the Iceberg specification asks: -NaN, -infinity, ..., -0.0,
    0.0, ..., infinity, NaN. Equal rows keep the order they came in.

    Args:
        order: The sort order; at least one of its fields must tell rows apart.
        schema: The schema that its source ids refer to.
        file_schema: What batches look like: fields carry their ids.
    """

    def __init__(self, order: SortOrder, schema: Schema, file_schema: pa.Schema) -> None:
        self.order_id = order.order_id
        self._keys = [
            _key(field, schema, file_schema)
            for field in order.fields
            if not isinstance(field.transform, VoidTransform)
        ]

    def indices(self, batch: pa.RecordBatch, ids: pa.Array | None = None) -> pa.Array:
        """The positions of the batch's rows in sorted order; by `ids` first where given."""
        columns: list[pa.Array] = [] if ids is None else [ids]
        orders = ["ascending"] * len(columns)
        for key, values in zip(self._keys, self.values(batch), strict=True):
            if values.null_count:
                columns.append(values.is_null())
                orders.append("descending" if key.nulls_first else "ascending")
            columns.append(values)
            orders.append("descending" if key.descending else "ascending")
        names = [str(number) for number in range(len(columns))]
        if not columns:  # Every field was void.
            return pa.array(np.arange(batch.num_rows, dtype=np.uint64))
        return pc.sort_indices(
            pa.RecordBatch.from_arrays(columns, names=names),
            sort_keys=list(zip(names, orders, strict=True)),
        )

    def values(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """What the rows are compared by: an array for each key."""
        return [key.values(batch) for key in self._keys]

    def earliest(self, rows: list[Row]) -> Row:
        """The row that comes first."""
        first = rows[0]
        for row in rows[1:]:
            if self._is_before(row, first):
                first = row
        return first

    def rows_up_to(self, values: list[pa.Array], bound: Row, start: int, stop: int) -> int:
        """Where the rows end that come before the bound or equal it, among sorted ones.

        Args:
            values: The rows' `values`.
            bound: One row's, by `row_at`.
            start: The first row to look at.
            stop: The row after the last.
        """
        while start < stop:
            middle = (start + stop) // 2
            if self._is_before(bound, row_at(values, middle)):
                stop = middle
            else:
                start = middle + 1
        return start

    def _is_before(self, left: Row, right: Row) -> bool:
        for key, value, other in zip(self._keys, left, right, strict=True):
            if value == other:
                continue
            if value is None or other is None:
                return key.nulls_first == (value is None)
            return bool(value > other if key.descending else value < other)
        return False


def row_at(values: list[pa.Array], position: int) -> Row:
    """One row's values as Python compares them."""
    return tuple(array[position].as_py() for array in values)


def _float_order(array: pa.Array) -> pa.Array:
    """Integers that compare as the floats do in Java's total order."""
    doubles = array.cast(pa.float64()).fill_null(0.0).to_numpy()
    bits = doubles.view(np.int64)
    ordered = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(ordered, mask=nulls)


def _key(field: SortField, schema: Schema, file_schema: pa.Schema) -> _Key:
    path = _path(field.source_id, list(file_schema))
    if path is None:
        name = schema.find_column_name(field.source_id)
        raise UnsupportedFeatureError(
            f"the table's sort order uses column {name!r} (id {field.source_id}), which is not a "
            "column nor a field of structs: sort by another, or drop the sort order"
        )
    return _Key(
        path=path,
        source_type=schema.find_type(field.source_id),
        transform=field.transform,
        descending=field.direction == SortDirection.DESC,
        nulls_first=field.null_order == NullOrder.NULLS_FIRST,
    )


def _path(field_id: int, fields: list[pa.Field]) -> tuple[int, ...] | None:
    """The positions that lead to a field, through structs."""
    for position, field in enumerate(fields):
        if int((field.metadata or {}).get(_FIELD_ID, b"-1")) == field_id:
            return (position,)
        if pa.types.is_struct(field.type):
            below = _path(field_id, list(field.type))
            if below is not None:
                return (position, *below)
    return None
