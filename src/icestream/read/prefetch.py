"""Reading ahead on object stores, inside the budget.

A request to an object store costs tens of milliseconds whatever its size, and a decoder that asks
for 64 kB at a time would spend its life waiting. The byte ranges that a unit is going to need are
known from the footer, so they are fetched in large blocks by I/O threads before the decoder asks:

- row groups that fit the window are fetched whole, neighbouring column chunks in one request, and
  the next row group while this one is decoded;
- of larger row groups every column is fetched in blocks, one ahead of the one being decoded.

The decoder goes through the columns of a step one after the other. A step must therefore end where
its row group does (`PrefetchingReader` sees to it): a column that ran on into the next row groups
would have them dropped and fetched again for the next column.

Memory: at most `window_bytes` are held, and charged with the stream's fixed bytes.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.read.pages import chunk_range

_BLOCK_BYTES = 8 << 20
_SMALLEST_BLOCK_BYTES = 64 << 10
_HOLE_BYTES = 256 << 10
_THREADS = 16
# The row group before (a column may still be in it), the one being decoded, and the next.
_GROUPS_HELD = 3


class Reader(Protocol):
    """What decodes a unit, a step at a time: `ParquetReader`, `OrcReader`, `CountReader`."""

    def step(self, rows: int, use_threads: bool) -> pa.RecordBatch | None: ...

    def close(self) -> None: ...


class Fetcher:
    """The I/O threads of one scan, started when first needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def submit(self, handle: pa.NativeFile, offset: int, length: int) -> Future[pa.Buffer]:
        """Read a range in the background."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="icestream-fetch")
            return self._pool.submit(_read_range, handle, offset, length)

    def close(self) -> None:
        """Cancel what has not started, wait for the rest, end the threads."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


def _read_range(handle: pa.NativeFile, offset: int, length: int) -> pa.Buffer:
    """Read into Arrow's memory: Python bytes would stay with the C library of each thread."""
    return handle.get_stream(offset, length).read_buffer(length)


@dataclass(slots=True)
class _Block:
    start: int
    end: int
    lane: int
    data: Future[pa.Buffer] | None = None


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """The blocks that a unit needs, in file order, and how much of them to hold at once.

    Attributes:
        blocks: Start, end and lane of each block. A lane is a row group, or a column chunk, and is
            read from its first block to its last.
        window_bytes: The most bytes held.
        columns: How many lanes side by side are one row group, when a lane is a column chunk; None
            when a lane is a whole row group.
    """

    blocks: tuple[tuple[int, int, int], ...]
    window_bytes: int
    columns: int | None


