"""Rows that wait until they fill a row group."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from icestream.write.schema.sizes import cut_by

_MERGED_AT_ONCE = 16
_SMALL_COLUMN_BYTES = 8 << 10
_PINNED_TIMES = 1.5
_SLACK = 32
_FEW_ROWS = 64
_FEW_ROWS_BYTES = 1 << 20


class RowBuffer:
    """Batches in order, returned in pieces of a requested size.

    Small batches are merged, sixteen at a time, and the merged ones again. So a million batches of
    one row become few objects, and each row is copied only a few times. A slice that keeps a much
    larger batch alive is copied.

    Memory: `bytes` counts all buffers that the batches keep alive: at most 1.5 times their rows.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.rows = 0
        self._kept: deque[tuple[pa.RecordBatch, int]] = deque()
        # Small batches to merge, oldest first. Each level has merged batches of the next level.
        self._small: list[list[tuple[pa.RecordBatch, int]]] = []

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows at the end."""
        if not batch.num_rows:
            return
        kept = _unpinned(batch)
        self.rows += batch.num_rows
        self.bytes += kept[1]
        if kept[1] < _small_bytes(batch):
            self._keep_small(kept)
        else:
            self._gather_small()
            self._kept.append(kept)

    def take(self, max_bytes: int, max_rows: int | None = None) -> list[pa.RecordBatch]:
        """Remove rows from the front: about `max_bytes`, and at most `max_rows`.

        The last batch is cut to size. If little would be cut off or taken, it is taken whole or
        left, so the bytes may differ from `max_bytes` by one thirty-second. Returns at least one
        row if there is one.
        """
        self._gather_small()
        taken: list[pa.RecordBatch] = []
        bytes_left = max_bytes
        rows_left = self.rows if max_rows is None else min(max_rows, self.rows)
        while rows_left and self._kept:
            batch, size = self._kept[0]
            rows = _rows_within(batch, size, bytes_left, max_bytes // _SLACK)
            rows = min(rows, rows_left)
            if not taken:
                rows = max(rows, 1)
            if not rows:
                break
            taken.append(self._take_front(rows))
            rows_left -= rows
            bytes_left -= size * rows // batch.num_rows
        return taken

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self._small.clear()
        self.bytes = self.rows = 0

    def _take_front(self, rows: int) -> pa.RecordBatch:
        batch, size = self._kept.popleft()
        self.rows -= rows
        self.bytes -= size
        if rows == batch.num_rows:
            return batch
        rest = _unpinned(batch.slice(rows))
        self.bytes += rest[1]
        self._kept.appendleft(rest)
        return batch.slice(0, rows)

    def _keep_small(self, kept: tuple[pa.RecordBatch, int]) -> None:
        for level in reversed(self._small):
            level.append(kept)
            if len(level) < _MERGED_AT_ONCE:
                return
            kept = self._merge(level)
            level.clear()
            if kept[1] >= _small_bytes(kept[0]):
                # Levels above hold older rows, and too few to be worth merging.
                self._gather_small()
                self._kept.append(kept)
                return
        self._small.insert(0, [kept])

    def _gather_small(self) -> None:
        waiting = [kept for level in self._small for kept in level]
        self._small.clear()
        if waiting:
            self._kept.append(self._merge(waiting))

    def _merge(self, waiting: list[tuple[pa.RecordBatch, int]]) -> tuple[pa.RecordBatch, int]:
        if len(waiting) == 1:
            return waiting[0]
        merged = pa.concat_batches([batch for batch, _ in waiting])
        size = merged.get_total_buffer_size()
        self.bytes += size - sum(size for _, size in waiting)
        return merged, size


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows as one batch. Columns are joined one by one, to avoid a second copy of all rows.

    Args:
        batches: At least one batch; the list is emptied.
    """
    schema = batches[0].schema
    tables = [batch.columns for batch in batches]
    columns = [list(column) for column in zip(*tables, strict=True)]
    batches.clear()
    del tables
    for position, chunks in enumerate(columns):
        columns[position] = pa.concat_arrays(chunks)
        chunks.clear()
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def held_bytes(batches: Sequence[pa.RecordBatch]) -> int:
    """Bytes that these batches keep alive; shared buffers count twice."""
    return sum(batch.get_total_buffer_size() for batch in batches)


def cut(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `max_bytes` each, or of one row."""

    def size_of(piece: pa.RecordBatch) -> int:
        # The size of the whole buffers is an upper bound, and much quicker to compute.
        bound = int(piece.get_total_buffer_size())
        return bound if bound <= max_bytes else int(piece.nbytes)

    return cut_by(batch, max_bytes, size_of)


def _unpinned(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """The batch, copied if it keeps much more than its rows alive, and the bytes it keeps alive."""
    size = batch.get_total_buffer_size()
    if size <= _small_bytes(batch):
        return batch, size
    # Copying a few rows is quicker than computing their size.
    few = batch.num_rows <= _FEW_ROWS and size <= _FEW_ROWS_BYTES
    if few or size > _PINNED_TIMES * batch.nbytes:
        batch = pa.concat_batches([batch])
        size = batch.get_total_buffer_size()
    return batch, size


def _small_bytes(batch: pa.RecordBatch) -> int:
    return int(batch.num_columns * _SMALL_COLUMN_BYTES)


def _rows_within(batch: pa.RecordBatch, size: int, bytes_left: int, slack: int) -> int:
    """Number of rows of the batch to take, given the bytes left to take."""
    if size <= bytes_left + slack:
        return int(batch.num_rows)
    if bytes_left <= slack:
        return 0
    return int(batch.num_rows * bytes_left // size)
