"""Which keys are there more than once, inside a memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.memory import MemoryBudget
from icestream.upsert.grouped_rows import GroupedRows
from icestream.upsert.key_hash import KeyHash, Keys
from icestream.upsert.own_columns import decoded

_SCHEMA = pa.schema([("first", pa.uint64()), ("second", pa.uint64())])
_Pairs = npt.NDArray[np.void]
_PAIR = np.dtype([("first", np.uint64), ("second", np.uint64)])


class RepeatedKeys:
    """Takes keys, as numbers, and tells which came twice. A key with a null is left out.

    Memory: `most_bytes`, on lease from the budget; and one of 256 groups of keys, 16 bytes each.

    Args:
        budget: What keys are on lease from.
        most_bytes: What is held before they go to disk.
        kept: How many of the keys that came twice are kept for examples.
    """

    def __init__(self, budget: MemoryBudget, *, most_bytes: int, kept: int) -> None:
        self._hash = KeyHash()
        self._rows = GroupedRows(_SCHEMA, budget=budget, most_bytes=most_bytes)
        self._kept = kept
        self._examples = np.zeros(0, _PAIR)

    def __enter__(self) -> RepeatedKeys:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._rows.close()

    def add(self, columns: list[pa.Array]) -> None:
        """Take the keys of some rows."""
        keys = self._of(columns)
        if not len(keys):
            return
        second = keys.second if keys.second is not None else np.zeros(len(keys), np.uint64)
        batch = pa.record_batch([pa.array(keys.first), pa.array(second)], schema=_SCHEMA)
        self._rows.add(batch, keys.buckets)

    def count(self) -> int:
        """How many keys came more than once. No more can be added."""
        found = 0
        for _, batches in self._rows.groups():
            for repeated in _repeated(batches):
                found += len(repeated)
                if len(self._examples) < self._kept:
                    room = self._kept - len(self._examples)
                    self._examples = np.concatenate([self._examples, repeated[:room]])
        return found

    def examples_in(self, columns: list[pa.Array]) -> Iterator[tuple[object, ...]]:
        """Of some rows that were added before: keys that came twice, each once, as values."""
        rows = [decoded(column) for column in columns]
        keys = self._hash(rows)
        pairs = _pairs(keys)
        found = np.isin(pairs, self._examples)
        if keys.nulls is not None:
            found &= ~keys.nulls
        for number in np.flatnonzero(found):
            left = self._examples != pairs[number]
            if left.all():
                continue  # shown before
            self._examples = self._examples[left]
            yield tuple(column[int(number)].as_py() for column in columns)

    @property
    def are_shown(self) -> bool:
        """Whether all examples have been given."""
        return not len(self._examples)

    def _of(self, columns: list[pa.Array]) -> Keys:
        keys = self._hash([decoded(column) for column in columns])
        return keys if keys.nulls is None else keys.where(~keys.nulls)


def _pairs(keys: Keys) -> _Pairs:
    pairs = np.zeros(len(keys), _PAIR)
    pairs["first"] = keys.first
    if keys.second is not None:
        pairs["second"] = keys.second
    return pairs


def _repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[_Pairs]:
    """The keys of one group that are there twice, each once."""
    parts = []
    for batch in batches:
        part = np.zeros(batch.num_rows, _PAIR)
        part["first"] = batch.column(0).to_numpy()
        part["second"] = batch.column(1).to_numpy()
        parts.append(part)
    if not parts:
        return
    keys = np.concatenate(parts)
    del parts
    keys = keys[np.lexsort((keys["second"], keys["first"]))]
    same = keys[1:] == keys[:-1]
    first_of_run = same.copy()
    first_of_run[1:] &= ~same[:-1]
    yield keys[1:][first_of_run]
