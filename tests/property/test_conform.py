"""Rows come out of the conversion as they went in, however Arrow happened to hold them."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from icestream.errors import InvalidDataError
from icestream.write.schema.conform import Conformer

_LEAVES: dict[type[IcebergType], tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    BooleanType: (pa.bool_(), st.booleans()),
    IntegerType: (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    LongType: (pa.uint64(), st.integers(0, 2**63 - 1)),
    DoubleType: (pa.float64(), st.floats(allow_nan=False)),
    StringType: (pa.string(), st.text(max_size=20)),
}


def _leaf() -> st.SearchStrategy[IcebergType]:
    return st.sampled_from([kind() for kind in _LEAVES])


def _nested(below: st.SearchStrategy[IcebergType]) -> st.SearchStrategy[IcebergType]:
    fields = st.lists(st.tuples(below, st.booleans()), min_size=1, max_size=3)
    return st.one_of(
        fields.map(
            lambda each: StructType(
                *(NestedField(n, f"f{n}", t, required=r) for n, (t, r) in enumerate(each))
            )
        ),
        st.builds(lambda t, r: ListType(1, t, element_required=r), below, st.booleans()),
        st.builds(
            lambda k, v, r: MapType(1, k, 2, v, value_required=r), _leaf(), below, st.booleans()
        ),
    )


_types = st.recursive(_leaf(), _nested, max_leaves=5)


@functools.lru_cache(1000)  # Making strategies takes longer than drawing from them.
def _values(kind: IcebergType, required: bool) -> st.SearchStrategy[Any]:
    """Plain Python values, as `to_pylist` gives them."""
    if isinstance(kind, StructType):
        made: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {f.name: _values(f.field_type, f.required) for f in kind.fields}
        )
    elif isinstance(kind, ListType):
        made = st.lists(_values(kind.element_type, kind.element_required), max_size=3)
    elif isinstance(kind, MapType):
        value = _values(kind.value_type, kind.value_required)
        made = st.lists(st.tuples(_values(kind.key_type, True), value), max_size=3)
    else:
        made = _LEAVES[type(kind)][1]
    return made if required else st.none() | made


class _Holder:
    """Builds arrays of given values in any of the ways Arrow has, with values under nulls."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw

    def array(self, kind: IcebergType, values: list[Any]) -> pa.Array:
        # A slice of something longer: its neighbours are not to be seen.
        before = self._draw(st.integers(0, 2))
        after = self._draw(st.integers(0, 1))
        others = st.just(None) | _values(kind, False)
        around = [self._draw(others) for _ in range(before + after)]
        whole = self._whole(kind, [*around[:before], *values, *around[before:]])
        return whole.slice(before, len(values))

    def _whole(self, kind: IcebergType, values: list[Any]) -> pa.Array:
        if isinstance(kind, StructType):
            return self._struct(kind, values)
        if isinstance(kind, ListType):
            return self._list(kind, values)
        if isinstance(kind, MapType):
            return self._map(kind, values)
        return self._leaf(kind, values)

    def _hidden(self, kind: IcebergType, values: list[Any]) -> tuple[list[Any], pa.Array]:
        """Something in the place of each null, and where the nulls are."""
        some = _values(kind, True)
        filled = [self._draw(some) if value is None else value for value in values]
        return filled, pa.array([value is None for value in values], pa.bool_())

    def _leaf(self, kind: IcebergType, values: list[Any]) -> pa.Array:
        array = pa.array(values, _LEAVES[type(kind)][0])
        form = self._draw(st.sampled_from(["plain", "dictionary", "runs", "view", "large"]))
        if form in ("view", "large") and pa.types.is_string(array.type):
            array = array.cast(pa.string_view() if form == "view" else pa.large_string())
            if form == "view" and self._draw(st.booleans()):
                indices = pa.array([None if v is None else i for i, v in enumerate(values)])
                array = pa.DictionaryArray.from_arrays(indices.cast(pa.int8()), array)
        elif form == "dictionary" and not pa.types.is_boolean(array.type):
            array = array.dictionary_encode()
        elif form == "runs":
            ends = pa.array(range(1, len(values) + 1), pa.int32())
            array = pa.RunEndEncodedArray.from_arrays(ends, array)
        return array

    def _struct(self, kind: StructType, values: list[Any]) -> pa.Array:
        filled, mask = self._hidden(kind, values)
        children = [
            self.array(f.field_type, [value[f.name] for value in filled]) for f in kind.fields
        ]
        names = [f.name for f in kind.fields]
        order = self._draw(st.permutations(range(len(names))))
        arrays = [children[i] for i in order] + [pa.nulls(len(values))]
        labels = [names[i] for i in order] + ["unknown"]
        return pa.StructArray.from_arrays(arrays, names=labels, mask=mask)

    def _list(self, kind: ListType, values: list[Any]) -> pa.Array:
        filled, mask = self._hidden(kind, values)
        form = self._draw(st.sampled_from(["list", "large", "view", "large view", "fixed"]))
        if form == "fixed" and len({len(value) for value in filled}) == 1:
            size = len(filled[0])
            below = self._whole(kind.element_type, [v for value in filled for v in value])
            if size:
                return pa.FixedSizeListArray.from_arrays(below, size, mask=mask)
        if form in ("view", "large view"):
            return self._list_view(kind, filled, mask, large=form == "large view")
        offsets, flat = _flat(filled)
        below = self.array(kind.element_type, flat)
        if form == "large":
            starts = pa.array(offsets, pa.int64())
            return pa.LargeListArray.from_arrays(starts, below, mask=mask)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), below, mask=mask)

    def _list_view(
        self, kind: ListType, filled: list[Any], mask: pa.Array, *, large: bool
    ) -> pa.Array:
        """Lists whose values lie in another order than the lists."""
        order = self._draw(st.permutations(range(len(filled))))
        offsets, flat = _flat([filled[i] for i in order])
        starts = [0] * len(filled)
        for place, i in enumerate(order):
            starts[i] = offsets[place]
        make, width = (
            (pa.LargeListViewArray, pa.int64()) if large else (pa.ListViewArray, pa.int32())
        )
        sizes = [len(value) for value in filled]
        below = self.array(kind.element_type, flat)
        return make.from_arrays(pa.array(starts, width), pa.array(sizes, width), below, mask=mask)

    def _map(self, kind: MapType, values: list[Any]) -> pa.Array:
        filled, mask = self._hidden(kind, values)
        offsets, flat = _flat(filled)
        keys = pa.array([k for k, _ in flat], _LEAVES[type(kind.key_type)][0])
        items = self.array(kind.value_type, [v for _, v in flat])
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, mask=mask)


