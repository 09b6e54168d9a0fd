"""A compact set for a large number of names."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from icestream.errors import CatalogError
from icestream.memory.budget import MemoryBudget

_Hashes = npt.NDArray[np.int64]
_HASH_BYTES = 8
_LEAST_BUFFER = 8_192
_BLOCK_HASHES = 131_072
# Sorting a full buffer and looking up its names takes copies.
_WORK_FACTOR = 4


class NameSet:
    """Stores names as 64-bit hashes, in memory and, beyond its share, on disk.

    Two names with the same hash count as the same name. This is harmless: it only keeps a file.

    Memory: 8 bytes per name, at most `most_bytes` charged to the budget; the rest is in an unnamed
    temporary file.

    Args:
        budget: The budget that the names are charged to.
        most_bytes: Maximum number of bytes held in memory.
    """

    def __init__(self, budget: MemoryBudget, most_bytes: int) -> None:
        self._lease = budget.force(0)
        self._most_bytes = most_bytes
        self._most_waiting = max(_LEAST_BUFFER, most_bytes // (_HASH_BYTES * _WORK_FACTOR * 2))
        self._waiting = array("q")
        self._sorted: _Hashes = np.empty(0, np.int64)
        self._file: Any = None
        self._runs: list[tuple[int, int]] = []  # first hash and number of hashes in the file

    def __len__(self) -> int:
        self._settle()
        return len(self._sorted) + sum(count for _, count in self._runs)

    def add(self, name: str) -> None:
        """Add a name."""
        self._waiting.append(hash(name))
        if len(self._waiting) >= self._most_waiting:
            self._settle()

    def find(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Marks the names that are in the set. Look up many names in one call."""
        self._settle()
        wanted = np.fromiter(map(hash, names), np.int64)
        order = np.argsort(wanted)
        is_known = np.empty(len(wanted), np.bool_)
        is_known[order] = self._find_sorted(wanted[order])
        return is_known

    def close(self) -> None:
        """Drop everything."""
        self._waiting = array("q")
        self._sorted = np.empty(0, np.int64)
        self._runs.clear()
        self._lease.release()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _settle(self) -> None:
        """Sort waiting hashes into the set, without duplicates, so that the length is exact."""
        if not self._waiting:
            return
        self._lease.resize(self._sorted.nbytes + len(self._waiting) * _HASH_BYTES * _WORK_FACTOR)
        fresh = np.unique(np.frombuffer(self._waiting, np.int64))
        self._waiting = array("q")
        fresh = fresh[~self._find_sorted(fresh)]
        if (len(self._sorted) + len(fresh)) * _HASH_BYTES * 2 > self._most_bytes:
            self._to_disk(self._sorted)
            self._sorted = fresh
        else:
            self._sorted = np.union1d(self._sorted, fresh)
        self._lease.resize(self._sorted.nbytes)

    def _find_sorted(self, wanted: _Hashes) -> npt.NDArray[np.bool_]:
        is_known = _is_in(wanted, self._sorted)
        for block in self._blocks():
            first = int(np.searchsorted(wanted, block[0]))
            last = int(np.searchsorted(wanted, block[-1], side="right"))
            is_known[first:last] |= _is_in(wanted[first:last], block)
        return is_known

    def _blocks(self) -> Iterator[_Hashes]:
        """The hashes on disk, in sorted blocks."""
        for start, count in self._runs:
            for first in range(start, start + count, _BLOCK_HASHES):
                size = min(_BLOCK_HASHES, start + count - first)
                self._file.seek(first * _HASH_BYTES)
                content = self._file.read(size * _HASH_BYTES)
                if len(content) != size * _HASH_BYTES:
                    raise CatalogError("file names could not be read back from a temporary file")
                yield np.frombuffer(content, np.int64)

    def _to_disk(self, run: _Hashes) -> None:
        if not len(run):
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="icestream-names-")  # noqa: SIM115
            start = sum(count for _, count in self._runs)
            self._file.seek(start * _HASH_BYTES)
            self._file.write(run.tobytes())
            self._file.flush()
        except OSError as error:
            raise CatalogError(
                f"file names could not be written to {tempfile.gettempdir()}: {error}. Free some "
                "space, set TMPDIR to another directory, or raise memory"
            ) from error
        self._runs.append((start, len(run)))


def _is_in(wanted: _Hashes, held: _Hashes) -> npt.NDArray[np.bool_]:
    """Marks the wanted hashes that are among the held ones. Both are sorted."""
    if not len(held):
        return np.zeros(len(wanted), np.bool_)
    places = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    is_held: npt.NDArray[np.bool_] = held[places] == wanted
    return is_held
