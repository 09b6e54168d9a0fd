"""Decimals of up to 38 digits as two integers: the same as in exact arithmetic."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from icestream.write.partition.decimals import Unscaled

_numbers = st.lists(st.integers(1 - 10**38, 10**38 - 1), min_size=1, max_size=20)


def _array(numbers: list[int]) -> pa.Array:
    return pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0))


@given(_numbers)
def test_values_come_back_from_slices_and_with_nulls(numbers: list[int]) -> None:
    whole = _array([7, *numbers])
    nulls = np.arange(len(numbers)) % 2 == 1
    back = Unscaled.of(whole.slice(1)).to_arrow(whole.type, nulls)
    expected = [None if null else number for number, null in zip(numbers, nulls, strict=True)]
    assert [None if each is None else int(each) for each in back.to_pylist()] == expected


@given(_numbers, st.integers(1, 2**31 - 1))
@example([2**64 + 1, -(2**64) + 1], 7)  # the lower half borrows from the upper one
def test_floor_gives_the_next_lower_multiple(numbers: list[int], width: int) -> None:
    floored = Unscaled.of(_array(numbers)).floor(width)
    expected = [number - number % width for number in numbers]
    pairs = zip(floored.high.tolist(), floored.low.tolist(), strict=True)
    assert [(high << 64) + low for high, low in pairs] == expected


@given(_numbers, st.integers(-(10**38), 10**38))
def test_below_compares_both_halves(numbers: list[int], limit: int) -> None:
    assert Unscaled.of(_array(numbers)).below(limit).tolist() == [n < limit for n in numbers]


@given(_numbers)
def test_bytes_are_the_shortest_that_hold_the_sign(numbers: list[int]) -> None:
    data, starts, lengths = Unscaled.of(_array(numbers)).minimal_bytes()
    for number, start, length in zip(numbers, starts.tolist(), lengths.tolist(), strict=True):
        assert int.from_bytes(data[start : start + length].tobytes(), signed=True) == number
        bits = (number if number >= 0 else ~number).bit_length() + 1
        assert length == max(1, -(-bits // 8))
