"""Writes the files of many partitions concurrently."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

import pyarrow as pa

from icestream.memory.budget import Lease, format_bytes, over_limit
from icestream.write.new_file import NewFile
from icestream.write.parquet.rolling_writer import RollingWriter
from icestream.write.parquet.row_buffer import RowBuffer
from icestream.write.partition.partitioner import Partitioner
from icestream.write.target import delete_file
from icestream.write.writers.write_context import WriteContext

# Memory of an open writer between row groups, measured with 5 and with 400 columns.
_OPEN_WRITER_BYTES = 160_000
_OPEN_COLUMN_BYTES = 2_000
_MOST_OPEN = 64
_LEAST_OPEN = 2
_OPEN_SHARE = 8
_LEAST_GROUP_BYTES = 256 * 2**10


@dataclass(slots=True)
class _Open:
    """A partition whose last file is not finished."""

    writer: RollingWriter
    lease: Lease


class PartitionFiles:
    """Forms row groups from the rows of each partition and submits them for encoding.

    If the table has a sort order, the rows of each partition must come in it.

    Memory: two thirds of the limit for row groups: the one being filled, and those that wait or are
    being encoded (one more than the pool has threads). Each open partition takes 160 kB and 2 kB a
    column, an eighth of the limit in all. All of it is on lease.

    Args:
        context: What all writers share.
        partitioner: Knows the values and the path of each partition.

    Raises:
        MemoryBudgetError: If the limit is too small for row groups of 256 KiB.
    """

    def __init__(self, context: WriteContext, partitioner: Partitioner) -> None:
        settings, limit_bytes = context.settings, context.budget.limit_bytes
        share = _group_share(limit_bytes, context.pool.threads)
        self.group_bytes = min(settings.row_group_bytes, share)
        self._context = context
        self._partitioner = partitioner
        self._open: dict[int, _Open] = {}
        self._closing: set[RollingWriter] = set()
        self._finished: list[tuple[int, int, list[NewFile]]] = []  # partition, turn, files
        self._turns = count()
        self._open_bytes = _OPEN_WRITER_BYTES + _OPEN_COLUMN_BYTES * len(settings.column_ids)
        within_share = limit_bytes // _OPEN_SHARE // self._open_bytes
        self._most_open = min(_MOST_OPEN, max(_LEAST_OPEN, within_share))

    def has_room(self, partition_id: int) -> bool:
        """Whether a partition's file is open or may be opened and left open."""
        return partition_id in self._open or len(self._open) < self._most_open

    def write(self, partition_id: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows of a partition as one or more whole row groups. More rows may follow.

        Raises:
            Exception: The first error of any partition's writing so far, as it was.
        """
        context, most_rows = self._context, self._context.settings.row_group_rows
        if partition_id not in self._open:
            lease = context.budget.force(self._open_bytes)
            self._open[partition_id] = _Open(self._new_writer(partition_id), lease)
        writer = self._open[partition_id].writer
        buffer, lease = RowBuffer(), context.budget.force(0)
        wanted = self.group_bytes
        try:
            for batch in batches:
                buffer.append(batch)
                lease.resize(buffer.bytes)
                # The size of the next group is known only once the previous group is encoded.
                while buffer.bytes >= wanted or buffer.rows >= most_rows:
                    wanted = self._wanted_bytes(writer)
                    if buffer.bytes < wanted and buffer.rows < most_rows:
                        break
                    context.submit(writer, buffer, lease, wanted)
            while buffer.rows:
                groups = -(-buffer.bytes // self._wanted_bytes(writer))
                context.submit(writer, buffer, lease, -(-buffer.bytes // groups))
        finally:
            lease.release()

    def finish(self, partition_id: int, batches: Iterable[pa.RecordBatch] = ()) -> None:
        """Write the last rows of a partition and close its file.

        Later rows of the partition go to another file.

        Raises:
            Exception: The first error of any partition's writing so far, as it was.
        """
        self.write(partition_id, batches)
        opened = self._open.pop(partition_id)
        self._closing.add(opened.writer)
        opened.lease.release()
        turn = next(self._turns)

        def closed(files: list[NewFile]) -> None:
            self._finished.append((partition_id, turn, files))
            self._closing.discard(opened.writer)

        self._context.pool.submit_close(opened.writer, closed)

    def close(self) -> list[NewFile]:
        """Finish every file and describe them all.

        Returns:
            The files in order of each partition's first appearance, then of their rows.

        Raises:
            Exception: The first error of any partition's writing, as it was.
        """
        for partition_id in sorted(self._open):
            self.finish(partition_id)
        self._context.pool.flush()
        self._finished.sort(key=lambda finished: finished[:2])
        return [file for _, _, files in self._finished for file in files]

    def abort(self) -> None:
        """Delete every file. Failures are only logged."""
        self._context.pool.cancel()
        for opened in self._open.values():
            opened.writer.abort()
            opened.lease.release()
        for writer in self._closing:
            writer.abort()
        for _, _, files in self._finished:
            for file in files:
                delete_file(self._context.target.io, file.path)
        self._open.clear()
        self._closing.clear()
        self._finished.clear()

    def _new_writer(self, partition_id: int) -> RollingWriter:
        values = self._partitioner.key(partition_id)
        return self._context.rolling_writer(
            self.group_bytes,
            partition_path=self._partitioner.path(partition_id) if values else None,
            partition=values,
            sorted=bool(self._context.target.sort_order.fields),
        )

    def _wanted_bytes(self, writer: RollingWriter) -> int:
        self._context.pool.wait_idle([writer])
        return writer.next_group_bytes()


def _group_share(limit_bytes: int, threads: int) -> int:
    """Arrow bytes of a row group: all groups in memory together take two thirds of the limit."""
    groups = threads + 2
    share = limit_bytes * 2 // 3 // groups
    if share < _LEAST_GROUP_BYTES:
        needed = -(-_LEAST_GROUP_BYTES * groups * 3 // 2)
        raise over_limit(
            f"writing partitions needs {format_bytes(needed)}",
            needed_bytes=needed,
            limit_bytes=limit_bytes,
        )
    return share
