"""Nested arrays in a form that files can take: no hidden values, offsets from zero.

Arrow lets lists share, skip and reorder their values, and keeps values under nulls. Parquet's
writer refuses a null in a required field even where a null above hides it, so values that can't be
seen are left out here, and the marks of hidden nulls are taken off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.write.schema.types import is_list

_MAX_OFFSET = 2**31 - 1

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists or maps taken apart.

    Attributes:
        nulls: Which of them are null; None if none is.
        offsets: Where each begins among the visible values, 32 bits, one more than there are lists.
        picked: The visible values' places among all values: a range, or one number for each.
    """

    nulls: pa.BooleanArray | None
    offsets: pa.Int32Array
    picked: range | Numbers

    def visible(self, values: pa.Array) -> pa.Array:
        """The visible values below the lists, in order."""
        if isinstance(self.picked, range):
            return values.slice(self.picked.start, len(self.picked))
        return take(values, pa.array(self.picked))


def take_apart(array: pa.Array) -> Lists:
    """Find the visible values of lists of any Arrow type, or of maps.

    Raises:
        pa.ArrowInvalid: If there are more values than 32-bit offsets can count.
    """
    if not len(array):  # may have no offsets at all
        return Lists(None, pa.array([0], pa.int32()), range(0))
    nulls = array.is_null() if array.null_count else None
    in_order = _in_order(array, nulls)
    if in_order is not None:
        return in_order
    starts, lengths = ranges(array)
    if nulls is not None:
        lengths = np.where(nulls.to_numpy(zero_copy_only=False), 0, lengths)
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    _check_count(total)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    offsets[1:] = ends
    return Lists(nulls, pa.array(offsets), _picked(starts, lengths, ends, total))


def _in_order(array: pa.Array, nulls: pa.BooleanArray | None) -> Lists | None:
    """Ordinary lists, whose values lie one after the other: nothing to work out."""
    if not has_offsets(array.type):
        return None
    offsets = array.offsets.to_numpy()
    if nulls is not None and np.diff(offsets)[nulls.to_numpy(zero_copy_only=False)].any():
        return None
    first, last = int(offsets[0]), int(offsets[-1])
    _check_count(last - first)
    if first or offsets.dtype != np.int32:
        offsets = (offsets - first).astype(np.int32)
    return Lists(nulls, pa.array(offsets), range(first, last))


def has_offsets(kind: pa.DataType) -> bool:
    """Whether a list begins where the one before it ends."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind))


def _check_count(total: int) -> None:
    if total > _MAX_OFFSET:
        raise pa.ArrowInvalid(f"{total} values are too many for one array: pass smaller batches")


def ranges(array: pa.Array) -> tuple[Numbers, Numbers]:
    """Where each list's values begin among all values, and how many they are."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        starts = (array.offset + np.arange(len(array), dtype=np.int64)) * size
        return starts, np.full(len(array), size, dtype=np.int64)
    offsets = array.offsets.to_numpy().astype(np.int64)
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return offsets, array.sizes.to_numpy().astype(np.int64)
    return offsets[:-1], np.diff(offsets)


def _picked(starts: Numbers, lengths: Numbers, ends: Numbers, total: int) -> range | Numbers:
    some = lengths > 0
    if not total:
        return range(0)
    first = starts[some][0]
    if np.array_equal(starts[some] - first, (ends - lengths)[some]):
        return range(int(first), int(first) + total)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total, dtype=np.int64)


def take(values: pa.Array, places: pa.Array) -> pa.Array:
    """Values at places, also of the types that Arrow itself can't take from."""
    return _expanded(values).take(places)


def _expanded(array: pa.Array) -> pa.Array:
    """The array as its `takeable` type. Arrow's own cast knows no runs, and mishandles views."""
    kind = array.type
    wanted = takeable(kind)
    if wanted == kind:
        return array
    if isinstance(kind, pa.RunEndEncodedType):
        return decode(array)
    nulls = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        children = [_expanded(array.field(i)) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=nulls)
    if not pa.types.is_nested(kind):
        return array.cast(wanted)
    lists = take_apart(array)
    if pa.types.is_map(kind):
        keys = _expanded(lists.visible(array.keys))
        items = _expanded(lists.visible(array.items))
        return pa.MapArray.from_arrays(lists.offsets, keys, items, type=wanted, mask=nulls)
    values = _expanded(lists.visible(array.values))
    return pa.ListArray.from_arrays(lists.offsets, values, type=wanted, mask=nulls)


def takeable(kind: pa.DataType) -> pa.DataType:
    """The type that `take` gives: without runs, and without views of text and lists."""
    if isinstance(kind, pa.RunEndEncodedType):
        return takeable(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(takeable(f.type)) for f in kind])
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(takeable(kind.key_type))
        return pa.map_(key, kind.item_field.with_type(takeable(kind.item_type)))
    if is_list(kind):
        below = takeable(kind.value_type)
        plain = not pa.types.is_list_view(kind) and not pa.types.is_large_list_view(kind)
        if plain and below == kind.value_type:
            return kind
        return pa.list_(kind.value_field.with_type(below))
    return kind


def decode(array: pa.Array, visible: pa.BooleanArray | None = None) -> pa.Array:
    """The values of a dictionary or run-end-encoded array, of type `takeable(value type)`.

    Args:
        array: The array. One that is decoded already is returned as it is.
        visible: Rows that may be seen; the others become null. For run-end-encoded arrays only.
    """
    if isinstance(array, pa.DictionaryArray):
        return take(array.dictionary, array.indices)
    if not isinstance(array, pa.RunEndEncodedArray):
        return array
    ends = array.run_ends.to_numpy()
    rows = np.arange(array.offset, array.offset + len(array))
    places = np.searchsorted(ends, rows, side="right")
    hidden = None if visible is None else ~visible.to_numpy(zero_copy_only=False)
    return take(array.values, pa.array(places, mask=hidden))


def without_nulls(array: pa.Array) -> pa.Array:
    """The array with no value marked as null: for nulls that a null above hides anyway."""
    if not array.null_count:
        return array
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(without_nulls(array.storage))
    if pa.types.is_struct(kind):
        children = [array.field(i) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, array.items, type=kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, array.values, type=kind)
    buffers: list[Any] = [None, *array.buffers()[1:]]
    return pa.Array.from_buffers(kind, len(array), buffers, null_count=0, offset=array.offset)


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """That many nulls; required fields below are filled, since the null above hides them."""
    if not pa.types.is_struct(kind):
        return pa.nulls(count, kind)
    children = [nulls(count, f.type) for f in kind]
    children = [
        child if f.nullable else without_nulls(child)
        for child, f in zip(children, kind, strict=True)
    ]
    everywhere = pa.repeat(True, count)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=everywhere)
