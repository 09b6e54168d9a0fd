"""Writes the rows of partitioned or sorted tables, in any order of arrival."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa

from icestream.errors import WriterClosedError
from icestream.write.new_file import NewFile
from icestream.write.partition.partitioner import Partitioner
from icestream.write.spill.sort_keys import SortKeys
from icestream.write.spill.sorted_rows import SortedRows, Span
from icestream.write.spill.spill import Spill
from icestream.write.writers.partition_buffer import PartitionBuffer
from icestream.write.writers.partition_files import PartitionFiles
from icestream.write.writers.write_context import WriteContext

_SENSIBLE_GROUP_BYTES = 4 * 2**20


class PartitionedWriter:
    """Buffers rows. When the buffer is full, each partition's rows are written, kept or spilled.

    - As long as rows are clustered by partition, every partition but the newest is complete: it is
      written, and its file is closed.
    - Rows that fill a row group of 4 MiB are written at once, and up to 64 files stay open. This
      does not apply to sorted tables, as all rows of a partition must be known first.
    - Other rows stay in the buffer if they take less than half of it. Otherwise they are spilled to
      disk as a sorted run. At the end, runs are merged partition by partition, so that a partition
      has one file (of up to the target size), however scattered its rows are.

    If the table has a sort order, all rows of each partition are sorted by it, even if they do not
    fit in memory. A partition's files follow one another in that order, and each has its
    `sort_order_id`. The rows of an unpartitioned table are one partition.

    Memory: the limit of `budget`: a third for the buffer and two thirds for row groups. While runs
    are merged, they use the buffer's third.

    Args:
        context: What all writers share.
        partitioner: Numbers the partitions.
        spill_directory: The directory of runs; None for `tempfile`'s default (`TMPDIR`).

    Raises:
        MemoryBudgetError: If the limit is too small for row groups of 256 KiB.
        UnsupportedFeatureError: If the sort order uses a column inside a list or map.
    """

    def __init__(
        self,
        context: WriteContext,
        partitioner: Partitioner,
        *,
        spill_directory: str | None = None,
    ) -> None:
        target, budget, schema = context.target, context.budget, context.file_schema
        order = target.sort_order
        self._keys = SortKeys(order, target.schema, schema) if order.fields else None
        self._files = PartitionFiles(context, partitioner)
        self._buffer = PartitionBuffer(partitioner, budget, table=target.table)
        self._spill = Spill(spill_directory, schema=schema, budget=budget, keys=self._keys)
        self._spilled_ids: set[int] = set()  # Kept only while rows are clustered.
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
        """Write the remaining rows and describe all files, in order of first appearance.

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
        """Delete every file. Does nothing after a successful `close`."""
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
        """Whether the buffer seems to hold all unwritten rows of a partition."""
        return (
            self._buffer.clustered
            and partition_id != self._buffer.newest_id
            and partition_id not in self._spilled_ids
        )

    def _write_groups(self, rows: SortedRows, spans: list[Span]) -> list[Span]:
        """Write the partitions whose rows fill a sensible row group. Returns the others."""
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
