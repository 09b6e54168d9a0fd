"""How long a commit that lost stays away."""

from __future__ import annotations

import time
from unittest import mock

import pytest

from icestream.commit import retry
from icestream.commit.retry import Backoff, Outcome

_real_time = time.monotonic


class _Clock:
    """Time that passes only while somebody sleeps or works; every wait is the longest allowed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.waits = _real_time(), []
        monkeypatch.setattr(retry.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(retry.time, "sleep", self._sleep)
        monkeypatch.setattr(retry.random, "uniform", lambda low, high: high)

    def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def _waits(
    monkeypatch: pytest.MonkeyPatch, *, try_seconds: float, tries: int, **properties: str
) -> list[float]:
    clock = _Clock(monkeypatch)
    backoff = Backoff(retries=None, min_wait_seconds=0.05, max_wait_seconds=1000, total_seconds=1e9)
    if properties:
        backoff = Backoff.of({f"commit.retry.{k}": v for k, v in properties.items()})
    for _ in range(tries):
        clock.now += try_seconds
        assert backoff.wait(Outcome.CONFLICT)
    return [round(wait, 1) for wait in clock.waits]


def test_waits_are_multiples_of_what_a_try_takes(monkeypatch):
    slow = _waits(monkeypatch, try_seconds=20.0, tries=8)
    quick = _waits(monkeypatch, try_seconds=2.0, tries=8)
    assert slow == pytest.approx([10 * wait for wait in quick], rel=0.1)


def test_the_second_wait_is_the_longest_and_later_ones_are_shorter(monkeypatch):
    first, *later = _waits(monkeypatch, try_seconds=1.0, tries=30)
    assert first == 4
    assert later[0] == 24
    assert later == sorted(later, reverse=True)
    assert later[-1] == 6


def test_a_quick_try_waits_for_as_long_as_the_table_says(monkeypatch):
    assert _waits(monkeypatch, try_seconds=0.001, tries=1, **{"min-wait-ms": "500"}) == [2.0]


def test_no_wait_is_longer_than_the_table_allows(monkeypatch):
    waits = _waits(monkeypatch, try_seconds=30.0, tries=5, **{"max-wait-ms": "700"})
    assert waits == [0.7] * 5


def test_status_checks_are_as_many_and_as_far_apart_as_the_table_says() -> None:
    waits: list[float] = []
    properties = {
        "commit.status-check.num-retries": "5",
        "commit.status-check.min-wait-ms": "7000",
    }
    backoff = Backoff.of(properties)
    with mock.patch("icestream.commit.retry.time.sleep", waits.append):
        tried = sum(backoff.wait(Outcome.UNKNOWN) for _ in range(20))
    assert tried == len(waits) == 5
    assert min(waits) >= 7