def plan_fetches(
    metadata: pq.FileMetaData, row_groups: tuple[int, ...], leaves: list[int], room_bytes: int
) -> FetchPlan:
    """Cut the byte ranges of the wanted column chunks into blocks."""
    groups = [[chunk_range(metadata.row_group(g).column(c)) for c in leaves] for g in row_groups]
    largest = max(sum(end - start for start, end in chunks) for chunks in groups)
    kept = min(_GROUPS_HELD, len(groups))
    if largest * kept <= room_bytes:
        blocks = [
            (start, end, lane)
            for lane, chunks in enumerate(groups)
            for extent in _extents(chunks)
            for start, end in _cut(*extent, _BLOCK_BYTES)
        ]
        total = sum(end - start for start, end, _ in blocks)
        return FetchPlan(tuple(sorted(blocks)), min(total, kept * largest), None)
    size = max(_SMALLEST_BLOCK_BYTES, min(_BLOCK_BYTES, room_bytes // (2 * max(len(leaves), 1))))
    lanes = [chunk for chunks in groups for chunk in chunks]
    blocks = [
        (start, end, lane) for lane, chunk in enumerate(lanes) for start, end in _cut(*chunk, size)
    ]
    return FetchPlan(tuple(sorted(blocks)), 2 * size * len(leaves), len(leaves))


def _extents(chunks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join neighbours: a small hole costs less than a request."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(chunks):
        if joined and start - joined[-1][1] <= _HOLE_BYTES:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _cut(start: int, end: int, size: int) -> list[tuple[int, int]]:
    return [(at, min(at + size, end)) for at in range(start, end, size)]


class PrefetchedFile:
    """A file-like object for `pa.PythonFile` that serves the decoder from blocks fetched ahead.

    Arrow seeks and reads in one call of one thread, but several threads may read: each has a
    position of its own.
    """

    def __init__(self, handle: pa.NativeFile, plan: FetchPlan, fetcher: Fetcher) -> None:
        self._handle = handle
        self._fetcher = fetcher
        self._plan = plan
        self._blocks = [_Block(*block) for block in plan.blocks]
        self._starts = [block.start for block in self._blocks]
        self._lanes: dict[int, list[_Block]] = {}
        for block in self._blocks:
            self._lanes.setdefault(block.lane, []).append(block)
        self._at = threading.local()
        self._lock = threading.Lock()
        self._size: int = handle.size()
        self.closed = False
        with self._lock:
            self._start_first()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return int(getattr(self._at, "position", 0))

    def seek(self, offset: int, whence: int = 0) -> int:
        base = {0: 0, 1: self.tell(), 2: self._size}[whence]
        self._at.position = base + offset
        return base + offset

    def read(self, length: int = -1) -> bytes | pa.Buffer:
        at = self.tell()
        end = self._size if length is None or length < 0 else min(at + length, self._size)
        parts: list[pa.Buffer] = []
        while at < end:
            part = self._some(at, end)
            if not part.size:
                break
            parts.append(part)
            at += part.size
        self._at.position = at
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        self.closed = True
        with self._lock:
            for block in self._blocks:
                if block.data is not None:
                    block.data.cancel()
                    block.data = None

    def flush(self) -> None:
        """Files that PyArrow wraps have one."""

    def _some(self, at: int, end: int) -> pa.Buffer:
        """The bytes from `at` on, to the end of their block at most."""
        found = bisect_right(self._starts, at) - 1
        block = self._blocks[found] if found >= 0 else None
        if block is None or at >= block.end:
            following = self._starts[found + 1] if found + 1 < len(self._starts) else end
            return _read_range(self._handle, at, min(end, following) - at)
        with self._lock:
            future = self._touch(block)
        data = future.result()
        first, last = at - block.start, min(end, block.end) - block.start
        if data.size < last:
            raise OSError(f"the object ended early: {data.size} of {block.end - block.start} bytes")
        return data.slice(first, last - first)

    def _touch(self, block: _Block) -> Future[pa.Buffer]:
        """The block's data; what comes after it is started, what came before it is dropped."""
        if self.closed:
            raise OSError("the file is closed")
        if self._plan.columns is not None:
            lane = self._lanes[block.lane]
            position = lane.index(block)
            # This column is done with what came before, in this row group and in the last one.
            for earlier in (
                *lane[:position],
                *self._lanes.get(block.lane - self._plan.columns, ()),
            ):
                earlier.data = None
            for wanted in lane[position : position + 2]:
                self._fetch(wanted)
        else:
            for group, blocks in self._lanes.items():
                if group < block.lane - 1:
                    for old in blocks:
                        old.data = None
                elif block.lane <= group <= block.lane + 1:
                    for wanted in blocks:
                        self._fetch(wanted)
        return self._fetch(block)

    def _start_first(self) -> None:
        """Begin before the decoder asks: the first row group, or every column's first block."""
        if self._plan.columns is not None:
            for lane in range(self._plan.columns):
                for block in self._lanes.get(lane, [])[:1]:
                    self._fetch(block)
        else:
            for block in self._lanes.get(0, ()):
                self._fetch(block)

    def _fetch(self, block: _Block) -> Future[pa.Buffer]:
        if block.data is None:
            block.data = self._fetcher.submit(self._handle, block.start, block.end - block.start)
        return block.data


class PrefetchingReader:
    """A reader whose steps end with the row group, and which takes its blocks along at the end.

    Args:
        reader: Decodes from the file.
        file: The blocks fetched ahead.
        group_rows: How many rows each row group has.
    """

    def __init__(self, reader: Reader, file: PrefetchedFile, group_rows: Sequence[int]) -> None:
        self._reader = reader
        self._file = file
        self._group_rows = iter(group_rows)
        self._rows_left = 0

    def step(self, rows: int, use_threads: bool) -> pa.RecordBatch | None:
        """Decode up to `rows` rows of the current row group; None at the end."""
        while not self._rows_left:
            following = next(self._group_rows, None)
            if following is None:
                return self._reader.step(rows, use_threads)
            self._rows_left = following
        batch = self._reader.step(min(rows, self._rows_left), use_threads)
        if batch is not None:
            self._rows_left -= batch.num_rows
        return batch

    def close(self) -> None:
        """Let go of the reader, then of the blocks."""
        self._reader.close()
        self._file.close()
