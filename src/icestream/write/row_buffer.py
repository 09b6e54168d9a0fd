"""Rows that wait until they make a row group."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

_MERGED_AT_ONCE = 16
_SMALL_COLUMN_BYTES = 8 << 10
_PINNED_TIMES = 1.5
_SLACK = 32
_FEW_ROWS = 64
_FEW_ROWS_BYTES = 1 << 20


class RowBuffer:
    """Batches in the order they came, cut to the size that is asked for.

    Small batches are merged, sixteen at a time and those again, so that a million batches of one
    row are as few objects as they deserve and each row is copied a few times only. A slice that
    keeps a much larger batch alive is copied.

    Memory: `bytes` counts every buffer that the batches keep alive, half more than their rows take
    at most.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.rows = 0
        self._kept: deque[tuple[pa.RecordBatch, int]] = deque()
        # Small batches not merged yet, oldest first; a level's are merges of the level after it.
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
        """Remove rows from the front: about `max_bytes` of them, `max_rows` at most.

        A batch that reaches over the end is cut; one that does so by a little is left whole, or
        left for the next time: the bytes may differ from `max_bytes` by a thirty-second part.
        At least one row is given if there is one.
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
                # Levels above hold older rows, and fewer than it takes to be worth merging.
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
    """All rows as one batch, made column by column so that no second copy of all is held.

    Args:
        batches: One at least; the list is emptied.
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
    """Bytes that these batches keep alive; buffers that two of them share count twice."""
    return sum(batch.get_total_buffer_size() for batch in batches)


def cut(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `max_bytes` each, or of one row.

    Slices are cut again where the bytes are not spread evenly over the rows.
    """
    waiting = [batch]
    while waiting:
        piece = waiting.pop()
        # What the whole buffers take is an upper bound, and much quicker to find.
        if piece.num_rows <= 1 or piece.get_total_buffer_size() <= max_bytes:
            yield piece
            continue
        count = -(-piece.nbytes // max_bytes)
        if count <= 1:
            yield piece
            continue
        rows = max(1, piece.num_rows // count)
        starts = range(0, piece.num_rows, rows)
        waiting.extend(piece.slice(start, rows) for start in reversed(starts))


def _unpinned(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """The batch, copied if it keeps much more alive than its rows, and the bytes it keeps."""
    size = batch.get_total_buffer_size()
    if size <= _small_bytes(batch):
        return batch, size
    # To copy a few rows is quicker than to find what they take.
    few = batch.num_rows <= _FEW_ROWS and size <= _FEW_ROWS_BYTES
    if few or size > _PINNED_TIMES * batch.nbytes:
        batch = pa.concat_batches([batch])
        size = batch.get_total_buffer_size()
    return batch, size


def _small_bytes(batch: pa.RecordBatch) -> int:
    return int(batch.num_columns * _SMALL_COLUMN_BYTES)


def _rows_within(batch: pa.RecordBatch, size: int, bytes_left: int, slack: int) -> int:
    """How many rows of the batch to take, given the bytes that are left to take."""
    if size <= bytes_left + slack:
        return int(batch.num_rows)
    if bytes_left <= slack:
        return 0
    return int(batch.num_rows * bytes_left // size)
