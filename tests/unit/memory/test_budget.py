"""The byte budget: sizes as people write them, leases, waiting, and who need not wait."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from icestream.errors import InvalidArgumentError
from icestream.memory import budget as memory
from icestream.memory.budget import Lease, MemoryBudget, Share, as_budget, format_bytes, parse_bytes

# Sizes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (1, 1),
        (67_108_864, 67_108_864),
        ("1", 1),
        ("67108864", 67_108_864),
        ("1b", 1),
        ("1B", 1),
        ("64MB", 64_000_000),
        ("64mb", 64_000_000),
        ("64 MB", 64_000_000),
        ("  64MB  ", 64_000_000),
        ("1kB", 1_000),
        ("1KB", 1_000),
        ("1KiB", 1_024),
        ("1MiB", 1 << 20),
        ("1.5GiB", 3 << 29),
        ("2GB", 2_000_000_000),
        ("2GiB", 2 << 30),
        ("1TB", 10**12),
        ("1TiB", 1 << 40),
        ("0.5MB", 500_000),
        ("0.001kB", 1),
    ],
)
def test_sizes_are_parsed(text: int | str, count: int) -> None:
    assert parse_bytes(text) == count
    assert MemoryBudget(text).limit_bytes == count


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        "0",
        "0MB",
        "0.4b",
        "-64MB",
        "+64MB",
        "",
        " ",
        "MB",
        "64M",
        "64XB",
        "64 M B",
        "1,5GB",
        "1_000",
        ".5GB",
        "1.GB",
        "1e9",
        "0x10",
        "nan",
        "inf",
        "infMB",
        "64MB 64MB",
        "lots",
        True,
        False,
        1.5,
        None,
        b"64MB",
        [64],
    ],
    ids=repr,
)
def test_what_is_no_size_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="memory"):
        parse_bytes(value)
    with pytest.raises(InvalidArgumentError, match="target_bytes"):
        parse_bytes(value, name="target_bytes")
    with pytest.raises(InvalidArgumentError):
        MemoryBudget(value)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1 kB"),
        (1_500, "1.5 kB"),
        (64_000_000, "64 MB"),
        (1_610_612_736, "1.6 GB"),
        (2 * 10**12, "2000 GB"),
    ],
)
def test_sizes_are_written_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_a_budget_is_taken_as_it_is_and_a_size_becomes_one() -> None:
    budget = MemoryBudget("1MB")
    assert as_budget(budget) is budget
    assert as_budget("2MB").limit_bytes == 2_000_000


def test_a_budget_shows_its_limit_and_what_is_held() -> None:
    budget = MemoryBudget("64MB")
    budget.force(1_500_000)
    assert repr(budget) == "MemoryBudget(limit=64 MB, held=1.5 MB, peak=1.5 MB)"


# Leases


def test_leases_are_counted_and_given_back_once() -> None:
    budget = MemoryBudget(100)
    first, second = budget.acquire(30), budget.acquire(50)
    assert first is not None
    assert second is not None
    assert (budget.held_bytes, budget.free_bytes, budget.peak_bytes) == (80, 20, 80)
    first.release()
    first.release()
    assert (budget.held_bytes, budget.free_bytes, budget.peak_bytes) == (50, 50, 80)
    second.release()
    assert budget.held_bytes == 0


def test_a_lease_is_corrected_to_what_was_measured_even_beyond_the_limit() -> None:
    budget = MemoryBudget(100)
    lease = budget.acquire(30)
    assert lease is not None
    lease.resize(150)
    assert (budget.held_bytes, budget.free_bytes, budget.peak_bytes) == (150, -50, 150)
    lease.resize(10)
    assert (lease.held_bytes, budget.held_bytes) == (10, 10)
    lease.release()
    assert budget.held_bytes == 0


def test_what_is_held_already_can_be_forced() -> None:
    budget = MemoryBudget(100)
    lease = budget.force(500)
    assert (budget.held_bytes, budget.peak_bytes) == (500, 500)
    lease.release()
    assert budget.held_bytes == 0


# Waiting


class _Waiter:
    """A thread that acquires; `done` is set when it is through."""

    def __init__(self, budget: MemoryBudget, wanted: int, **asked: Callable[[], bool]) -> None:
        self.lease: Lease | None = None
        self.done = threading.Event()
        self._arguments = (budget, wanted, asked)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        budget, wanted, asked = self._arguments
        self.lease = budget.acquire(wanted, **asked)
        self.done.set()

    def waits(self) -> bool:
        return not self.done.wait(0.05)

    def comes_through(self) -> bool:
        return self.done.wait(5)


def test_a_waiter_gets_its_bytes_when_they_are_given_back() -> None:
    budget = MemoryBudget(100)
    held = budget.acquire(60)
    assert held is not None
    waiter = _Waiter(budget, 50)
    assert waiter.waits()
    held.release()
    assert waiter.comes_through()
    assert waiter.lease is not None
    assert budget.held_bytes == 50


def test_a_waiter_gets_its_bytes_when_a_lease_shrinks_enough() -> None:
    budget = MemoryBudget(100)
    held = budget.acquire(80)
    assert held is not None
    waiter = _Waiter(budget, 50)
    held.resize(60)
    assert waiter.waits()
    held.resize(50)
    assert waiter.comes_through()
    assert budget.held_bytes == 100


def test_an_ordinary_waiter_leaves_the_reserve_alone() -> None:
    budget = MemoryBudget(100)
    share = budget.share()
    share.reserve_bytes = 30
    held = budget.acquire(40)
    assert held is not None
    waiter = _Waiter(budget, 40)
    assert waiter.waits()
    share.reserve_bytes = 20
    budget.wake()
    assert waiter.comes_through()


def test_the_privileged_do_not_wait_and_may_overdraw() -> None:
    budget = MemoryBudget(100)
    budget.share().reserve_bytes = 30
    assert budget.acquire(70) is not None
    lease = budget.acquire(200, privileged=lambda: True)
    assert lease is not None
    assert budget.free_bytes == -170


def test_a_waiter_that_becomes_privileged_is_let_through_on_a_wake() -> None:
    budget = MemoryBudget(100)
    budget.force(100)
    privileged = False
    waiter = _Waiter(budget, 50, privileged=lambda: privileged)
    assert waiter.waits()
    budget.wake()
    assert waiter.waits()
    privileged = True
    budget.wake()
    assert waiter.comes_through()
    assert budget.held_bytes == 150


def test_a_cancelled_waiter_gets_nothing() -> None:
    budget = MemoryBudget(100)
    budget.force(100)
    cancelled = False
    waiter = _Waiter(budget, 50, cancelled=lambda: cancelled)
    assert waiter.waits()
    cancelled = True
    budget.wake()
    assert waiter.comes_through()
    assert waiter.lease is None
    assert budget.held_bytes == 100


def test_the_cancelled_get_nothing_even_where_bytes_are_free() -> None:
    budget = MemoryBudget(100)
    assert budget.acquire(10, cancelled=lambda: True) is None
    assert budget.acquire(10, privileged=lambda: True, cancelled=lambda: True) is None
    assert budget.held_bytes == 0


def test_many_threads_never_hold_more_than_the_limit_together() -> None:
    budget = MemoryBudget(100)
    seen: list[int] = []

    def work(wanted: int) -> None:
        for _ in range(50):
            lease = budget.acquire(wanted)
            assert lease is not None
            seen.append(budget.held_bytes)
            time.sleep(0)
            lease.release()

    threads = [threading.Thread(target=work, args=(wanted,)) for wanted in (10, 33, 50, 99, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert len(seen) == 250
    assert max(seen) <= 100
    assert budget.peak_bytes <= 100
    assert budget.held_bytes == 0


# Shares: several users of one budget


def _enters(share: Share, needed: int) -> threading.Event:
    """Enter in a thread of its own, as the consumer of that scan; set once it has entered."""
    entered = threading.Event()

    def run() -> None:
        share.consumed()
        if share.enter(needed, lambda: False):
            entered.set()

    threading.Thread(target=run, daemon=True).start()
    return entered


def _entered(budget: MemoryBudget, needed: int) -> Share:
    share = budget.share()
    assert _enters(share, needed).wait(5)
    return share


def test_users_enter_as_far_as_their_needs_fit_and_the_next_when_one_leaves() -> None:  # S6.2
    budget = MemoryBudget(100)
    first, _ = _entered(budget, 40), _entered(budget, 40)
    third = _enters(budget.share(), 40)
    assert not third.wait(0.05)
    first.close()
    assert third.wait(5)


def test_a_user_that_holds_more_than_it_said_keeps_others_out() -> None:
    budget = MemoryBudget(100)
    lease = _entered(budget, 40).force(90)
    second = _enters(budget.share(), 40)
    assert not second.wait(0.05)
    lease.release()
    assert second.wait(5)


def test_what_is_held_outside_shares_keeps_nobody_out() -> None:
    """A writer that is fed by the scan holds it, and would wait for the scan."""
    budget = MemoryBudget(100)
    budget.force(100)
    assert _enters(budget.share(), 90).wait(5)


def test_users_enter_in_the_order_they_came() -> None:
    budget = MemoryBudget(100)
    first = _entered(budget, 60)
    large, small = budget.share(), budget.share()
    large_entered = _enters(large, 60)
    assert not large_entered.wait(0.05)
    small_entered = _enters(small, 10)
    assert not small_entered.wait(0.05)
    first.close()
    assert large_entered.wait(5)
    assert small_entered.wait(5)


def test_a_consumer_that_opens_a_second_scan_does_not_wait_for_its_first() -> None:
    budget = MemoryBudget(100)
    outer, inner = budget.share(), budget.share()
    for share in (outer, inner):
        share.consumed()
        assert share.enter(90, lambda: False)


def test_users_that_have_stopped_do_not_keep_others_out_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_STALL_SECONDS", 0.1)
    budget = MemoryBudget(100)
    _entered(budget, 90)
    assert _enters(budget.share(), 90).wait(5)


def test_a_user_that_waits_can_be_cancelled() -> None:
    budget = MemoryBudget(100)
    _entered(budget, 90)
    share, cancelled = budget.share(), threading.Event()
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(share.enter(90, cancelled.is_set)))
    thread.start()
    cancelled.set()
    budget.wake()
    thread.join(5)
    assert answers == [False]


def test_users_run_ahead_within_their_parts() -> None:
    budget = MemoryBudget(100)
    first = _entered(budget, 10)
    assert first.open_bytes == 100
    second = _entered(budget, 10)
    assert (first.open_bytes, first.part_bytes) == (50, 50)
    first.force(45)
    assert (first.open_bytes, second.open_bytes) == (5, 50)
    second.close()
    assert first.open_bytes == 55


def test_each_user_has_a_reserve_of_its_own() -> None:
    budget = MemoryBudget(100)
    first, second = budget.share(), budget.share()
    first.reserve_bytes, second.reserve_bytes = 20, 30
    assert first.open_bytes == 50
    first.close()
    first.close()
    assert second.open_bytes == 70


def test_a_part_is_never_less_than_a_quarter_of_the_limit() -> None:
    budget = MemoryBudget(100)
    budget.force(99)
    assert budget.share().part_bytes == 25


@pytest.mark.parametrize(
    ("limit", "part", "most"),
    [
        ("64MB", "64MB", "64MB"),  # not a part
        ("64MB", "16MB", "32MB"),  # as much again
        ("64MB", "40MB", "56MB"),  # a few megabytes
        ("64MB", "60MB", "64MB"),  # never more than the whole
        ("1GB", "512MB", "528MB"),
    ],
)
def test_one_stream_may_overdraw_a_part_by_a_bounded_amount(
    limit: str, part: str, most: str
) -> None:
    whole = MemoryBudget(limit)
    budget = whole if part == limit else MemoryBudget(part, whole=whole)
    with contextlib.closing(budget.share()) as share:
        assert share.limit_bytes == parse_bytes(most)
