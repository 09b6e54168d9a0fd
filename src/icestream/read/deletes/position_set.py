"""A set of row positions in one file, as bitmaps.

Five million positions in any order take at most 2.5 MB. As sorted integers they would take 40 MB,
and as much again for sorting. docs/design/0010 has the measurements.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

Numbers = npt.NDArray[np.int64]

_CHUNK_ROWS = 1 << 16  # Rows in one container of a bitmap.
_CHUNK_BYTES = 1 << 13  # Maximum size of a container.
_CONTAINER_BYTES = 64  # Approximate overhead of a container.
_BITMAP_ROWS = 1 << 32
_PIECE_ROWS = 1 << 20


class PositionSet:
    """Row positions, added in any order and returned by range. May be added repeatedly.

    Memory: at most two bytes for each position, and 8 kB for each 65,536 rows of the file.
    """

    __slots__ = ("_bitmaps",)

    def __init__(self, positions: Numbers | None = None) -> None:
        self._bitmaps: dict[int, BitMap] = {}
        if positions is not None:
            self.add(positions)

    @classmethod
    def of_bitmaps(cls, bitmaps: dict[int, BitMap]) -> PositionSet:
        """Use bitmaps of the lower 32 bits, by the upper 32 bits."""
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
        """Approximate size of the bitmaps."""
        total = 0
        for bitmap in self._bitmaps.values():
            sizes = bitmap.get_statistics()
            total += sizes["n_bytes_array_containers"]
            total += sizes["n_bytes_run_containers"]
            total += sizes["n_bytes_bitset_containers"]
            total += _CONTAINER_BYTES * (sizes["n_containers"] + 1)
        return total

    def add(self, positions: Numbers) -> None:
        """Add positions.

        Raises:
            ValueError: If a position is negative.
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
        """Add the positions of another set."""
        for key, bitmap in other._bitmaps.items():
            if key in self._bitmaps:
                self._bitmaps[key] |= bitmap
            else:
                self._bitmaps[key] = bitmap.copy()

    def between(self, first: int, end: int) -> Numbers:
        """The positions from `first` to before `end`, ascending."""
        parts = [
            _numbers(bitmap & BitMap(range(max(first - base, 0), min(end - base, _BITMAP_ROWS))))
            + base
            for base, bitmap in self._in_order()
            if base < end and first < base + _BITMAP_ROWS
        ]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def has_any(self, first: int, end: int) -> bool:
        """Whether the set has positions from `first` to before `end`."""
        return any(
            bitmap.range_cardinality(max(first - base, 0), min(end - base, _BITMAP_ROWS))
            for base, bitmap in self._in_order()
            if base < end and first < base + _BITMAP_ROWS
        )

    def pieces(self) -> Iterator[Numbers]:
        """All positions, ascending, in pieces that each cover a million rows."""
        for base, bitmap in self._in_order():
            first, end = bitmap.min() // _PIECE_ROWS * _PIECE_ROWS, bitmap.max() + 1
            for start in range(first, end, _PIECE_ROWS):
                piece = self.between(base + start, base + min(start + _PIECE_ROWS, end))
                if len(piece):
                    yield piece

    def keep_mask(self, first: int, count: int) -> pa.Array | None:
        """A mask of the rows that are not in the set, among `count` rows from position `first`.

        Returns None if the set contains none of the rows.
        """
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
    """Maximum size of a set.

    Args:
        positions: Number of positions, including repeated ones.
        rows: Number of rows in the file, if known. The set can't be larger.
    """
    chunks = rows // _CHUNK_ROWS + 1 if rows else _BITMAP_ROWS // _CHUNK_ROWS
    chunks = min(positions, chunks)
    return min(2 * positions, _CHUNK_BYTES * chunks) + _CONTAINER_BYTES * (chunks + 1)


def _numbers(bitmap: BitMap) -> Numbers:
    return np.frombuffer(bitmap.to_array(), dtype=np.uint32).astype(np.int64)
