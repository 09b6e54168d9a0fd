"""Translates a table's sort order into keys that Arrow can sort by."""

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
from icestream.write.partition import transforms
from icestream.write.partition.partitioner import path_to

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Key:
    """One field of a sort order: the position of its column and how to compare its values."""

    path: tuple[int, ...]
    source_type: IcebergType
    transform: Transform[Any, Any]
    descending: bool
    nulls_first: bool

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """The values to compare. Floats and dates become integers."""
        array = batch.column(self.path[0])
        for position in self.path[1:]:
            array = array.flatten()[position]  # `flatten` makes fields of null structs null.
        array = transforms.apply(self.transform, self.source_type, array)
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if pa.types.is_date(array.type) or pa.types.is_timestamp(array.type):
            # Python, which compares single rows, has no dates before the year 1 or after 9999.
            return array.view(pa.int32() if array.type == pa.date32() else pa.int64())
        return _float_order(array) if pa.types.is_floating(array.type) else array


class SortKeys:
    """Compares rows by a sort order.

    Floats follow Java's total order, as the Iceberg specification requires: -NaN, -infinity, ...,
    -0.0, 0.0, ..., infinity, NaN. Equal rows keep their order.

    Args:
        order: The sort order; at least one of its fields must not be void.
        schema: The schema that the order's source ids refer to.
        file_schema: The schema of the batches, whose fields carry their ids.
    """

    def __init__(self, order: SortOrder, schema: Schema, file_schema: pa.Schema) -> None:
        self._keys = [
            _key(field, schema, file_schema)
            for field in order.fields
            if not isinstance(field.transform, VoidTransform)
        ]

    def indices(self, batch: pa.RecordBatch, ids: pa.Array | None = None) -> pa.Array:
        """The positions of the rows in sorted order; `ids`, if given, are the first key."""
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
        """The values that rows are compared by: one array for each key."""
        return [key.values(batch) for key in self._keys]

    def earliest(self, rows: list[Row]) -> Row:
        """The row that sorts first."""
        first = rows[0]
        for row in rows[1:]:
            if self._is_before(row, first):
                first = row
        return first

    def rows_up_to(self, values: list[pa.Array], bound: Row, start: int, stop: int) -> int:
        """The position after the last row that sorts before the bound or equal to it.

        Args:
            values: The `values` of sorted rows.
            bound: The values of one row, from `row_at`.
            start: The first row to search.
            stop: The end of the rows to search (exclusive).
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
    """One row's values as Python objects, which can be compared."""
    return tuple(array[position].as_py() for array in values)


def _float_order(array: pa.Array) -> pa.Array:
    """Integers that sort like the floats do in Java's total order."""
    doubles = array.cast(pa.float64()).fill_null(0.0).to_numpy()
    bits = doubles.view(np.int64)
    ordered = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(ordered, mask=nulls)


def _key(field: SortField, schema: Schema, file_schema: pa.Schema) -> _Key:
    path = path_to(file_schema, field.source_id)
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
