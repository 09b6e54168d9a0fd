"""Sums by partition, in memory and through temporary files."""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import closing

import pytest

from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.partition_sizes import PartitionSizes


@pytest.mark.parametrize("memory", ["64MB", "1MB", "100kB"])
def test_each_partition_comes_once_with_the_sums_of_its_files(memory: str) -> None:
    budget = MemoryBudget(memory)
    chance = random.Random(4)
    expected: dict[int, list[int]] = defaultdict(lambda: [0] * 5)
    first: dict[int, tuple[int, int]] = {}
    with closing(PartitionSizes(budget)) as sizes:
        for entry in range(60_000):
            key = hash(str(chance.randrange(20_000)))
            size, is_small = chance.randrange(2**40), chance.random() < 0.5
            sizes.add(key, rows=3, size=size, is_small=is_small, spec_id=1, manifest=7, entry=entry)
            first.setdefault(key, (7, entry))
            for place, more in enumerate((1, 3, size, is_small, size * is_small)):
                expected[key][place] += more
        rows = [row for some in sizes.partitions() for row in some.tolist()]
        assert bool(sizes._runs) == (memory != "64MB")
    assert {row[0]: list(row[1:6]) for row in rows} == expected
    assert {row[0]: (row[7], row[8]) for row in rows} == first
    assert len(rows) == len(expected)
    assert budget.held_bytes == 0


def test_without_files_there_are_no_partitions() -> None:
    with closing(PartitionSizes(MemoryBudget("1MB"))) as sizes:
        assert [len(some) for some in sizes.partitions()] == [0]
