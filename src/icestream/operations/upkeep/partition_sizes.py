"""Sums of files, rows and bytes for each partition of a table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from icestream.errors import CatalogError
from icestream.memory.budget import MemoryBudget

_ROW = np.dtype(
    [
        ("key", np.int64),
        ("files", np.int64),
        ("rows", np.int64),
        ("bytes", np.int64),
        ("small_files", np.int64),
        ("small_bytes", np.int64),
        ("spec_id", np.int32),
        ("manifest", np.int32),
        ("entry", np.int32),
    ]
)
_SUMS = ("files", "rows", "bytes", "small_files", "small_bytes")
_BUFFER_ROWS = 16_384
_BUFFER_ROW_BYTES = 400  # as tuples
_BLOCK_ROWS = 8_192
# Sorting and summing take copies.
_WORK_FACTOR = 4

Partitions = npt.NDArray[Any]


class PartitionSizes:
    """Adds up files by partition.

    It keeps a hash of the partition's values, and the place of the first manifest entry that has
    them. The values can be read again from there.

    Memory: 60 bytes for each partition, at most a quarter of the budget; the rest is in an unnamed
    temporary file.

    Args:
        budget: The budget that the sums are charged to.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._most_bytes = budget.limit_bytes // 4
        self._lease = budget.force(_BUFFER_ROWS * _BUFFER_ROW_BYTES)
        self._buffer: list[tuple[int, ...]] = []
        self._sums: Partitions = np.empty(0, _ROW)
        self._file: Any = None
        self._runs: list[int] = []  # rows of each run in the file

    def add(
        self,
        key: int,
        *,
        rows: int,
        size: int,
        is_small: bool,
        spec_id: int,
        manifest: int,
        entry: int,
    ) -> None:
        """Add a file.

        Args:
            key: A hash of the partition's spec and values.
            rows: The number of rows in the file.
            size: The size of the file in bytes.
            is_small: Whether the file should be merged with others.
            spec_id: The id of the partition's spec.
            manifest: The number of the manifest that lists the file.
            entry: The number of the file's entry in that manifest.
        """
        small = (1, size) if is_small else (0, 0)
        self._buffer.append((key, 1, rows, size, *small, spec_id, manifest, entry))
        if len(self._buffer) >= _BUFFER_ROWS:
            self._settle()

    def partitions(self) -> Iterator[Partitions]:
        """All partitions, each once, in blocks of some thousands."""
        self._settle()
        if not self._runs:
            yield self._sums
            return
        self._to_disk()
        cursors = [_Cursor(self._file, start, rows) for start, rows in self._places()]
        while heads := [cursor.last_key for cursor in cursors if cursor.has_rows]:
            bound = min(heads)  # No later block has a key up to this one.
            yield _summed(np.concatenate([cursor.take(bound) for cursor in cursors]))

    def close(self) -> None:
        """Drop everything."""
        self._buffer.clear()
        self._sums = np.empty(0, _ROW)
        self._lease.release()
        if self._file is not None:
            self._file.close()

    def _settle(self) -> None:
        """Add the buffered files to the sums."""
        fresh = np.array(self._buffer, _ROW)
        self._buffer.clear()
        self._sums = _summed(np.concatenate([self._sums, fresh]))
        if self._sums.nbytes * _WORK_FACTOR > self._most_bytes:
            self._to_disk()
        self._lease.resize(
            _BUFFER_ROWS * _BUFFER_ROW_BYTES + self._sums.nbytes * (_WORK_FACTOR - 1)
        )

    def _places(self) -> Iterator[tuple[int, int]]:
        start = 0
        for rows in self._runs:
            yield start, rows
            start += rows

    def _to_disk(self) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="icestream-partitions-")  # noqa: SIM115
            self._file.seek(sum(self._runs) * _ROW.itemsize)
            self._file.write(self._sums.tobytes())
            self._file.flush()
        except OSError as error:
            raise CatalogError(
                f"partition sizes could not be written to {tempfile.gettempdir()}: {error}. Free "
                "some space, set TMPDIR to another directory, or raise memory"
            ) from error
        self._runs.append(len(self._sums))
        self._sums = np.empty(0, _ROW)


class _Cursor:
    """A position in a sorted run on disk, with the current block."""

    def __init__(self, file: Any, start: int, rows: int) -> None:
        self._file = file
        self._next = start
        self._end = start + rows
        self._block: Partitions = np.empty(0, _ROW)
        self._load()

    @property
    def has_rows(self) -> bool:
        return len(self._block) > 0

    @property
    def last_key(self) -> int:
        return int(self._block["key"][-1])

    def take(self, bound: int) -> Partitions:
        """The rows of the current block up to a key; loads the next block at its end."""
        end = int(np.searchsorted(self._block["key"], np.int64(bound), side="right"))
        taken, self._block = self._block[:end], self._block[end:]
        if not len(self._block):
            self._load()
        return taken

    def _load(self) -> None:
        rows = min(_BLOCK_ROWS, self._end - self._next)
        self._file.seek(self._next * _ROW.itemsize)
        self._block = np.frombuffer(self._file.read(rows * _ROW.itemsize), _ROW)
        self._next += rows


def _summed(rows: Partitions) -> Partitions:
    """One row for each key, sorted, with the manifest entry of the first."""
    if not len(rows):
        return rows
    rows = rows[np.argsort(rows["key"], kind="stable")]
    starts = np.flatnonzero(np.r_[True, rows["key"][1:] != rows["key"][:-1]])
    result = rows[starts].copy()
    for name in _SUMS:
        result[name] = np.add.reduceat(rows[name], starts)
    return result
