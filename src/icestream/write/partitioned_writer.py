"""Writes rows of many partitions, in whatever order they come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from icestream.errors import WriterClosedError
from icestream.memory import MemoryBudget
from icestream.write.encode_pool import EncodePool
from icestream.write.new_file import NewFile
from icestream.write.parquet_settings import ParquetSettings
from icestream.write.partition import Partitioner
from icestream.write.partition_buffer import PartitionBuffer
from icestream.write.partition_files import PartitionFiles
from icestream.write.sort_keys import SortKeys
from icestream.write.sorted_rows import SortedRows, Span
from icestream.write.spill import Spill
from icestream.write.target import WriteTarget

_SENSIBLE_GROUP_BYTES = 4 * 2**20


class PartitionedWriter:
    """Buffers rows; when the buffer is full, each partition's rows go where they cost least.

    - Clustered so far (no partition came back after another had followed): every partition but the
      newest is complete, so it is written and its file closed.
    - Rows that make a row group of 4 MiB are written at once; their files stay open, up to 64.
      Not so where rows are to be sorted: all rows of the partition must be known first.
    - What else there is stays in the buffer if it is less than half of it, or is spilled to disk as
      a sorted run. At the end runs are merged partition by partition, so that a partition has one
      file (of up to the target size), however often its rows came.

    Memory: the limit of `budget`: a third of it for the buffer, two thirds for row groups; while
    runs are merged, the buffer's third is theirs.

    Args:
        target: The table.
        settings: How files are encoded.
        file_schema: The schema of all batches.
        partitioner: Numbers the partitions.
        budget: What all of it is on lease from.
        pool: Encodes row groups.
        keys: What the rows of each partition are sorted by; None leaves them as they come.
        spill_directory: Where runs go; None is `tempfile`'s choice (`TMPDIR`).

    Raises:
        MemoryBudgetError: If the limit is too small for row groups worth the name.
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
        keys: SortKeys | None = None,
        spill_directory: str | None = None,
    ) -> None:
        self._files = PartitionFiles(
            target,
            settings=settings,
            file_schema=file_schema,
            partitioner=partitioner,
            budget=budget,
            pool=pool,
            sorted=keys is not None,
        )
        self._keys = keys
        self._buffer = PartitionBuffer(partitioner, budget, table=target.table)
        self._spill = Spill(spill_directory, schema=file_schema, budget=budget, keys=keys)
        self._spilled_ids: set[int] = set()  # As long as rows are clustered.
        self._sensible_bytes = min(_SENSIBLE_GROUP_BYTES, self._files.group_bytes // 2)
        self._table = target.table
        self._ended = False

    @property
    def spilled_bytes(self) -> int:
        """Bytes written to temporary files so far."""
        return self._spill.spilled_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows.

        Raises:
            InvalidDataError: If a row has no partition: a value is out of range.
            MemoryBudgetError: If one row is too large for the limit.
            WriteError: If a file or a run can't be written. Then `abort`.
            WriterClosedError: If the writer has ended.
        """
        self._assert_open()
        for piece in self._buffer.pieces(batch):
            self._buffer.append(piece)
            if self._buffer.full:
                self._make_room()

    def close(self) -> list[NewFile]:
        """Write what is left and describe all files, partitions in the order they appeared.

        Raises:
            WriteError: If a file or a run can't be written. All files have been deleted.
            WriterClosedError: If the writer has ended.
        """
        self._assert_open()
        try:
            self._write_rest()
            files = self._files.close()
        except BaseException:
            self.abort()
            raise
        self._end()
        return files

    def abort(self) -> None:
        """Delete every file; nothing happens after a successful `close`."""
        if not self._ended:
            self._files.abort()
            self._end()

    def _write_rest(self) -> None:
        if not len(self._spill):
            rows = self._buffer.take(self._keys)
            for span in rows.spans():
                self._files.finish(span.partition_id, self._pieces(rows, span))
            return
        if len(self._buffer):
            self._spill.add(self._buffer.take(self._keys))
        self._buffer.settle()
        with closing(self._spill.merged()) as merged:
            for partition_id, batches in merged:
                self._files.finish(partition_id, batches)

    def _make_room(self) -> None:
        rows = self._buffer.take(self._keys)
        rest = []
        for span in rows.spans():
            if self._is_complete(span.partition_id):
                self._files.finish(span.partition_id, self._pieces(rows, span))
            else:
                rest.append(span)
        if self._keys is None:
            rest = self._write_groups(rows, rest)
        kept = rows.only(rest)
        if kept.bytes > self._buffer.limit_bytes / 2:
            self._spill.add(kept)
            if self._buffer.clustered:
                self._spilled_ids.update(span.partition_id for span in rest)
        else:
            self._buffer.put_back(kept)
        self._buffer.settle()

    def _is_complete(self, partition_id: int) -> bool:
        """Whether all rows of a partition that are not written are here, as far as one can tell."""
        return (
            self._buffer.clustered
            and partition_id != self._buffer.newest_id
            and partition_id not in self._spilled_ids
        )

    def _write_groups(self, rows: SortedRows, spans: list[Span]) -> list[Span]:
        """Write the partitions whose rows make a sensible row group; return the others."""
        rest = []
        for span in sorted(spans, key=len, reverse=True):
            room = self._files.has_room(span.partition_id)
            if room and len(span) * rows.row_bytes >= self._sensible_bytes:
                self._files.write(span.partition_id, self._pieces(rows, span))
            else:
                rest.append(span)
        return sorted(rest, key=lambda span: span.partition_id)

    def _pieces(self, rows: SortedRows, span: Span) -> Iterator[pa.RecordBatch]:
        return rows.pieces(span, self._files.group_bytes // 2)

    def _end(self) -> None:
        self._ended = True
        self._buffer.clear()
        self._spill.close()

    def _assert_open(self) -> None:
        if self._ended:
            raise WriterClosedError(f"the writer for {self._table} has ended: it takes no rows")
