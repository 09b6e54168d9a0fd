"""Sorting by integers: right, and stable, for every spread of them."""

from __future__ import annotations

import numpy as np
import pytest

from icestream.write.partition.stable_order import stable_order


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 0),
        (5, 9),
        (-40_000, 25_535),
        (-40_000, 25_536),
        (0, 2**20),
        (-(2**31), 2**31 - 1),
        (-(2**31), 2**31),
        (-(2**63), 2**63 - 1),
        (2**63 - 70_000, 2**63 - 1),
    ],
)
def test_equal_numbers_stay_in_their_order(low: int, high: int) -> None:
    generator = np.random.default_rng(7)
    some = generator.integers(low, high, 50, endpoint=True)
    numbers = np.concatenate((generator.choice(some, 500), [high, low, low, high]))
    rows = list(range(len(numbers)))
    assert stable_order(numbers).tolist() == sorted(rows, key=lambda row: numbers[row])


def test_narrow_integers_and_no_integers_are_sorted() -> None:
    assert stable_order(np.array([127, -128, 0], dtype=np.int8)).tolist() == [1, 2, 0]
    assert stable_order(np.zeros(0, dtype=np.int32)).tolist() == []
