"""A set of row positions behaves like a set of integers, in little memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icestream.read.deletes.position_set import PositionSet, most_bytes


@settings(max_examples=300, deadline=None)
@given(
    st.sets(st.integers(0, 40)),
    st.integers(0, 45),
    st.integers(0, 20),
)
def test_the_mask_keeps_exactly_the_rows_that_are_not_deleted(
    deleted: set[int], first: int, count: int
) -> None:
    mask = PositionSet(np.array(list(deleted), dtype=np.int64)).keep_mask(first, count)
    expected = [position not in deleted for position in range(first, first + count)]
    if mask is None:
        assert all(expected)
    else:
        assert mask.to_pylist() == expected


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(0, 300_000) | st.integers(2**32 - 5, 2**33), max_size=20), max_size=4
    ),
    st.tuples(st.integers(0, 2**33), st.integers(0, 2**33)),
)
def test_a_set_of_positions_is_a_set(parts: list[list[int]], bounds: tuple[int, int]) -> None:
    found, joined = PositionSet(), PositionSet()
    for part in parts:
        found.add(np.array(part, dtype=np.int64))
        joined.update(PositionSet(np.array(part, dtype=np.int64)))
    expected = sorted({position for part in parts for position in part})
    assert len(found) == len(expected)
    assert found == joined
    first, end = sorted(bounds)
    inside = [position for position in expected if first <= position < end]
    assert found.between(first, end).tolist() == inside
    assert [position for piece in found.pieces() for position in piece.tolist()] == expected
    count = sum(len(part) for part in parts)
    assert found.nbytes <= most_bytes(count) + 200


def test_a_position_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="position is -1"):
        PositionSet(np.array([3, -1]))
