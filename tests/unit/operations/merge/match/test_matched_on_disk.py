"""Matches of a stream on disk: keys of buckets that both sides have, or only one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from icestream.memory.budget import MemoryBudget
from icestream.operations.merge.keys.key_hash import Keys
from icestream.operations.merge.keys.key_index import KeyIndex
from icestream.operations.merge.match.matched_on_disk import MatchedOnDisk
from icestream.operations.merge.match.matches import KeysOfFile


class _Bucket:
    """As `Incoming` gives them: every row of it has its number as its key."""

    def __init__(self, number: int, firsts: list[int]) -> None:
        self.number = number
        self.rows = pa.RecordBatch.from_pydict({"n": firsts})
        self.index = KeyIndex(Keys(np.array(firsts, np.uint64), None, None))
        self.kept = np.ones(len(firsts), np.bool_)


class _Incoming:
    """The stream; every row changes its matches, and rows without a match are recorded."""

    def __init__(self, buckets: dict[int, list[int]]) -> None:
        self._buckets = buckets
        self.inserted: list[int] = []
        self.rows_of = self

    def changes(self, rows: pa.RecordBatch) -> Any:
        return np.ones(rows.num_rows, np.bool_)

    def insert(self, rows: pa.RecordBatch) -> None:
        self.inserted += rows["n"].to_pylist()

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
    incoming = _Incoming(stream)
    budget = MemoryBudget(limit)
    matches = MatchedOnDisk(incoming, iter(files), budget)  # type: ignore[arg-type]
    both = [_key(b, n) for b in (2, 9) for n in range(40, 50)]
    assert sorted(incoming.inserted) == sorted(
        {n for some in stream.values() for n in some} - set(both)
    )
    assert (matches.rows, matches.duplicates, matches.files()) == (40, 20, [0, 3])
    for number in matches.files():
        updates = list(matches.updates(number))
        positions = [n for update in updates for n in update.positions.tolist()]
        assert positions == [stored.index(key) * 2 for key in both]
        assert [n for update in updates for n in update.rows["n"].to_pylist()] == both
    matches.close()
    assert budget.held_bytes == 0
