"""Read ahead on object stores, within the budget.

A request to an object store takes tens of milliseconds, whatever its size. A decoder that requests
64 kB at a time would mostly wait. The footer contains the byte ranges that a unit needs, so I/O
threads fetch them in large blocks before the decoder needs them:

- Row groups that fit the window are fetched as a whole, with neighbouring column chunks in one
  request. The next row group is fetched while the current one is decoded.
- For larger row groups, each column is fetched in blocks, one block ahead of the decoder.

The decoder reads the columns of a step one after the other. `PrefetchingReader` ends each step at
the end of a row group. Otherwise the first column would read on into the next row groups, whose
blocks would be dropped and fetched again for the next column.

Memory: at most `window_bytes`, leased together with the fixed bytes of the stream.
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

from icestream.read.decode.pages import chunk_range

_BLOCK_BYTES = 8 << 20
_SMALLEST_BLOCK_BYTES = 64 << 10
_HOLE_BYTES = 256 << 10
_THREADS = 16
# The previous row group (a column may still read it), the current one, and the next.
_GROUPS_HELD = 3


class Reader(Protocol):
    """Decodes a unit step by step: `ParquetReader`, `OrcReader` or `CountReader`."""

    def step(self, rows: int, use_threads: bool) -> pa.RecordBatch | None: ...

    def close(self) -> None: ...


class Fetcher:
    """The I/O threads of one scan, started on first use."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="icestream-fetch")

    def submit(self, handle: pa.NativeFile, offset: int, length: int) -> Future[pa.Buffer]:
        """Read a range in the background."""
        return self._pool.submit(_read_range, handle, offset, length)

    def close(self) -> None:
        """Cancel reads that have not started, wait for the others, and end the threads."""
        self._pool.shutdown(cancel_futures=True)


def _read_range(handle: pa.NativeFile, offset: int, length: int) -> pa.Buffer:
    """Read into Arrow's memory, because the C library of each thread would keep Python bytes."""
    return handle.get_stream(offset, length).read_buffer(length)


@dataclass(slots=True)
class _Block:
    start: int
    end: int
    lane: int
    data: Future[pa.Buffer] | None = None


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """The blocks that a unit needs, in file order, and how many bytes of them to hold.

    Attributes:
        blocks: Start, end and lane of each block. A lane is a row group or a column chunk, and is
            read from its first block to its last.
        window_bytes: Maximum number of bytes held.
        columns: Number of lanes in a row group, if a lane is a column chunk. None if a lane is a
            whole row group.
    """

    blocks: tuple[tuple[int, int, int], ...]
    window_bytes: int
    columns: int | None


def plan_fetches(
    metadata: pq.FileMetaData, row_groups: tuple[int, ...], leaves: list[int], room_bytes: int
) -> FetchPlan:
    """Cut the byte ranges of the column chunks into blocks."""
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
    """Join ranges with small holes, because a hole costs less than another request."""
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
    """A file-like object for `pa.PythonFile` that reads from blocks that were fetched ahead.

    Several threads may read. Arrow seeks and reads in one call, so each thread has its own
    position.
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
        """Does nothing. PyArrow requires it."""

    def _some(self, at: int, end: int) -> pa.Buffer:
        """The bytes from `at`, at most to the end of their block."""
        index = bisect_right(self._starts, at) - 1
        block = self._blocks[index] if index >= 0 else None
        if block is None or at >= block.end:
            following = self._starts[index + 1] if index + 1 < len(self._starts) else end
            return _read_range(self._handle, at, min(end, following) - at)
        with self._lock:
            future = self._touch(block)
        data = future.result()
        first, last = at - block.start, min(end, block.end) - block.start
        if data.size < last:
            raise OSError(f"the object ended early: {data.size} of {block.end - block.start} bytes")
        return data.slice(first, last - first)

    def _touch(self, block: _Block) -> Future[pa.Buffer]:
        """The data of a block. Starts to fetch the following blocks, and drops earlier ones."""
        if self.closed:
            raise OSError("the file is closed")
        if self._plan.columns is not None:
            lane = self._lanes[block.lane]
            position = lane.index(block)
            # This column no longer needs its earlier blocks, in this and the previous row group.
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
        """Start to fetch the first row group, or the first block of each column."""
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
    """A reader whose steps end with the row group, and which drops fetched blocks when it closes.

    Args:
        reader: Decodes from the file.
        file: The file with the fetched blocks.
        group_rows: Number of rows in each row group.
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
        """Close the reader, and drop the blocks."""
        self._reader.close()
        self._file.close()
