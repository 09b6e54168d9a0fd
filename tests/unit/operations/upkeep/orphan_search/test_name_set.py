"""A set of names that goes to disk when it is large."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.orphan_search.name_set import NameSet


@pytest.mark.parametrize("most_bytes", [1 << 20, 100_000, 1])
def test_every_name_is_found_and_no_other(most_bytes: int) -> None:
    budget = MemoryBudget("64MB")
    names = [f"/table/data/{number}.parquet" for number in range(60_000)]
    with closing(NameSet(budget, most_bytes)) as held:
        for name in random.Random(3).sample(names[::2] * 2, k=len(names)):
            held.add(name)
        assert len(held) == 30_000
        assert bool(held._runs) == (most_bytes < 1 << 20)
        assert held.find(names).tolist() == [number % 2 == 0 for number in range(60_000)]
        held.add("late")
        assert held.find(["late", "never"]).tolist() == [True, False]
    assert budget.held_bytes == 0


def test_an_empty_set_holds_nothing() -> None:
    with closing(NameSet(MemoryBudget("1MB"), 1000)) as held:
        assert len(held) == 0
        assert held.find([]).tolist() == []
        assert held.find(["a"]).tolist() == [False]
