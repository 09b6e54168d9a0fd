"""Rows by the number of their group, in memory and on disk; and what is matched by them."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from icestream.memory import MemoryBudget
from icestream.upsert.grouped_rows import GroupedRows
from icestream.upsert.key_hash import Keys
from icestream.upsert.key_index import KeyIndex
from icestream.upsert.matched_on_disk import MatchedOnDisk, _by_position
from icestream.upsert.matches import KeysOfFile, Update
from icestream.upsert.row_change import UpdatesInOrder, places

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
    store = GroupedRows(_SCHEMA, budget=budget, most_bytes=most_bytes, keys=keys)
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
    store, expected, _ = _filled(most_bytes, keys=_by_position(_SCHEMA))
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


# Updates in the order of a file


def _update(positions: list[int]) -> Update:
    rows = pa.RecordBatch.from_pydict({"n": positions})
    return Update(np.array(positions, np.int64), rows)


def test_updates_are_taken_as_far_as_the_file_was_read() -> None:
    updates = UpdatesInOrder(iter([_update([1, 4]), _update([5]), _update([7, 9, 12])]))
    taken = []
    for position in (0, 3, 4, 8, 8, 11, 12, 99):
        part = updates.up_to(position)
        assert all(u.positions.tolist() == u.rows["n"].to_pylist() for u in part)
        taken.append([n for update in part for n in update.positions.tolist()])
    assert taken == [[], [1], [4], [5, 7], [], [9], [12], []]


def test_places_are_those_of_the_positions() -> None:
    positions = np.array([2, 3, 7, 11])
    assert places(positions, np.array([2, 7, 11])).tolist() == [0, 2, 3]
    assert places(positions, np.array([], np.int64)).tolist() == []
    with pytest.raises(AssertionError):
        places(positions, np.array([4]))
    with pytest.raises(AssertionError):
        places(positions, np.array([12]))


# Keys of buckets that only one side has


class _Bucket:
    """As `Incoming` gives them: every row of it has its number as its key."""

    def __init__(self, number: int, firsts: list[int]) -> None:
        self.number = number
        self.rows = pa.RecordBatch.from_pydict({"n": firsts})
        self.index = KeyIndex(Keys(np.array(firsts, np.uint64), None, None))
        self.kept = np.ones(len(firsts), np.bool_)


class _Incoming:
    def __init__(self, buckets: dict[int, list[int]]) -> None:
        self._buckets = buckets

    def buckets(self) -> Any:
        for number, firsts in sorted(self._buckets.items()):
            yield _Bucket(number, firsts)


def _key(bucket: int, number: int) -> int:
    return (bucket << 56) + number


@pytest.mark.parametrize("limit", ["100KB", "8MB"])
def test_buckets_of_both_sides_meet_whichever_are_missing(limit: str) -> None:
    """Buckets 1, 2, 5 and 9 of the stream; 0, 2, 3, 4, 9 and 200 of the table, in two files."""
    stream = {b: [_key(b, n) for n in range(50)] for b in (1, 2, 5, 9)}
    stored = [_key(b, n) for b in (0, 2, 3, 4, 9, 200) for n in range(40, 1_000)]
    firsts = np.array(stored, np.uint64)
    files = [
        KeysOfFile(number, np.arange(len(stored)) * 2, Keys(firsts, None, None))
        for number in (0, 3)
    ]
    inserted: list[int] = []
    budget = MemoryBudget(limit)
    matches = MatchedOnDisk(
        _Incoming(stream),  # type: ignore[arg-type]
        lambda rows: np.ones(rows.num_rows, np.bool_),
        iter(files),
        lambda rows: inserted.extend(rows["n"].to_pylist()),
        budget,
    )
    both = [_key(b, n) for b in (2, 9) for n in range(40, 50)]
    assert sorted(inserted) == sorted({n for some in stream.values() for n in some} - set(both))
    assert (matches.rows, matches.duplicates, matches.files()) == (40, 20, [0, 3])
    for number in matches.files():
        updates = list(matches.updates(number))
        positions = [n for update in updates for n in update.positions.tolist()]
        assert positions == [stored.index(key) * 2 for key in both]
        assert [n for update in updates for n in update.rows["n"].to_pylist()] == both
    matches.close()
    assert budget.held_bytes == 0
