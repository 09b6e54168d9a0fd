"""Rows by the number of their group, in memory and on disk."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from icestream.memory.budget import MemoryBudget
from icestream.operations.merge.intake.grouped_rows import GroupedRows
from icestream.operations.merge.match.matched_on_disk import _by_position

_SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        pa.field("n", pa.int64(), False, {b"PARQUET:field_id": b"2147483645"}),
    ]
)
_SIZES = pytest.mark.parametrize("most_bytes", [1, 4_000, 10**9], ids=["each", "some", "all"])


def _filled(
    most_bytes: int, *, keys: Any = None, rows: int = 300, groups: int = 7
) -> tuple[GroupedRows, dict[int, list[int]], MemoryBudget]:
    generator = random.Random(0)
    budget = MemoryBudget("8MB")
    store = GroupedRows(budget=budget, most_bytes=most_bytes, keys=keys)
    expected = defaultdict(list)
    numbers = list(range(rows))
    generator.shuffle(numbers)
    for start in range(0, rows, 50):
        part = numbers[start : start + 50]
        chosen = [generator.randrange(groups) * 3 for _ in part]
        for number, group in zip(part, chosen, strict=True):
            expected[group].append(number)
        batch = pa.RecordBatch.from_arrays(
            [pa.array([f"row {n}" for n in part]), pa.array(part)], schema=_SCHEMA
        )
        store.add(batch, np.array(chosen, np.int32))
    return store, dict(expected), budget


@_SIZES
def test_each_group_comes_once_with_its_rows_as_they_came(most_bytes: int) -> None:
    store, expected, budget = _filled(most_bytes)
    assert store.is_spilled == (most_bytes < 10**9)
    assert (store.spilled_bytes > 0) == store.is_spilled
    found = {}
    for group, batches in store.groups():
        assert group not in found
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert all(row["text"] == f"row {row['n']}" for row in rows)
        found[group] = [row["n"] for row in rows]
    assert list(found) == sorted(expected)
    assert found == expected
    store.close()
    assert budget.held_bytes == 0


@_SIZES
def test_rows_of_a_group_are_sorted_if_asked_for(most_bytes: int) -> None:
    store, expected, _ = _filled(most_bytes, keys=_by_position)
    for group, batches in store.groups():
        assert [n for b in batches for n in b["n"].to_pylist()] == sorted(expected[group])
    store.close()


@_SIZES
def test_groups_can_be_passed_over(most_bytes: int) -> None:
    store, expected, _ = _filled(most_bytes)
    found = {}
    for position, (group, batches) in enumerate(store.groups()):
        if position % 2:
            found[group] = [n for batch in batches for n in batch["n"].to_pylist()]
        elif position % 4:
            next(batches)
    assert found == {group: expected[group] for group in sorted(expected)[1::2]}
    store.close()


@_SIZES
def test_closing_amid_the_groups_gives_everything_back(most_bytes: int) -> None:
    store, _, budget = _filled(most_bytes)
    groups = store.groups()
    next(next(groups)[1])
    groups.close()
    store.close()
    store.close()
    assert budget.held_bytes == 0


def test_all_rows_are_taken_as_they_came() -> None:
    store, expected, _ = _filled(10**9)
    taken = [n for batch in store.take_all() for n in batch["n"].to_pylist()]
    assert sorted(taken) == sorted(n for rows in expected.values() for n in rows)
    assert all(batch.schema == _SCHEMA for batch in store.take_all())
    store.close()


def test_a_store_without_rows_has_no_groups() -> None:
    budget = MemoryBudget("8MB")
    store = GroupedRows(budget=budget, most_bytes=1_000, keys=_by_position)
    assert list(store.groups()) == []
    assert (store.take_all(), store.is_spilled, store.spilled_bytes) == ([], False, 0)
    store.close()
    assert budget.held_bytes == 0
