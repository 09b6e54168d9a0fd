"""Rows of many partitions that wait in memory, and what their order says of the stream."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

from icestream.errors import MemoryBudgetError
from icestream.memory import MemoryBudget, format_bytes
from icestream.write.partition import Partitioner
from icestream.write.row_buffer import RowBuffer, cut
from icestream.write.run_file import with_ids
from icestream.write.sort_keys import SortKeys
from icestream.write.sorted_rows import SortedRows

# Columns are combined to be sorted, and Arrow's strings hold 2 GB: stay well below.
_MOST_BYTES = 512 * 2**20
_PIECES = 8
_CROWDED_SHARE = 4
_PINNED_TIMES = 1.25
_SORTING_ROW_BYTES = 24  # What sorting takes beside the rows: ids, keys, order.


class PartitionBuffer:
    """Rows in the order they came, each with the number of its partition.

    They are sorted once, when the buffer is full, instead of being split batch by batch: with
    10,000 partitions a batch has a dozen rows of each.

    Memory: `limit_bytes` and one piece more, on lease; what sorting will take is part of it.

    Args:
        partitioner: Numbers the partitions.
        budget: What the rows are on lease from.
        table: The table's name, for messages.

    Attributes:
        limit_bytes: What it holds until it is `full`: a third of the budget, 512 MiB at most.
        clustered: Whether, so far, no partition came back after another one had followed it.
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
        """What the rows keep alive, and what it will take to sort them."""
        return self._rows.bytes + self._rows.rows * _SORTING_ROW_BYTES

    @property
    def full(self) -> bool:
        """Whether it is time to take the rows: sooner if others hold all of the budget."""
        crowded = self._budget.free_bytes < 0
        return self.bytes >= (self.limit_bytes // _CROWDED_SHARE if crowded else self.limit_bytes)

    def pieces(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """A batch in pieces of which some fit in the buffer."""
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
            batch = pa.concat_batches([batch])  # A copy: what it was cut from can go.
        ids = self._partitioner.ids(batch).astype(np.int32)
        if self.clustered:
            # Partitions are numbered as they appear, so one that comes back has a lower number.
            self.clustered = bool(ids[0] >= self.newest_id and np.all(ids[1:] >= ids[:-1]))
            self.newest_id = int(ids[-1])
        self._keep(with_ids(batch, ids))

    def put_back(self, rows: SortedRows) -> None:
        """Keep some of the rows that were taken."""
        step = max(1, int(self.limit_bytes / _PIECES / max(1.0, rows.row_bytes)))
        for start in range(0, len(rows), step):
            ids = rows.ids[start : start + step]
            for batch in rows.rows(start, min(len(rows), start + step)):
                self._keep(with_ids(batch, ids[: batch.num_rows]))
                ids = ids[batch.num_rows :]

    def take(self, keys: SortKeys | None = None) -> SortedRows:
        """Remove all rows, sorted by partition. They stay on lease until `settle`."""
        batches = self._rows.take(sys.maxsize)  # Bytes may grow when small batches are joined.
        assert not len(self)
        return SortedRows(batches, keys)

    def settle(self) -> None:
        """Give back what was on lease for rows that were taken."""
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
            needed = 3 * piece.nbytes
            raise MemoryBudgetError(
                f"a row of {self._table} takes {format_bytes(piece.nbytes)}, too much for a memory "
                f"limit of {format_bytes(self._budget.limit_bytes)}: raise memory to "
                f"{format_bytes(needed)} or more",
                needed_bytes=needed,
                limit_bytes=self._budget.limit_bytes,
            )
