"""Whether values are the same, for values of every type, against Python's own comparison."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icestream.operations.merge.keys.equality import same_values
from tests.support.all_types import all_types_rows

_NAN = float("nan")
_INTS = st.one_of(st.none(), st.integers(0, 2))
_FLOATS = st.sampled_from([None, 0.0, -0.0, 1.5, _NAN])
_STRUCT = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))])
_KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {}


def _lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.lists(values, max_size=3))


def _maps(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.dictionaries(st.sampled_from("xy"), values, max_size=2).map(lambda d: [*d.items()])
    return st.one_of(st.none(), pairs)


_STRUCTS = st.one_of(st.none(), st.fixed_dictionaries({"a": _INTS, "b": _lists(_FLOATS)}))
_KINDS = {
    "int": (pa.int64(), _INTS),
    "float": (pa.float32(), _FLOATS),
    "double": (pa.float64(), _FLOATS),
    "string": (pa.string(), st.one_of(st.none(), st.sampled_from(["", "a", "b"]))),
    "fixed": (pa.binary(2), st.one_of(st.none(), st.sampled_from([b"aa", b"ab"]))),
    "bool": (pa.bool_(), st.one_of(st.none(), st.booleans())),
    "list": (pa.list_(pa.int64()), _lists(_INTS)),
    "large list": (pa.large_list(pa.float64()), _lists(_FLOATS)),
    "list of lists": (pa.list_(pa.list_(pa.int64())), _lists(_lists(_INTS))),
    "struct": (_STRUCT, _STRUCTS),
    "list of structs": (pa.list_(_STRUCT), _lists(_STRUCTS)),
    "map": (pa.map_(pa.string(), pa.float64()), _maps(_FLOATS)),
    "map of structs": (pa.map_(pa.string(), _STRUCT), _maps(_STRUCTS)),
    "map of lists": (pa.map_(pa.string(), pa.list_(pa.int64())), _maps(_lists(_INTS))),
    "struct of maps": (
        pa.struct([("m", pa.map_(pa.string(), pa.int64()))]),
        st.one_of(st.none(), st.fixed_dictionaries({"m": _maps(_INTS)})),
    ),
}


def _plain(value: Any) -> Any:
    """A form in which NaN equals NaN, and -0.0 and 0.0 differ."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _expected(left: pa.Array, right: pa.Array) -> list[bool]:
    pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
    return [_plain(one) == _plain(other) for one, other in pairs]


@pytest.mark.parametrize("name", _KINDS)
def test_values_are_the_same_just_if_python_says_so(name: str) -> None:
    kind, values = _KINDS[name]

    @settings(max_examples=60, deadline=None)
    @given(pairs=st.lists(st.tuples(values, values), max_size=12), cut=st.integers(0, 3))
    def check(pairs: list[tuple[Any, Any]], cut: int) -> None:
        """Both whole and cut at different places."""
        left = pa.array([pair[0] for pair in pairs], kind)
        right = pa.array([pair[1] for pair in pairs], kind)
        found = same_values(left, right)
        assert found.dtype == np.bool_
        assert found.tolist() == _expected(left, right)
        assert same_values(left, left).all()
        other = pa.concat_arrays([right.slice(0, min(cut, len(right))), right])
        sliced, whole = other.slice(min(cut, len(right))), left.slice(cut)
        assert same_values(left, sliced).tolist() == _expected(left, right)
        assert same_values(whole, right.slice(cut)).tolist() == _expected(left, right)[cut:]

    check()


@pytest.mark.parametrize("name", all_types_rows(0).column_names)
def test_every_type_of_a_table_is_compared(name: str) -> None:
    """Rows against themselves in another order, of which some stay where they are."""
    column = all_types_rows(400, seed=3)[name].combine_chunks()
    order = list(range(400))
    moved = random.Random(0).sample(order, 100)
    for one, other in zip(moved, moved[1:] + moved[:1], strict=True):
        order[one] = other
    taken = column.take(pa.array(order))
    assert same_values(column, taken).tolist() == _expected(column, taken)
    assert same_values(column.slice(37), taken.slice(37)).tolist() == _expected(
        column.slice(37), taken.slice(37)
    )
    assert same_values(column, pa.concat_arrays([column])).all()


def test_what_lies_under_a_null_does_not_matter() -> None:
    """Arrow keeps some bytes for a null value, too."""
    mask = pa.array([True, False])
    left = pa.StructArray.from_arrays([pa.array([1, 2])], names=["a"], mask=mask)
    right = pa.StructArray.from_arrays([pa.array([9, 2])], names=["a"], mask=mask)
    assert same_values(left, right).tolist() == [True, True]
    offsets = pa.array([0, 2, 3], pa.int32())
    lists = [
        pa.ListArray.from_arrays(offsets, pa.array(values), mask=mask)
        for values in ([1, 2, 3], [7, 8, 3])
    ]
    assert same_values(*lists).tolist() == [True, True]


def test_the_order_of_entries_in_a_map_counts() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    left = pa.array([[("x", 1), ("y", 2)]], kind)
    right = pa.array([[("y", 2), ("x", 1)]], kind)
    assert same_values(left, right).tolist() == [False]
