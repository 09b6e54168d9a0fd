"""Rows of a step: by what rows cost, whatever was expected of them."""

from __future__ import annotations

import pytest

from icestream.read.sizing import Estimate, Sizing, StepSizing

_MB = 1_000_000


def _steps(expected_row_bytes: float, row_bytes: list[float]) -> list[int]:
    """The rows of each step of a file whose rows cost so much."""
    rows = len(row_bytes)
    steps = StepSizing(Sizing(64 * _MB, 10**6), Estimate(expected_row_bytes, 0, rows))
    taken: list[int] = []
    while (at := sum(taken)) < rows:
        count = min(steps.next_rows(64 * _MB), rows - at)
        steps.learn(count, int(sum(row_bytes[at : at + count])))
        taken.append(count)
    return taken


@pytest.mark.parametrize("expected", [30.0, 46.0, 51.0])
def test_steps_stay_as_large_as_rows_allow_if_the_estimate_was_too_high(expected: float) -> None:
    probe, growing, *steps, _ = _steps(expected, [46.0] * 500_000)
    assert (probe, growing) == (8_192, 4 * 8_192)
    assert min(steps) > 0.95 * max(steps)


def test_steps_shrink_before_long_rows_that_the_estimate_knows_of() -> None:
    row_bytes = [10.0] * 400_000 + [5_000.0] * 100_000
    steps = _steps(sum(row_bytes) / len(row_bytes), row_bytes)
    at, largest = 0, 0.0
    for count in steps:
        largest = max(largest, sum(row_bytes[at : at + count]))
        at += count
    assert largest < 64 * _MB / 4
