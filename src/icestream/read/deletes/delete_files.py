"""Deleted rows from position delete files and deletion vectors, within the budget.

A delete file is read when the first split needs it. It is streamed in batches into one bitmap for
each data file. The maximum size of the bitmaps is leased before the file is read. The bitmaps of a
delete file for several data files are kept until the scan ends or the memory is needed. If they
would be too large, only the positions of the current data file are read, from the row groups that
may contain them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from icestream.memory.budget import Lease, MemoryBudget, format_bytes, over_limit
from icestream.read.decode.files import RetryPolicy, open_file, retrying
from icestream.read.decode.footer import read_footer
from icestream.read.decode.orc import orc_batches
from icestream.read.deletes.deletion_vector import read_vector
from icestream.read.deletes.position_set import Numbers, PositionSet, most_bytes
from icestream.read.split import DeleteFile, Split

T = TypeVar("T")

_BATCH_ROWS = 65_536
_LEAST_ROWS = 1_024
_BATCH_SHARE = 256
_READ_BYTES = 4 << 20  # A batch, its pages and buffers.
_FILE_BYTES = 512  # A path and an empty bitmap.
_MEASURED_ROWS = 1 << 20
_READ_SHARE = 8
_KEPT_SHARE = 4


class DeletedRows:
    """The deleted positions of one data file, leased until they are released."""

    def __init__(self, positions: PositionSet, lease: Lease) -> None:
        self.positions = positions
        self._lease = lease

    def keep_mask(self, first: int, count: int) -> pa.Array | None:
        """A mask of the rows to keep among `count` rows from position `first`; None for all."""
        return self.positions.keep_mask(first, count)

    def release(self) -> None:
        """Release the bytes. A second call does nothing."""
        self._lease.release()


class DeletedPositions:
    """The deleted positions of each data file of a scan, read on demand.

    Memory: all bytes are leased. Positions that are kept for later take at most a quarter of the
        limit.
    """

    def __init__(
        self,
        budget: MemoryBudget,
        policy: RetryPolicy,
        stopped: threading.Event,
        on_retry: Callable[[], None],
    ) -> None:
        self._budget = budget
        self._policy = policy
        self._stopped = stopped
        self._on_retry = on_retry
        self._kept: OrderedDict[str, tuple[dict[str, PositionSet], Lease]] = OrderedDict()
        self._too_large: set[str] = set()
        self._reading: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def of(self, split: Split) -> DeletedRows:
        """The deleted positions of a split's data file.

        Raises:
            MemoryBudgetError: If they may need more than the limit. Nothing has been read.
        """
        rows = split.rows if split.row_groups is None else 0
        needed = most_bytes(sum(delete.records for delete in split.deletes), rows)
        if needed > self._budget.limit_bytes:
            raise over_limit(
                f"the deleted positions of {split.path} may need {format_bytes(needed)}",
                needed_bytes=2 * needed,
                limit_bytes=self._budget.limit_bytes,
                otherwise="rewrite the file without its deleted rows",
            )
        lease = self._budget.force(needed)
        try:
            if len(split.deletes) == 1:
                positions = self._from(split.deletes[0], split)
            else:
                positions = PositionSet()
                for delete in split.deletes:
                    positions.update(self._from(delete, split))
            lease.resize(positions.nbytes)
        except BaseException:
            lease.release()
            raise
        return DeletedRows(positions, lease)

    def close(self) -> None:
        """Drop all kept positions."""
        with self._lock:
            for _, lease in self._kept.values():
                lease.release()
            self._kept.clear()

    def _from(self, delete: DeleteFile, split: Split) -> PositionSet:
        io, path = split.context.io, split.path
        if delete.format == "puffin":
            with self._charged(delete.length or most_bytes(delete.records)):
                return self._retrying(lambda: read_vector(io, delete, path), delete, split)
        with self._lock:
            reading = self._reading.setdefault(delete.path, threading.Lock())
        with reading:  # Splits that wait here probably need the same file.
            positions = self._known(delete, path)
            if positions is None:
                with self._charged(min(_READ_BYTES, self._budget.limit_bytes // _READ_SHARE)):
                    positions = self._read(delete, split)
            return positions

    def _known(self, delete: DeleteFile, path: str) -> PositionSet | None:
        with self._lock:
            if delete.path not in self._kept:
                return None
            self._kept.move_to_end(delete.path)
            return self._kept[delete.path][0].get(path) or PositionSet()

    def _read(self, delete: DeleteFile, split: Split) -> PositionSet:
        io, path = split.context.io, split.path
        most = self._budget.limit_bytes // _READ_SHARE
        rows = max(_LEAST_ROWS, min(_BATCH_ROWS, self._budget.limit_bytes // _BATCH_SHARE))
        if delete.path not in self._too_large:
            with self._charged(min(most, most_bytes(delete.records))):
                by_file = self._retrying(lambda: _read_all(io, delete, most, rows), delete, split)
                if by_file is not None:
                    # Other splits need the positions of other files, or of other parts of this one.
                    if len(by_file) > 1 or split.row_groups is not None:
                        self._keep(delete.path, by_file)
                    return by_file.get(path) or PositionSet()
            self._too_large.add(delete.path)
        return self._retrying(lambda: _read_for(io, delete, path, rows), delete, split)

    def _keep(self, path: str, by_file: dict[str, PositionSet]) -> None:
        size = _held_bytes(by_file)
        with self._lock:
            held = sum(kept.held_bytes for _, kept in self._kept.values())
            while self._kept and held + size > self._budget.limit_bytes // _KEPT_SHARE:
                _, (_, oldest) = self._kept.popitem(last=False)
                held -= oldest.held_bytes
                oldest.release()
            self._kept[path] = (by_file, self._budget.force(size))

    @contextmanager
    def _charged(self, size: int) -> Iterator[None]:
        lease = self._budget.force(size)
        try:
            yield
        finally:
            lease.release()

    def _retrying(self, action: Callable[[], T], delete: DeleteFile, split: Split) -> T:
        return retrying(
            action,
            path=delete.path,
            policy=self._policy,
            split=split.id,
            stopped=self._stopped,
            on_retry=self._on_retry,
            io=split.context.io,
        )


def _read_all(
    io: FileIO, delete: DeleteFile, most: int, batch_rows: int
) -> dict[str, PositionSet] | None:
    """All positions of a delete file, by data file; None if they take more than `most` bytes."""
    by_file: dict[str, PositionSet] = {}
    unmeasured = 0
    for paths, positions in _batches(io, delete, batch_rows):
        for path, part in _runs(paths, positions):
            by_file.setdefault(path, PositionSet()).add(part)
        unmeasured += len(positions)
        if unmeasured >= _MEASURED_ROWS or _FILE_BYTES * len(by_file) > most:
            unmeasured = 0
            if _held_bytes(by_file) > most:
                return None
    return by_file if _held_bytes(by_file) <= most else None


def _held_bytes(by_file: dict[str, PositionSet]) -> int:
    return sum(_FILE_BYTES + positions.nbytes for positions in by_file.values())


def _runs(paths: pa.DictionaryArray, positions: Numbers) -> Iterator[tuple[str, Numbers]]:
    """The positions of each data file. Most delete files are sorted by path, but not all."""
    codes = _codes(paths)
    if (codes[1:] < codes[:-1]).any():
        order = np.argsort(codes, kind="stable")
        codes, positions = codes[order], positions[order]
    bounds = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist(), len(codes)]
    for start, end in pairwise(bounds):
        if start < end:
            yield paths.dictionary[int(codes[start])].as_py(), positions[start:end]


def _read_for(io: FileIO, delete: DeleteFile, path: str, batch_rows: int) -> PositionSet:
    """The positions of one data file, streamed from a large delete file."""
    deleted = PositionSet()
    for paths, positions in _batches(io, delete, batch_rows, only=path):
        code = pc.index_in(pa.scalar(path), value_set=paths.dictionary.cast(pa.string()))
        if code.is_valid:
            deleted.add(positions[_codes(paths) == code.as_py()])
    return deleted


def _codes(paths: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    codes: npt.NDArray[np.int32] = paths.indices.to_numpy(zero_copy_only=False)
    return codes


def _batches(
    io: FileIO, delete: DeleteFile, rows: int, only: str | None = None
) -> Iterator[tuple[pa.DictionaryArray, Numbers]]:
    with open_file(io, delete.path) as handle:
        raw = _parquet(handle, rows, only) if delete.format == "parquet" else _orc(handle, rows)
        for batch in raw:
            paths = batch.column("file_path")
            if not isinstance(paths, pa.DictionaryArray):
                paths = paths.dictionary_encode()
            yield paths, batch.column("pos").cast(pa.int64()).to_numpy(zero_copy_only=False)


def _parquet(handle: pa.NativeFile, rows: int, only: str | None) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(
        handle,
        metadata=read_footer(handle).metadata,
        buffer_size=1 << 18,
        pre_buffer=False,
        page_checksum_verification=True,
        read_dictionary=["file_path"],
    )
    groups = [
        group
        for group in range(file.num_row_groups)
        if only is None or _might_hold(file.metadata.row_group(group), only)
    ]
    left = sum(file.metadata.row_group(group).num_rows for group in groups)
    if groups:
        for batch in file.iter_batches(rows, groups, ["file_path", "pos"], use_threads=False):
            left -= batch.num_rows
            yield batch
    if left:  # Arrow skips pages of unknown types.
        raise ValueError(f"the file ended {left} rows early")


def _might_hold(group: pq.RowGroupMetaData, path: str) -> bool:
    for position in range(group.num_columns):
        column = group.column(position)
        if column.path_in_schema == "file_path":
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return True
            low, high = statistics.min, statistics.max
            as_text = [v.decode() if isinstance(v, bytes) else v for v in (low, high)]
            return bool(as_text[0] <= path <= as_text[1])
    return True


def _orc(handle: pa.NativeFile, rows: int) -> Iterator[pa.RecordBatch]:
    for batch in orc_batches(handle, ["file_path", "pos"], rows):
        batch.validate(full=True)  # ORC has no checksums. A damaged path may not be valid text.
        yield batch
