"""The files of many partitions, written side by side."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from icestream.credentials import renewing
from icestream.errors import MemoryBudgetError
from icestream.memory import Lease, MemoryBudget, format_bytes
from icestream.write.data_paths import DataPaths
from icestream.write.encode_pool import EncodePool
from icestream.write.new_file import NewFile
from icestream.write.parquet_settings import ParquetSettings
from icestream.write.parquet_writer import ParquetFileWriter
from icestream.write.partition import Partitioner
from icestream.write.rolling_writer import RollingWriter
from icestream.write.row_buffer import RowBuffer, held_bytes
from icestream.write.target import WriteTarget

_log = logging.getLogger(__name__)

# What an open writer keeps between row groups, measured with 5 and with 400 columns.
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
    """Makes row groups of the rows of each partition and has them encoded.

    Memory: two thirds of the limit for row groups: one that fills, those that wait or are encoded
    (one more than the pool has threads); and for each partition left open 160 kB and 2 kB a column,
    an eighth of the limit in all. All of it is on lease.

    Args:
        target: The table.
        settings: How files are encoded.
        file_schema: The schema of all batches.
        partitioner: Knows the values and the path of each partition.
        budget: What row groups are on lease from.
        pool: Encodes them.
        sorted: Whether the rows of each partition come in the table's sort order.

    Raises:
        MemoryBudgetError: If the limit is too small for row groups of 256 KiB.
    """

    def __init__(
        self,
        target: WriteTarget,
        *,
        settings: ParquetSettings,
        file_schema: pa.Schema,
        partitioner: Partitioner,
        budget: MemoryBudget,
        pool: EncodePool,
        sorted: bool = False,
    ) -> None:
        self.group_bytes = min(settings.row_group_bytes, _group_share(budget, pool.threads))
        self._target = target
        self._settings = settings
        self._file_schema = file_schema
        self._partitioner = partitioner
        self._budget = budget
        self._pool = pool
        self._sorted = sorted
        self._paths = DataPaths(target)
        self._open: dict[int, _Open] = {}
        self._closing: set[RollingWriter] = set()
        self._finished: list[tuple[int, list[NewFile]]] = []
        self._open_bytes = _OPEN_WRITER_BYTES + _OPEN_COLUMN_BYTES * len(settings.column_ids)
        share = budget.limit_bytes // _OPEN_SHARE // self._open_bytes
        self._most_open = min(_MOST_OPEN, max(_LEAST_OPEN, share))

    def has_room(self, partition_id: int) -> bool:
        """Whether rows of a partition may be written while more of them are expected."""
        return partition_id in self._open or len(self._open) < self._most_open

    def write(self, partition_id: int, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows of a partition, as one or more whole row groups; more may come.

        Raises:
            Exception: The first error of any partition's writing so far, as it was.
        """
        if partition_id not in self._open:
            lease = self._budget.force(self._open_bytes)
            self._open[partition_id] = _Open(self._new_writer(partition_id), lease)
        writer = self._open[partition_id].writer
        buffer, lease = RowBuffer(), self._budget.force(0)
        wanted = self.group_bytes
        try:
            for batch in batches:
                buffer.append(batch)
                lease.resize(buffer.bytes)
                # Rows are gathered while the group before is encoded; its size is known after.
                while buffer.bytes >= wanted or buffer.rows >= self._settings.row_group_rows:
                    wanted = self._wanted_bytes(writer)
                    if buffer.bytes < wanted and buffer.rows < self._settings.row_group_rows:
                        break
                    self._submit(writer, buffer, wanted)
                    lease.resize(buffer.bytes)
            while buffer.rows:
                wanted = self._wanted_bytes(writer)
                groups = -(-buffer.bytes // wanted)
                self._submit(writer, buffer, -(-buffer.bytes // groups))
                lease.resize(buffer.bytes)
        finally:
            lease.release()

    def finish(self, partition_id: int, batches: Iterable[pa.RecordBatch] = ()) -> None:
        """Write the last rows of a partition and close its file.

        Rows that come after all go to another file.

        Raises:
            Exception: The first error of any partition's writing so far, as it was.
        """
        self.write(partition_id, batches)
        opened = self._open.pop(partition_id)
        self._closing.add(opened.writer)
        opened.lease.release()

        def closed(files: list[NewFile]) -> None:
            self._finished.append((partition_id, files))
            self._closing.discard(opened.writer)

        self._pool.submit_close(opened.writer, closed)

    def close(self) -> list[NewFile]:
        """Finish every file and describe them all, partitions in the order they were first seen.

        Raises:
            Exception: The first error of any partition's writing, as it was.
        """
        for partition_id in sorted(self._open):
            self.finish(partition_id)
        self._pool.flush()
        self._finished.sort(key=lambda finished: finished[0])
        return [file for _, files in self._finished for file in files]

    def abort(self) -> None:
        """Delete every file. Failures are only logged."""
        self._pool.cancel()
        for opened in self._open.values():
            opened.writer.abort()
            opened.lease.release()
        for writer in self._closing:
            writer.abort()
        for _, files in self._finished:
            for file in files:
                self._delete(file.path)
        self._open.clear()
        self._closing.clear()
        self._finished.clear()

    def _new_writer(self, partition_id: int) -> RollingWriter:
        values = self._partitioner.key(partition_id)
        path = self._partitioner.path(partition_id) if values else None

        def open_file() -> ParquetFileWriter:
            return ParquetFileWriter(
                self._paths.new(path, values),
                target=self._target,
                settings=self._settings,
                file_schema=self._file_schema,
                spec_id=self._target.spec.spec_id,
                partition=values,
                sorted=self._sorted,
            )

        return RollingWriter(
            open_file,
            target_file_bytes=self._settings.target_file_bytes,
            row_group_bytes=self.group_bytes,
        )

    def _wanted_bytes(self, writer: RollingWriter) -> int:
        self._pool.wait_idle([writer])
        return writer.next_group_bytes()

    def _submit(self, writer: RollingWriter, buffer: RowBuffer, wanted_bytes: int) -> None:
        batches = buffer.take(wanted_bytes, self._settings.row_group_rows)
        self._pool.submit(writer, batches, self._budget.force(held_bytes(batches)))

    def _delete(self, path: str) -> None:
        try:
            io = self._target.io
            renewing(io, lambda: io.delete(path), path=path)
        except Exception as error:
            _log.debug("could not delete %s: %s", path, error)


def _group_share(budget: MemoryBudget, threads: int) -> int:
    """Arrow bytes of a row group, so that all that live at once take two thirds of the limit."""
    groups = threads + 2
    share = budget.limit_bytes * 2 // 3 // groups
    if share < _LEAST_GROUP_BYTES:
        needed = -(-_LEAST_GROUP_BYTES * groups * 3 // 2)
        raise MemoryBudgetError(
            f"a memory limit of {format_bytes(budget.limit_bytes)} is too small to write "
            f"partitions with: raise memory to {format_bytes(needed)} or more",
            needed_bytes=needed,
            limit_bytes=budget.limit_bytes,
        )
    return share
