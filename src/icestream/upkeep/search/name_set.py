"""A large set of names in few bytes."""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from icestream.errors import CatalogError
from icestream.memory import MemoryBudget

_Hashes = npt.NDArray[np.int64]
_HASH_BYTES = 8
_LEAST_BUFFER = 8_192
_BLOCK_HASHES = 131_072
# A buffer that is full is sorted and looked up before it joins the others.
_WORK_FACTOR = 4


class NameSet:
    """Remembers names by a hash of 64 bits, in memory and, beyond its share, on disk.

    Two names with one hash are taken for the same. That must be harmless: here it keeps a file.

    Memory: 8 bytes a name, at most `most_bytes` on lease from the budget; the rest is in a
    temporary file without a name.

    Args:
        budget: What the names are on lease from.
        most_bytes: What may be held in memory.
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

    @property
    def spilled_bytes(self) -> int:
        """What is on disk."""
        return sum(count for _, count in self._runs) * _HASH_BYTES

    def add(self, name: str) -> None:
        """Take a name in."""
        self._waiting.append(hash(name))
        if len(self._waiting) >= self._most_waiting:
            self._settle()

    def find(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Which of some names are in the set; ask for many at once."""
        self._settle()
        wanted = np.fromiter(map(hash, names), np.int64)
        order = np.argsort(wanted)
        found = np.empty(len(wanted), np.bool_)
        found[order] = self._find_sorted(wanted[order])
        return found

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
        """Sort in what waits; no hash is kept twice, so that the set knows its length."""
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
        found = _is_in(wanted, self._sorted)
        for block in self._blocks():
            first = int(np.searchsorted(wanted, block[0]))
            last = int(np.searchsorted(wanted, block[-1], side="right"))
            found[first:last] |= _is_in(wanted[first:last], block)
        return found

    def _blocks(self) -> Iterator[_Hashes]:
        """What is on disk, in sorted pieces."""
        for start, count in self._runs:
            for first in range(start, start + count, _BLOCK_HASHES):
                size = min(_BLOCK_HASHES, start + count - first)
                self._file.seek(first * _HASH_BYTES)
                content = self._file.read(size * _HASH_BYTES)
                if len(content) != size * _HASH_BYTES:
                    raise CatalogError("names of files could not be read back from disk")
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
                f"names of files could not be written to {tempfile.gettempdir()}: {error}. Free "
                "some space, name another directory in TMPDIR, or raise memory"
            ) from error
        self._runs.append((start, len(run)))


def _is_in(wanted: _Hashes, held: _Hashes) -> npt.NDArray[np.bool_]:
    """Which of the sorted hashes are among others that are sorted, too."""
    if not len(held):
        return np.zeros(len(wanted), np.bool_)
    places = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    found: npt.NDArray[np.bool_] = held[places] == wanted
    return found
