"""Keys that are there more than once, counted in order, on disk or not."""

import tracemalloc
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from icestream.memory.budget import MemoryBudget
from icestream.pipeline.audit.repeated_keys import RepeatedKeys

_BUDGET = 16 << 20


@pytest.mark.parametrize("most_bytes", [1 << 12, 8 << 20], ids=["on disk", "in memory"])
@pytest.mark.parametrize("are_texts", [False, True], ids=["numbers", "texts"])
@pytest.mark.parametrize("different", [1, 2, 300, 20_000])
def test_every_key_that_came_twice_is_counted_once(
    different: int, are_texts: bool, most_bytes: int
) -> None:
    keys = np.random.default_rng(different).integers(0, different, 10_000)
    kind = pa.string() if are_texts else pa.int64()
    expected = sum(times > 1 for times in Counter(keys.tolist()).values())
    with RepeatedKeys(MemoryBudget(_BUDGET), most_bytes=most_bytes, kept=5) as repeated:
        for part in np.array_split(keys, 13):
            repeated.add([pa.array(part).cast(kind)])
        assert repeated.count() == expected
        shown = list(repeated.examples_in([pa.array(keys).cast(kind)]))
    assert len(shown) == min(5, expected)


def test_one_key_in_all_rows_takes_no_memory_for_each() -> None:
    rows = 2_000_000
    with RepeatedKeys(MemoryBudget(_BUDGET), most_bytes=_BUDGET // 2, kept=5) as repeated:
        tracemalloc.start()
        try:
            for _ in range(20):
                repeated.add([pa.array(np.full(rows // 20, 7))])
            assert repeated.count() == 1
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak_bytes < _BUDGET < 16 * rows