def _flat(values: list[Any]) -> tuple[list[int], list[Any]]:
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    return offsets, [v for value in values for v in value]


@st.composite
def _columns(draw: Any) -> tuple[Schema, list[Any], pa.RecordBatch]:
    kind = draw(_types)
    required = draw(st.booleans())
    values = draw(st.lists(_values(kind, required), max_size=6))
    schema = Schema(NestedField(1, "c", kind, required=required))
    fresh = iter(range(1, 1000))
    schema = assign_fresh_schema_ids(schema, lambda: next(fresh))
    array = _Holder(draw).array(kind, values)
    return schema, values, pa.record_batch([array], names=["c"])


_slow = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@_slow
@given(_columns())
def test_values_come_out_as_they_went_in_and_files_take_them(
    column: tuple[Schema, list[Any], pa.RecordBatch],
) -> None:
    schema, values, batch = column
    conformer = Conformer(batch.schema, schema, mode="discard", table="db.t")
    out = conformer.convert(batch)
    out.validate(full=True)
    assert out.schema.equals(conformer.file_schema, check_metadata=True)
    assert out.column(0).type.equals(conformer.file_schema.field(0).type, check_metadata=True)
    assert out.column(0).to_pylist() == values
    assert _through_parquet(out) == values


@_slow
@given(_columns(), st.integers(1, 200))
def test_pieces_hold_all_rows_in_order(
    column: tuple[Schema, list[Any], pa.RecordBatch], max_bytes: int
) -> None:
    schema, values, batch = column
    conformer = Conformer(batch.schema, schema, mode="discard", table="db.t")
    pieces = list(conformer.pieces(batch, max_bytes=max_bytes))
    assert [v for piece in pieces for v in piece.column(0).to_pylist()] == values
    assert conformer.rows == len(values)


@_slow
@given(_columns(), st.data())
def test_a_null_anywhere_it_is_required_is_found_with_its_row(
    column: tuple[Schema, list[Any], pa.RecordBatch], data: st.DataObject
) -> None:
    schema, values, _ = column
    field = schema.fields[0]
    spoiled = [_spoil(field.field_type, field.required, v, data.draw) for v in values]
    bad = [row for row, value in enumerate(spoiled) if _wrong(field, value)]
    batch = pa.record_batch([_Holder(data.draw).array(field.field_type, spoiled)], names=["c"])
    frozen = Conformer(batch.schema, schema, mode="discard", table="db.t")
    in_pieces = Conformer(batch.schema, schema, mode="discard", table="db.t")
    if not bad:
        assert frozen.convert(batch).column(0).to_pylist() == spoiled
        return
    with pytest.raises(InvalidDataError, match=f"first in row {bad[0]}, ") as caught:
        frozen.convert(batch)
    assert caught.value.column.split(".")[0] == "c"
    with pytest.raises(InvalidDataError, match=f"first in row {bad[0]}, "):
        list(in_pieces.pieces(batch, max_bytes=1))


def _spoil(kind: IcebergType, required: bool, value: Any, draw: Any) -> Any:
    """The value, or one with nulls where none may be."""
    if value is None or (required and draw(st.integers(0, 3)) == 0):
        return None
    if isinstance(kind, StructType):
        return {f.name: _spoil(f.field_type, f.required, value[f.name], draw) for f in kind.fields}
    if isinstance(kind, ListType):
        return [_spoil(kind.element_type, kind.element_required, v, draw) for v in value]
    if isinstance(kind, MapType):
        return [(k, _spoil(kind.value_type, kind.value_required, v, draw)) for k, v in value]
    return value


def _wrong(field: NestedField, value: Any) -> bool:
    if value is None:
        return field.required
    kind = field.field_type
    if isinstance(kind, StructType):
        return any(_wrong(f, value[f.name]) for f in kind.fields)
    if isinstance(kind, ListType):
        return any(_wrong(kind.element_field, v) for v in value)
    if isinstance(kind, MapType):
        return any(_wrong(kind.value_field, v) for _, v in value)
    return False


def _through_parquet(batch: pa.RecordBatch) -> list[Any]:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), file)
    values: list[Any] = pq.read_table(io.BytesIO(file.getvalue())).column(0).to_pylist()
    return values
