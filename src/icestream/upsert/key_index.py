"""Which row of the stream has a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from icestream.upsert.key_hash import Keys, Words

Rows = npt.NDArray[Any]  # Integers as wide as they need to be.
_SLOTS_PER_KEY = 16
_MOST_FLAGS = 1 << 20


class Sieve:
    """Says of most keys that are not in a set that they are not, in a few bits for each that is.

    Memory: `most_bytes`, or half of it; little for few keys, so that it stays in the cache.

    Args:
        most_bytes: Its size, rounded down to a power of two.
        rows: How many keys it will hold, if that is known.
    """

    def __init__(self, most_bytes: int, rows: int | None = None) -> None:
        slots = 1 << max(13, (8 * most_bytes).bit_length() - 1)
        if rows is not None:
            slots = min(slots, 1 << max(13, (_SLOTS_PER_KEY * rows).bit_length()))
        self._shift = np.uint64(64 - slots.bit_length() + 1)
        # A byte for each slot is the quickest to look up, as long as all of them are in the cache.
        self._flags = np.zeros(slots, np.bool_) if slots <= _MOST_FLAGS else None
        self._bits = np.zeros(slots // 8 if self._flags is None else 0, np.uint8)

    def add(self, keys: Keys) -> None:
        """Note keys."""
        slots = (keys.first >> self._shift).view(np.int64)
        if self._flags is not None:
            self._flags[slots] = True
        else:
            np.bitwise_or.at(self._bits, slots >> 3, np.left_shift(1, slots & 7).astype(np.uint8))

    def to_bytes(self) -> bytes:
        """What `add_all` takes."""
        return (self._bits if self._flags is None else self._flags).tobytes()

    def add_all(self, other: bytes) -> None:
        """Note the keys of another sieve that was made alike.

        Raises:
            ValueError: If it has another size.
        """
        mine = self._bits if self._flags is None else self._flags.view(np.uint8)
        theirs = np.frombuffer(other, np.uint8)
        if len(theirs) != len(mine):
            raise ValueError(f"a sieve has {len(theirs)} bytes, and not {len(mine)}")
        np.bitwise_or(mine, theirs & 1 if self._flags is not None else theirs, out=mine)

    def passes(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """False for keys that were never noted; for others true, mostly."""
        slots = (keys.first >> self._shift).view(np.int64)
        if self._flags is not None:
            return self._flags.take(slots)
        held = self._bits.take(slots >> 3) >> (slots & 7).astype(np.uint8)
        return (held & np.uint8(1)).view(np.bool_)


@dataclass(frozen=True, slots=True)
class Found:
    """Keys that were found.

    Attributes:
        asked: Which of the keys asked for, ascending.
        rows: The row that has each of them.
    """

    asked: Rows
    rows: Rows


class KeyIndex:
    """The rows of a stream by their keys. Rows with a null key are left out.

    Keys are spread evenly, so that their first bits say where they are among all, nearly.

    Memory: 16 bytes a row, or 24; twice that while it is made.

    Args:
        keys: The rows' keys.
        same_bits: How many of their first bits are the same in all of them.
    """

    def __init__(self, keys: Keys, same_bits: int = 0) -> None:
        self._same_bits = np.uint64(same_bits)
        rows = np.arange(len(keys)) if keys.nulls is None else np.flatnonzero(~keys.nulls)
        first = keys.first[rows]
        second = None if keys.second is None else keys.second[rows]
        order = np.argsort(first, kind="stable") if second is None else np.lexsort((second, first))
        self._first: Words = first[order]
        self._second: Words | None = None if second is None else second[order]
        self._rows: Rows = rows[order].astype(_integers_up_to(len(keys)))
        self._starts: Rows | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def repeated(self) -> Rows:
        """The rows whose key another row has, too; those with one key side by side."""
        same = self._same_as_before()
        either = same | np.append(same[1:], False) if len(same) else same
        return self._rows[either]

    def keep_last(self, last_by: pa.Array | None) -> Rows:
        """Leave one row for each key: the last that came, or that with the highest value.

        Of equal values the row that came last counts; null is lowest, and NaN highest.

        Returns:
            The rows that are left out.
        """
        starts = np.flatnonzero(~self._same_as_before())
        if last_by is None:
            rank: Rows = self._rows
        else:
            by_value = pc.sort_indices(last_by).to_numpy()  # NaN after numbers, and null at the end
            by_value = np.roll(by_value, last_by.null_count)
            ranks = np.empty(len(by_value), np.int64)
            ranks[by_value] = np.arange(len(by_value))
            rank = ranks[self._rows]
        best = np.repeat(np.maximum.reduceat(rank, starts), np.diff(np.append(starts, len(rank))))
        kept = rank == best
        left_out: Rows = self._rows[~kept]
        self._first, self._rows = self._first[kept], self._rows[kept]
        if self._second is not None:
            self._second = self._second[kept]
        self._starts = None
        return left_out

    def find(self, keys: Keys) -> Found:
        """The rows that have some keys; null keys are never found."""
        if not len(self._rows):
            return Found(np.zeros(0, np.int64), np.zeros(0, np.int64))
        at = self._places(keys.first)
        last = len(self._first) - 1
        found = self._first.take(at, mode="clip") == keys.first
        found &= at <= last
        if keys.nulls is not None:
            found &= ~keys.nulls
        asked = np.flatnonzero(found)
        at = at[asked]
        if self._second is not None and keys.second is not None:
            # Different keys may share their first half: look at those that follow, too.
            wanted1, wanted2 = keys.first[asked], keys.second[asked]
            open_ = self._second[at] != wanted2
            while open_.any():
                at[open_] += 1
                gone = at > last
                at[gone] = last
                gone |= self._first[at] != wanted1
                asked, at, open_ = asked[~gone], at[~gone], open_[~gone]
                wanted1, wanted2 = wanted1[~gone], wanted2[~gone]
                open_ = self._second[at] != wanted2
        return Found(asked, self._rows[at])

    def _places(self, first: Words) -> npt.NDArray[np.int64]:
        """Where keys are, or would be, by their first halves; as `searchsorted`, and quicker."""
        bits = max(1, len(self._first).bit_length())
        if self._starts is None:
            counts = np.bincount(self._slots(self._first, bits), minlength=1 << bits)
            starts = np.concatenate([[0], np.cumsum(counts)])
            self._starts = starts.astype(_integers_up_to(len(self._first)))
        at = self._starts.take(self._slots(first, bits)).astype(np.int64)
        # Of those that share their first bits, few as they are, pass over the lower ones.
        looking = np.flatnonzero(self._first.take(at, mode="clip") < first)
        while len(looking):
            at[looking] += 1
            looking = looking[at[looking] < len(self._first)]
            looking = looking[self._first[at[looking]] < first[looking]]
        return at

    def _slots(self, first: Words, bits: int) -> npt.NDArray[np.int64]:
        return ((first << self._same_bits) >> np.uint64(64 - bits)).view(np.int64)

    def _same_as_before(self) -> npt.NDArray[np.bool_]:
        same = np.zeros(len(self._first), np.bool_)
        same[1:] = self._first[1:] == self._first[:-1]
        if self._second is not None:
            same[1:] &= self._second[1:] == self._second[:-1]
        return same


def _integers_up_to(highest: int) -> type[np.signedinteger[Any]]:
    return np.int32 if highest < 1 << 31 else np.int64
