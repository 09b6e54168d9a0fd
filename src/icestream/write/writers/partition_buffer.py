"""Buffers rows of many partitions, and detects whether they are clustered by partition."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

from icestream.memory.budget import MemoryBudget, format_bytes, over_limit
from icestream.write.parquet.row_buffer import RowBuffer, cut
from icestream.write.partition.partitioner import Partitioner
from icestream.write.spill.run_file import with_ids
from icestream.write.spill.sort_keys import SortKeys
from icestream.write.spill.sorted_rows import SortedRows

# Sorting combines columns, and an Arrow string array holds at most 2 GB: stay well below.
_MOST_BYTES = 512 * 2**20
_PIECES = 8
_CROWDED_SHARE = 4
_PINNED_TIMES = 1.25
_SORTING_ROW_BYTES = 24  # Memory to sort a row: ids, keys, order.


class PartitionBuffer:
    """Rows in order of arrival, each with its partition number.

    Rows are sorted once, when the buffer is full. Splitting each batch would be slow: with 10,000
    partitions, a batch has only a dozen rows of each.

    Memory: `limit_bytes` and one more piece, on lease. This includes the memory to sort the rows.

    Args:
        partitioner: Numbers the partitions.
        budget: The budget that the rows are charged to.
        table: The table's name, for messages.

    Attributes:
        limit_bytes: The size at which it is `full`: a third of the budget, at most 512 MiB.
        clustered: Whether the rows of each partition have been contiguous so far.
        newest_id: The partition of the last row if the rows are clustered.
    """

    def __init__(self, partitioner: Partitioner, budget: MemoryBudget, *, table: str) -> None:
        self.limit_bytes = min(budget.limit_bytes // 3, _MOST_BYTES)
        self.clustered = True
        self.newest_id = 0
        self._partitioner = partitioner
        self._budget = budget
        self._table = table
        self._rows = RowBuffer()
        self._lease = budget.force(0)

    def __len__(self) -> int:
        return self._rows.rows

    @property
    def bytes(self) -> int:
        """The memory that the rows keep alive, plus the memory to sort them."""
        return self._rows.bytes + self._rows.rows * _SORTING_ROW_BYTES

    @property
    def full(self) -> bool:
        """Whether to take the rows now. The limit is lower while the budget is exhausted."""
        crowded = self._budget.free_bytes < 0
        return self.bytes >= (self.limit_bytes // _CROWDED_SHARE if crowded else self.limit_bytes)

    def pieces(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Split a batch into pieces that are small compared to the buffer."""
        return list(cut(batch, max(1, self.limit_bytes // _PIECES)))

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            InvalidDataError: If a row has no partition: a value is out of range.
            MemoryBudgetError: If a row alone is larger than the buffer.
        """
        if not batch.num_rows:
            return
        self._assert_fits(batch)
        if batch.get_total_buffer_size() > _PINNED_TIMES * batch.nbytes:
            batch = pa.concat_batches([batch])  # Copy, so that its parent can be freed.
        ids = self._partitioner.ids(batch).astype(np.int32)
        if self.clustered:
            # Partitions are numbered as they appear, so one that reappears has a lower number.
            self.clustered = bool(ids[0] >= self.newest_id and np.all(ids[1:] >= ids[:-1]))
            self.newest_id = int(ids[-1])
        self._keep(with_ids(batch, ids))

    def put_back(self, rows: SortedRows) -> None:
        """Return some of the taken rows to the buffer."""
        for batch, ids in rows.chunks(self.limit_bytes // _PIECES):
            self._keep(with_ids(batch, ids))

    def take(self, keys: SortKeys | None = None) -> SortedRows:
        """Remove all rows, sorted by partition. They stay on lease until `settle`."""
        batches = self._rows.take(sys.maxsize)  # Bytes may grow when small batches are joined.
        assert not len(self)
        return SortedRows(batches, keys)

    def settle(self) -> None:
        """Release the lease of the rows that were taken."""
        self._lease.resize(self.bytes)

    def clear(self) -> None:
        """Drop everything."""
        self._rows.clear()
        self._lease.release()

    def _keep(self, rows: pa.RecordBatch) -> None:
        self._rows.append(rows)
        self._lease.resize(max(self.bytes, self._lease.held_bytes))

    def _assert_fits(self, piece: pa.RecordBatch) -> None:
        if piece.nbytes > self.limit_bytes:
            raise over_limit(
                f"a row of {self._table} takes {format_bytes(piece.nbytes)}",
                needed_bytes=3 * piece.nbytes,
                limit_bytes=self._budget.limit_bytes,
            )
