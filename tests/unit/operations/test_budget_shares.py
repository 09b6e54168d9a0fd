"""The caller's limit is cut in parts, which never add up to more."""

from __future__ import annotations

import pytest

from icestream.memory.budget import MemoryBudget
from icestream.operations.budget_shares import Budgets


@pytest.mark.parametrize("shares", [1, 2, 3])
def test_what_parts_hold_counts_in_the_whole(shares: int) -> None:
    whole = MemoryBudget(1000)
    budgets = Budgets.of(whole, shares=shares)
    first, second = budgets.write.force(100), budgets.scan.force(200)
    assert whole.held_bytes == 300
    second.resize(50)
    first.release()
    assert (whole.held_bytes, whole.peak_bytes) == (50, 300)


def test_what_waiting_rows_leave_goes_to_writing_and_reading() -> None:
    budgets = Budgets.of(MemoryBudget(1600), shares=3)
    budgets.rows.force(300)
    budgets.share_what_rows_left()
    assert budgets.rows.free_bytes == 100
    assert (budgets.write.limit_bytes, budgets.scan.limit_bytes) == (600, 600)
    limits = (budgets.rows.limit_bytes, budgets.write.limit_bytes, budgets.scan.limit_bytes)
    assert sum(limits) == budgets.whole.limit_bytes


def test_rows_that_need_all_they_have_give_nothing_away() -> None:
    budgets = Budgets.of(MemoryBudget(1600), shares=3)
    budgets.rows.force(750)
    budgets.share_what_rows_left()
    assert budgets.rows.limit_bytes == 800
    assert (budgets.write.limit_bytes, budgets.scan.limit_bytes) == (400, 400)
