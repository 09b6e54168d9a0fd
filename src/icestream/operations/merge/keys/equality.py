"""Compares the values of rows, for every type that a table can have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]


def same_values(left: pa.Array, right: pa.Array) -> Mask:
    """True where two arrays of one type have the same value, or both have null.

    Floats are the same if their bits are, or if both are NaN.
    """
    if isinstance(left, pa.ExtensionArray):
        return same_values(left.storage, right.storage)
    kind = left.type
    if pa.types.is_struct(kind):
        return _same_structs(left, right)
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _same_lists(left, right)
    if pa.types.is_floating(kind):
        bits = pa.int64() if kind.bit_width == 64 else pa.int32()
        both_nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
        equal = pc.or_(pc.equal(left.view(bits), right.view(bits)), both_nan)
    else:
        equal = pc.equal(left, right)
    both_null = pc.and_(left.is_null(), right.is_null())
    return _numpy(pc.or_(pc.fill_null(equal, False), both_null))


def _same_structs(left: pa.StructArray, right: pa.StructArray) -> Mask:
    same = _numpy(pc.equal(left.is_valid(), right.is_valid()))
    for one, other in zip(left.flatten(), right.flatten(), strict=True):
        same &= same_values(one, other)
    return same


def _same_lists(left: pa.Array, right: pa.Array) -> Mask:
    valid = _numpy(left.is_valid())
    same: Mask = valid == _numpy(right.is_valid())
    lengths, others = _lengths(left), _lengths(right)
    same &= lengths == others
    chosen = np.flatnonzero(same & valid & (lengths > 0))
    if len(chosen):
        elements = same_values(_elements(left, chosen), _elements(right, chosen))
        counts = lengths[chosen]
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        same[chosen] = np.logical_and.reduceat(elements, starts)
    return same


def _lengths(array: pa.Array) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64]
    if pa.types.is_map(array.type):
        lengths = np.diff(array.offsets.to_numpy()).astype(np.int64)
        lengths[~_numpy(array.is_valid())] = 0
    else:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    return lengths


def _elements(array: pa.Array, chosen: npt.NDArray[np.intp]) -> pa.Array:
    some = array.take(pa.array(chosen))
    if not pa.types.is_map(array.type):
        return some.flatten()
    start, stop = some.offsets[0].as_py(), some.offsets[-1].as_py()
    keys, items = some.keys.slice(start, stop - start), some.items.slice(start, stop - start)
    return pa.StructArray.from_arrays([keys, items], names=["key", "value"])


def _numpy(array: pa.Array) -> Mask:
    values: Mask = array.to_numpy(zero_copy_only=False).copy()
    return values
