"""The rows of a step, the number of streams, and their bytes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from icestream.errors import MemoryBudgetError
from icestream.read.decode.sizing import Counter, Estimate, Sizing, StepSizing, refuse_beyond

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


def test_the_first_step_is_small_if_rows_may_be_longer_than_expected() -> None:
    sizing = Sizing(64 * _MB, 10**6)
    cautious = StepSizing(sizing, Estimate(10.0, 0, 10**6, surprising=True))
    assert cautious.next_rows(64 * _MB) == 8
    assert StepSizing(sizing, Estimate(10.0, 0, 10**6)).next_rows(64 * _MB) == 8_192
    cautious.learn(8, 80)
    assert cautious.next_rows(64 * _MB) == 32, "a step grows fourfold at most"


def test_a_step_has_one_row_if_nothing_is_free_and_never_more_than_a_batch() -> None:
    steps = StepSizing(Sizing(64 * _MB, 100), Estimate(10.0, 0, 10**6))
    assert steps.next_rows(0) == 1
    assert steps.next_rows(64 * _MB) == 100


def test_an_upper_bound_of_a_row_is_not_lowered_by_short_rows() -> None:
    steps = StepSizing(Sizing(64 * _MB, 10**6), Estimate(1_000.0, 0, 1_000, is_bound=True))
    steps.learn(100, 100)
    assert steps.row_bytes() == 1_000.0
    steps.learn(1, 5_000)
    assert steps.row_bytes() == 5_000.0


def test_a_step_without_rows_teaches_nothing() -> None:
    steps = StepSizing(Sizing(64 * _MB, 10**6), Estimate(10.0, 0, 1_000))
    steps.learn(0, 0)
    assert (steps.row_bytes(), steps.next_rows(64 * _MB)) == (10.0, 8_192)


def test_a_running_step_is_leased_with_its_copies() -> None:
    sizing = Sizing(64 * _MB, 10**6)
    assert StepSizing(sizing, Estimate(10.0, 0, 1_000)).step_bytes(100) == 100 * 10 * sizing.copies


@pytest.mark.parametrize(
    ("limit", "row_bytes", "target"),
    [
        (64 * _MB, 10.0, 2 * _MB),  # a 32nd of the limit
        (1 * _MB, 10.0, 256 << 10),  # the smallest step
        (10_000 * _MB, 10.0, 4 << 20),  # the largest step of narrow rows
        (10_000 * _MB, 10_000.0, 8_192 * 10_000),  # wide rows get more
        (64 * _MB, 10_000.0, 4 * _MB),  # but at most a 16th of the limit
    ],
)
def test_the_size_of_a_step_follows_the_limit_and_the_rows(
    limit: int, row_bytes: float, target: int
) -> None:
    assert Sizing(limit, 10**6).step_target_bytes(row_bytes) == target


def test_fewer_streams_fit_if_each_holds_more() -> None:
    sizing = Sizing(64 * _MB, 10**6)
    small, large = Estimate(10.0, 1 * _MB, 10**6), Estimate(10.0, 20 * _MB, 10**6)
    assert sizing.needed_bytes(small) == 1 * _MB + 3 * 2 * _MB
    assert sizing.needed_bytes(small, prefetch_bytes=5 * _MB) == 12 * _MB
    assert sizing.streams(small, most=100) == (64 - 2) // 7
    assert sizing.streams(large, most=100) == (64 - 2) // 26
    assert sizing.streams(small, most=3) == 3
    assert sizing.streams(Estimate(10.0, 500 * _MB, 10**6), most=3) == 1


def test_the_reserve_is_a_step_at_least_and_half_of_the_limit_at_most() -> None:
    sizing = Sizing(64 * _MB, 10**6)
    assert sizing.reserve_bytes(Estimate(10.0, 0, 10**6)) == 64 * _MB // 5
    assert sizing.reserve_bytes(Estimate(10.0, 60 * _MB, 10**6)) == 2 * 2 * _MB
    assert Sizing(100_000, 10**6).reserve_bytes(Estimate(10.0, 0, 10**6)) == 50_000


def test_another_limit_changes_the_steps() -> None:
    sizing = Sizing(64 * _MB, 10**6)
    sizing.plan_with(32 * _MB)
    assert (sizing.limit_bytes, sizing.step_bytes) == (32 * _MB, 1 * _MB)


def test_the_least_bytes_of_a_stream_are_those_of_its_longest_row() -> None:
    assert Estimate(10.0, 100, 5, longest_bytes=70).least_bytes == 170
    assert Estimate(90.0, 100, 5, longest_bytes=70).least_bytes == 190


def test_a_stream_that_does_not_fit_alone_is_refused_with_a_limit_that_is_enough() -> None:
    refuse_beyond(8 * _MB, 8 * _MB, "a.parquet")
    with pytest.raises(MemoryBudgetError, match=r"reading a\.parquet needs 10 MB") as caught:
        refuse_beyond(8 * _MB, 10 * _MB, "a.parquet")
    assert (caught.value.needed_bytes, caught.value.limit_bytes) == (int(12.5 * _MB), 8 * _MB)


def test_a_counter_loses_nothing_to_other_threads() -> None:
    counter = Counter()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(lambda: [counter.add() for _ in range(1_000)])
    counter.add(7)
    assert counter.value == 4_007
