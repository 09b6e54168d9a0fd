"""A set of row positions of one file, as bitmaps.

Five million positions take 2.5 MB or less, whatever their order, where sorted integers take 40 MB
and as much again to sort them. docs/design/0010 has the figures.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

Numbers = npt.NDArray[np.int64]

_CHUNK_ROWS = 1 << 16  # What one container of a bitmap covers.
_CHUNK_BYTES = 1 << 13  # What it takes at most.
_CONTAINER_BYTES = 64  # About what describes it.
_BITMAP_ROWS = 1 << 32
_PIECE_ROWS = 1 << 20


class PositionSet:
    """Positions of rows: added in any order, repeated or not, and asked for by range.

    Memory: two bytes for each position and 8 kB for each 65,536 rows of the file at most.
    """

    __slots__ = ("_bitmaps",)

    def __init__(self, positions: Numbers | None = None) -> None:
        self._bitmaps: dict[int, BitMap] = {}
        if positions is not None:
            self.add(positions)

    @classmethod
    def of_bitmaps(cls, bitmaps: dict[int, BitMap]) -> PositionSet:
        """The positions in bitmaps of 32 bits, by the upper 32 bits."""
        positions = cls()
        positions._bitmaps = bitmaps
        return positions

    def __len__(self) -> int:
        return sum(len(bitmap) for bitmap in self._bitmaps.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositionSet) and self._bitmaps == other._bitmaps

    __hash__ = None  # type: ignore[assignment]

    @property
    def nbytes(self) -> int:
        """About what the bitmaps take."""
        total = 0
        for bitmap in self._bitmaps.values():
            sizes = bitmap.get_statistics()
            total += sizes["n_bytes_array_containers"]
            total += sizes["n_bytes_run_containers"]
            total += sizes["n_bytes_bitset_containers"]
            total += _CONTAINER_BYTES * (sizes["n_containers"] + 1)
        return total

    def add(self, positions: Numbers) -> None:
        """Take positions in.

        Raises:
            ValueError: If one is below zero.
        """
        if not len(positions):
            return
        low, high = int(positions.min()), int(positions.max())
        if low < 0:
            raise ValueError(f"a row position is {low}: it must be 0 or more")
        if low // _BITMAP_ROWS == high // _BITMAP_ROWS:
            self._add(low // _BITMAP_ROWS, positions)
            return
        upper = positions >> 32
        for key in np.unique(upper).tolist():
            self._add(key, positions[upper == key])

    def update(self, other: PositionSet) -> None:
        """Take the positions of another set in, which stays as it is."""
        for key, bitmap in other._bitmaps.items():
            if key in self._bitmaps:
                self._bitmaps[key] |= bitmap
            else:
                self._bitmaps[key] = bitmap.copy()

    def between(self, first: int, end: int) -> Numbers:
        """The positions from `first` to before `end`, ascending."""
        found = [
            _numbers(bitmap & BitMap(range(max(first - base, 0), min(end - base, _BITMAP_ROWS))))
            + base
            for base, bitmap in self._in_order()
            if base < end and first < base + _BITMAP_ROWS
        ]
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def pieces(self) -> Iterator[Numbers]:
        """All positions, ascending, those of a million rows at a time."""
        for base, bitmap in self._in_order():
            first, end = bitmap.min() // _PIECE_ROWS * _PIECE_ROWS, bitmap.max() + 1
            for start in range(first, end, _PIECE_ROWS):
                piece = self.between(base + start, base + min(start + _PIECE_ROWS, end))
                if len(piece):
                    yield piece

    def keep_mask(self, first: int, count: int) -> pa.Array | None:
        """Which of `count` rows from position `first` on are not in the set; None when all are."""
        inside = self.between(first, first + count)
        if not len(inside):
            return None
        keep = np.ones(count, dtype=bool)
        keep[inside - first] = False
        return pa.array(keep)

    def _add(self, key: int, positions: Numbers) -> None:
        values = array("I")
        values.frombytes(positions.astype(np.uint32).tobytes())  # The lower 32 bits.
        bitmap = self._bitmaps.get(key)
        if bitmap is None:
            self._bitmaps[key] = BitMap(values)
        else:
            bitmap.update(values)

    def _in_order(self) -> list[tuple[int, BitMap]]:
        return [(key * _BITMAP_ROWS, self._bitmaps[key]) for key in sorted(self._bitmaps)]


def most_bytes(positions: int, rows: int = 0) -> int:
    """What a set of so many positions may take at most.

    Args:
        positions: How many there are, repeats included.
        rows: The rows of the file, if they are known: the set can't hold more.
    """
    chunks = rows // _CHUNK_ROWS + 1 if rows else _BITMAP_ROWS // _CHUNK_ROWS
    chunks = min(positions, chunks)
    return min(2 * positions, _CHUNK_BYTES * chunks) + _CONTAINER_BYTES * (chunks + 1)


def _numbers(bitmap: BitMap) -> Numbers:
    return np.frombuffer(bitmap.to_array(), dtype=np.uint32).astype(np.int64)
