"""Finds the rows of the stream by their keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from icestream.operations.merge.keys.key_hash import Keys, Words

Rows = npt.NDArray[Any]  # Integers, as narrow as the values allow.
_SLOTS_PER_KEY = 16
_MOST_FLAGS = 1 << 20
_MOST_STEPS = 32


class Sieve:
    """A Bloom filter with one hash over the stream's keys.

    Memory: up to `most_bytes`, and less for few keys, so that the filter stays in the CPU cache.

    Args:
        most_bytes: Maximum size, rounded down to a power of two.
        rows: The number of keys, if it is known.
    """

    def __init__(self, most_bytes: int, rows: int | None = None) -> None:
        slots = 1 << max(13, (8 * most_bytes).bit_length() - 1)
        if rows is not None:
            slots = min(slots, 1 << max(13, (_SLOTS_PER_KEY * rows).bit_length()))
        self._shift = np.uint64(64 - slots.bit_length() + 1)
        # A byte for each slot is the fastest to look up while all slots fit into the cache.
        self._flags = np.zeros(slots, np.bool_) if slots <= _MOST_FLAGS else None
        self._bits = np.zeros(slots // 8 if self._flags is None else 0, np.uint8)

    def add(self, keys: Keys) -> None:
        """Add keys."""
        slots = (keys.first >> self._shift).view(np.int64)
        if self._flags is not None:
            self._flags[slots] = True
        else:
            np.bitwise_or.at(self._bits, slots >> 3, np.left_shift(1, slots & 7).astype(np.uint8))

    def to_bytes(self) -> bytes:
        """The content, for `add_all`."""
        return (self._bits if self._flags is None else self._flags).tobytes()

    def add_all(self, other: bytes) -> None:
        """Add the keys of another sieve that has the same arguments.

        Raises:
            ValueError: If its size differs.
        """
        mine = self._bits if self._flags is None else self._flags.view(np.uint8)
        theirs = np.frombuffer(other, np.uint8)
        if len(theirs) != len(mine):
            raise ValueError(f"the other sieve has {len(theirs)} bytes, not {len(mine)}")
        np.bitwise_or(mine, theirs & 1 if self._flags is not None else theirs, out=mine)

    def passes(self, keys: Keys) -> npt.NDArray[np.bool_]:
        """True for all keys that were added; false for most other keys."""
        slots = (keys.first >> self._shift).view(np.int64)
        if self._flags is not None:
            return self._flags.take(slots)
        held = self._bits.take(slots >> 3) >> (slots & 7).astype(np.uint8)
        return (held & np.uint8(1)).view(np.bool_)


@dataclass(frozen=True, slots=True)
class IndexMatches:
    """The keys of a lookup that are in the index.

    Attributes:
        places: The indexes of these keys in the lookup, ascending.
        rows: The indexed row for each of them.
    """

    places: Rows
    rows: Rows


class KeyIndex:
    """The rows of a stream by their keys. Rows with a null key are left out.

    The keys are sorted. They are distributed evenly, so the first bits of a key give its
    approximate place. Different keys with the same hash are distinguished by their values, which
    takes an additional sort or lookup.

    Memory: 16 or 24 bytes per row; twice as much while the index is built.

    Args:
        keys: The keys of the rows.
        same_bits: The number of first bits that all keys share.
        values_of: Returns the `key_values` of some rows; needed if keys are hashed.
    """

    def __init__(
        self,
        keys: Keys,
        same_bits: int = 0,
        values_of: Callable[[Rows], pa.Array] | None = None,
    ) -> None:
        self._same_bits = np.uint64(same_bits)
        rows = np.arange(len(keys)) if keys.nulls is None else np.flatnonzero(~keys.nulls)
        first = keys.first[rows]
        second = None if keys.second is None else keys.second[rows]
        order = np.argsort(first, kind="stable") if second is None else np.lexsort((second, first))
        self._first: Words = first[order]
        self._second: Words | None = None if second is None else second[order]
        self._rows: Rows = rows[order].astype(_integers_up_to(len(keys)))
        self._starts: Rows | None = None
        self._values_of = values_of if second is not None else None
        # Numbers that distinguish different keys with the same hash; None if there are none.
        self._ties: Rows | None = None
        self._tied: tuple[Rows, pa.Array] | None = None
        if self._values_of is not None:
            self._tell_ties_apart(self._values_of)

    def __len__(self) -> int:
        return len(self._rows)

    def repeated(self) -> Rows:
        """The rows that share their key with another row; rows with the same key are adjacent."""
        return self._rows[_with_neighbours(self._same_as_before())]

    def keep_last(self, last_by: pa.Array | None) -> Rows:
        """Keep one row for each key: the last one, or the one with the highest value.

        Among equal values the last row is kept. Null is lowest, and NaN is highest.

        Returns:
            The rows that were dropped.
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
        if self._ties is not None:
            self._ties = self._ties[kept]
            self._tied = None
        self._starts = None
        return left_out

    def find(self, keys: Keys, values: pa.Array | None = None) -> IndexMatches:
        """The rows with the given keys; null keys never match.

        Args:
            keys: The keys to look up.
            values: The same keys as `key_values`; needed if keys are hashed.
        """
        if not len(self._rows):
            return IndexMatches(np.zeros(0, np.int64), np.zeros(0, np.int64))
        at = self._places(keys.first)
        is_match = self._first.take(at, mode="clip") == keys.first
        is_match &= at < len(self._first)
        if keys.nulls is not None:
            is_match &= ~keys.nulls
        places = np.flatnonzero(is_match)
        at = at[places]
        if self._second is not None and keys.second is not None:
            places, at = self._with_second(places, at, keys)
        if self._values_of is None or values is None or not len(places):
            return IndexMatches(places, self._rows[at])
        return self._with_values(places, at, values, self._values_of)

    def _with_second(self, places: Rows, at: Rows, keys: Keys) -> tuple[Rows, Rows]:
        """Select the keys whose second half matches as well, and return their places."""
        assert self._second is not None
        assert keys.second is not None
        wanted1, wanted2 = keys.first[places], keys.second[places]
        # Different keys may share their first half: search among the following ones as well.
        open_ = np.flatnonzero(self._second[at] != wanted2)
        low = at[open_]
        high = np.searchsorted(self._first, wanted1[open_], side="right")
        while (low < high).any():
            middle = (low + high) // 2
            less = (self._second.take(middle, mode="clip") < wanted2[open_]) & (low < high)
            low, high = np.where(less, middle + 1, low), np.where(less, high, middle)
        at[open_] = low
        there = at < len(self._first)
        there &= self._second.take(at, mode="clip") == wanted2
        there &= self._first.take(at, mode="clip") == wanted1
        return places[there], at[there]

    def _with_values(
        self, places: Rows, at: Rows, values: pa.Array, values_of: Callable[[Rows], pa.Array]
    ) -> IndexMatches:
        """Select the keys whose values match as well."""
        wanted = values.take(pa.array(places))
        rows = self._rows[at]
        same = pc.equal(values_of(rows), wanted).to_numpy(zero_copy_only=False)
        if self._ties is not None:
            # `at` is the first of several keys with the same hash: find the others by value.
            if self._tied is None:
                tied = np.flatnonzero(_with_neighbours(self._same_hash_as_before()))
                self._tied = self._rows[tied], values_of(self._rows[tied])
            tied_rows, known = self._tied
            others = np.flatnonzero(~same)
            place = pc.index_in(wanted.take(pa.array(others)), value_set=known)
            is_known = place.is_valid().to_numpy(zero_copy_only=False)
            rows = rows.copy()
            rows[others[is_known]] = tied_rows[place.drop_null().to_numpy()]
            same = same.copy()
            same[others[is_known]] = True
        return IndexMatches(places[same], rows[same])

    def _tell_ties_apart(self, values_of: Callable[[Rows], pa.Array]) -> None:
        """Sort rows with the same hash by their values, if these differ."""
        tied = np.flatnonzero(_with_neighbours(self._same_hash_as_before()))
        if not len(tied):
            return
        codes = values_of(self._rows[tied]).dictionary_encode().indices.to_numpy()
        first, second = self._first[tied], cast(Words, self._second)[tied]
        same_hash = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
        if not (same_hash & (codes[1:] != codes[:-1])).any():
            return
        order = np.lexsort((codes, second, first))
        self._rows[tied] = self._rows[tied][order]
        self._ties = np.zeros(len(self._first), np.int64)
        self._ties[tied] = codes[order]

    def _places(self, first: Words) -> npt.NDArray[np.int64]:
        """The places of keys by their first halves: like `searchsorted`, but faster."""
        bits = max(1, len(self._first).bit_length())
        if self._starts is None:
            counts = np.bincount(self._slots(self._first, bits), minlength=1 << bits)
            starts = np.concatenate([[0], np.cumsum(counts)])
            self._starts = starts.astype(_integers_up_to(len(self._first)))
        at = self._starts.take(self._slots(first, bits)).astype(np.int64)
        # A few keys share their first bits: skip the lower ones.
        looking = np.flatnonzero(self._first.take(at, mode="clip") < first)
        for _ in range(_MOST_STEPS):
            if not len(looking):
                return at
            at[looking] += 1
            looking = looking[at[looking] < len(self._first)]
            looking = looking[self._first[at[looking]] < first[looking]]
        at[looking] = np.searchsorted(self._first, first[looking])
        return at

    def _slots(self, first: Words, bits: int) -> npt.NDArray[np.int64]:
        return ((first << self._same_bits) >> np.uint64(64 - bits)).view(np.int64)

    def _same_as_before(self) -> npt.NDArray[np.bool_]:
        same = self._same_hash_as_before()
        if self._ties is not None:
            same[1:] &= self._ties[1:] == self._ties[:-1]
        return same

    def _same_hash_as_before(self) -> npt.NDArray[np.bool_]:
        same = np.zeros(len(self._first), np.bool_)
        same[1:] = self._first[1:] == self._first[:-1]
        if self._second is not None:
            same[1:] &= self._second[1:] == self._second[:-1]
        return same


def _with_neighbours(same_as_before: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Marks rows that are the same as the row before or after them."""
    same = same_as_before.copy()
    same[:-1] |= same_as_before[1:]
    return same


def _integers_up_to(highest: int) -> type[np.signedinteger[Any]]:
    return np.int32 if highest < 1 << 31 else np.int64
