"""Files of an unpartitioned table, rows in the order they come."""

from __future__ import annotations

import pyarrow as pa

from icestream.errors import MemoryBudgetError, WriterClosedError
from icestream.memory import MemoryBudget, format_bytes
from icestream.write.data_paths import DataPaths
from icestream.write.encode_pool import EncodePool
from icestream.write.new_file import NewFile
from icestream.write.parquet_settings import ParquetSettings
from icestream.write.parquet_writer import ParquetFileWriter
from icestream.write.rolling_writer import RollingWriter
from icestream.write.row_buffer import RowBuffer, cut, held_bytes
from icestream.write.target import WriteTarget

_LEAST_GROUP_BYTES = 1 << 20
_GOOD_GROUP_BYTES = 16_000_000
_PIECES_PER_GROUP = 4
_TAIL_SHARE = 8


class UnpartitionedWriter:
    """Buffers rows until they make a row group, and has it encoded while the next one fills.

    A group goes to one of several lanes, each of which fills one file at a time. The second lane
    opens when the first file is full, the third when two are, so that a small load makes one file;
    what a slow source delivers goes to the first lane that is free.

    Memory: `budget.limit_bytes` at most. That is one row group that fills, one per lane that is
    encoded, and one more for what the encoders take. A file ends early where the Bloom filters of
    its row groups, which stay in memory until then, take an eighth of the limit. A batch larger
    than a quarter of a row group is copied piece by piece, so that it is not kept alive; the
    caller's own is not counted.

    Args:
        target: The table.
        settings: How files are encoded.
        file_schema: The schema of all batches, with field ids.
        budget: What everything that is held here is on lease from.
        pool: The threads that encode; the caller closes it.

    Raises:
        MemoryBudgetError: If the limit is too small for row groups of 1 MB.
    """

    def __init__(
        self,
        target: WriteTarget,
        *,
        settings: ParquetSettings,
        file_schema: pa.Schema,
        budget: MemoryBudget,
        pool: EncodePool,
    ) -> None:
        self._target = target
        self._settings = settings
        self._file_schema = file_schema
        self._budget = budget
        self._pool = pool
        self._paths = DataPaths(target)
        self._most_lanes = _lanes_within(budget.limit_bytes, pool.threads)
        self._group_bytes = min(
            settings.row_group_bytes, _group_share(budget.limit_bytes, self._most_lanes)
        )
        self._lanes = [self._new_lane()]
        self._buffer = RowBuffer()
        self._buffer_lease = budget.force(0)
        self._ended = False
        self._closed = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows; returns when they are buffered, which may mean waiting for an encoder.

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
        """Write what is buffered, finish all files and describe them.

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
        """Drop what is buffered and delete every file; nothing happens after a `close`."""
        self._ended = True
        if self._closed:
            return
        self._buffer.clear()
        self._buffer_lease.release()
        self._pool.cancel()
        for lane in self._lanes:
            lane.delete()

    def _hand_over(self) -> None:
        """Submit row groups as long as there are rows for one and a lane to take it."""
        while self._buffer.rows:
            lane = self._free_lane()
            if lane is None:
                return
            wanted_bytes = min(lane.next_group_bytes(), self._group_bytes)
            enough = self._buffer.bytes >= wanted_bytes or self._must_shrink()
            if not enough and self._buffer.rows < self._settings.row_group_rows:
                return
            self._submit(lane, wanted_bytes)

    def _free_lane(self) -> RollingWriter | None:
        """A lane with nothing to do; waits for one if the buffer is full."""
        if len(self._lanes) < self._most_lanes and self._wants_lane():
            self._lanes.append(self._new_lane())
        if self._buffer.bytes >= self._group_bytes or self._must_shrink():
            return self._pool.wait_idle(self._lanes)
        return next(filter(self._pool.is_idle, self._lanes), None)

    def _wants_lane(self) -> bool:
        return sum(lane.finished_files for lane in self._lanes) >= len(self._lanes)

    def _must_shrink(self) -> bool:
        """Whether others hold so much of the budget that a smaller group has to do."""
        least = self._group_bytes // _PIECES_PER_GROUP
        return self._budget.free_bytes < 0 and self._buffer.bytes >= least

    def _submit(self, lane: RollingWriter, wanted_bytes: int) -> None:
        group = self._buffer.take(wanted_bytes, self._settings.row_group_rows)
        self._buffer_lease.resize(self._buffer.bytes)
        held = self._budget.force(held_bytes(group))
        self._pool.submit(lane, group, held)

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
        return RollingWriter(
            self._open_file,
            target_file_bytes=self._settings.target_file_bytes,
            row_group_bytes=self._group_bytes,
            max_tail_bytes=self._budget.limit_bytes // (_TAIL_SHARE * self._most_lanes),
        )

    def _open_file(self) -> ParquetFileWriter:
        return ParquetFileWriter(
            self._paths.new(),
            target=self._target,
            settings=self._settings,
            file_schema=self._file_schema,
            spec_id=self._target.spec.spec_id,
        )

    def _assert_fits(self, piece: pa.RecordBatch) -> None:
        share = _group_share(self._budget.limit_bytes, self._most_lanes)
        if piece.get_total_buffer_size() > share and piece.nbytes > share:
            needed = piece.nbytes * (self._most_lanes + 2)
            raise MemoryBudgetError(
                f"a row of {self._target.table} takes {format_bytes(piece.nbytes)}, too much for "
                f"a memory limit of {format_bytes(self._budget.limit_bytes)}: "
                f"raise memory to {format_bytes(needed)} or more",
                needed_bytes=needed,
                limit_bytes=self._budget.limit_bytes,
            )

    def _assert_open(self) -> None:
        if self._ended:
            raise WriterClosedError(f"the writer of {self._target.table} has ended")


def _lanes_within(limit_bytes: int, threads: int) -> int:
    """How many files to fill at once: one per thread, as long as row groups stay good."""
    lanes = threads
    while lanes > 1 and _group_share(limit_bytes, lanes) < _GOOD_GROUP_BYTES:
        lanes -= 1
    if _group_share(limit_bytes, lanes) < _LEAST_GROUP_BYTES:
        needed = _LEAST_GROUP_BYTES * (lanes + 2)
        raise MemoryBudgetError(
            f"a memory limit of {format_bytes(limit_bytes)} is too small to write with: "
            f"raise memory to {format_bytes(needed)} or more",
            needed_bytes=needed,
            limit_bytes=limit_bytes,
        )
    return lanes


def _group_share(limit_bytes: int, lanes: int) -> int:
    """Arrow bytes of a row group: one fills, one is encoded per lane, one is for the encoders."""
    return limit_bytes // (lanes + 2)
