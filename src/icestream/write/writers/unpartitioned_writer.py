"""Writes the files of an unpartitioned table, with rows in order of arrival."""

from __future__ import annotations

import pyarrow as pa

from icestream.errors import WriterClosedError
from icestream.memory.budget import format_bytes, over_limit
from icestream.write.new_file import NewFile
from icestream.write.parquet.rolling_writer import RollingWriter
from icestream.write.parquet.row_buffer import RowBuffer, cut
from icestream.write.writers.write_context import WriteContext

_LEAST_GROUP_BYTES = 1 << 20
_GOOD_GROUP_BYTES = 16_000_000
_PIECES_PER_GROUP = 4
_TAIL_SHARE = 8


class UnpartitionedWriter:
    """Buffers rows until they fill a row group, which is encoded while the next one fills.

    A group goes to one of several lanes, each of which fills one file at a time. The second lane
    opens when the first file is full, the third when two are, so a small load makes one file. Rows
    from a slow source go to the first free lane.

    Memory: at most `budget.limit_bytes`: the row group being filled, one being encoded per lane,
    and one more for the encoders. Bloom filters stay in memory until their file ends; files end
    early when these take an eighth of the limit. A batch larger than a quarter of a row group is
    copied piece by piece, so that it is not kept alive. The caller's own batch is not counted.

    Args:
        context: What all writers share.

    Raises:
        MemoryBudgetError: If the limit is too small for row groups of 1 MB.
    """

    def __init__(self, context: WriteContext) -> None:
        limit_bytes = context.budget.limit_bytes
        self._context = context
        self._pool = context.pool
        self._most_lanes = _lanes_within(limit_bytes, context.pool.threads)
        self._share_bytes = _group_share(limit_bytes, self._most_lanes)
        self._group_bytes = min(context.settings.row_group_bytes, self._share_bytes)
        self._lanes = [self._new_lane()]
        self._buffer = RowBuffer()
        self._buffer_lease = context.budget.force(0)
        self._ended = False
        self._closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer rows. May wait for an encoder.

        Raises:
            WriteError: If storage refused an earlier row group; the caller then aborts.
            MemoryBudgetError: If one row alone is larger than a row group may be.
        """
        self._assert_open()
        for piece in cut(batch, max(1, self._group_bytes // _PIECES_PER_GROUP)):
            self._assert_fits(piece)
            self._buffer.append(piece)
            self._buffer_lease.resize(self._buffer.bytes)
            self._hand_over()

    def close(self) -> list[NewFile]:
        """Write the buffered rows, finish all files and describe them.

        Raises:
            WriteError: If storage refuses. All files have been deleted.
        """
        self._assert_open()
        try:
            files = self._finish()
        except BaseException:
            self.abort()
            raise
        self._ended = self._closed = True
        return files

    def abort(self) -> None:
        """Drop buffered rows and delete every file. Does nothing after a successful `close`."""
        self._ended = True
        if self._closed:
            return
        self._buffer.clear()
        self._buffer_lease.release()
        self._pool.cancel()
        for lane in self._lanes:
            lane.delete()

    def _hand_over(self) -> None:
        """Submit row groups while there are enough rows and a free lane."""
        while self._buffer.rows:
            lane = self._free_lane()
            if lane is None:
                return
            wanted_bytes = min(lane.next_group_bytes(), self._group_bytes)
            enough = self._buffer.bytes >= wanted_bytes or self._must_shrink()
            if not enough and self._buffer.rows < self._context.settings.row_group_rows:
                return
            self._submit(lane, wanted_bytes)

    def _free_lane(self) -> RollingWriter | None:
        """An idle lane, or None. Waits for one if the buffer is full."""
        finished = sum(lane.finished_files for lane in self._lanes)
        if finished >= len(self._lanes) < self._most_lanes:
            self._lanes.append(self._new_lane())
        if self._buffer.bytes >= self._group_bytes or self._must_shrink():
            return self._pool.wait_idle(self._lanes)
        return next(filter(self._pool.is_idle, self._lanes), None)

    def _must_shrink(self) -> bool:
        """Whether the budget is exhausted, so that a smaller group must be written."""
        least = self._group_bytes // _PIECES_PER_GROUP
        return self._context.budget.free_bytes < 0 and self._buffer.bytes >= least

    def _submit(self, lane: RollingWriter, wanted_bytes: int) -> None:
        self._context.submit(lane, self._buffer, self._buffer_lease, wanted_bytes)

    def _finish(self) -> list[NewFile]:
        while self._buffer.rows:
            lane = self._pool.wait_idle(self._lanes)
            self._submit(lane, min(lane.next_group_bytes(), self._group_bytes))
        files: list[NewFile] = []
        for lane in self._lanes:
            self._pool.submit_close(lane, files.extend)
        self._pool.flush()
        self._buffer_lease.release()
        return sorted(files, key=lambda file: file.path)

    def _new_lane(self) -> RollingWriter:
        most_bytes = self._context.budget.limit_bytes // (_TAIL_SHARE * self._most_lanes)
        return self._context.rolling_writer(self._group_bytes, max_tail_bytes=most_bytes)

    def _assert_fits(self, piece: pa.RecordBatch) -> None:
        share = self._share_bytes
        if piece.get_total_buffer_size() > share and piece.nbytes > share:
            raise over_limit(
                f"a row of {self._context.target.table} takes {format_bytes(piece.nbytes)}",
                needed_bytes=piece.nbytes * (self._most_lanes + 2),
                limit_bytes=self._context.budget.limit_bytes,
            )

    def _assert_open(self) -> None:
        if self._ended:
            raise WriterClosedError(f"the writer of {self._context.target.table} has ended")


def _lanes_within(limit_bytes: int, threads: int) -> int:
    """The number of files to fill at once: one per thread, or fewer to keep row groups large."""
    lanes = threads
    while lanes > 1 and _group_share(limit_bytes, lanes) < _GOOD_GROUP_BYTES:
        lanes -= 1
    if _group_share(limit_bytes, lanes) < _LEAST_GROUP_BYTES:
        needed = _LEAST_GROUP_BYTES * (lanes + 2)
        raise over_limit(
            f"writing needs {format_bytes(needed)}", needed_bytes=needed, limit_bytes=limit_bytes
        )
    return lanes


def _group_share(limit_bytes: int, lanes: int) -> int:
    """Arrow bytes of a row group: one fills, one is encoded per lane, one is for the encoders."""
    return limit_bytes // (lanes + 2)
