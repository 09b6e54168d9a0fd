"""Rows in numbered groups, in memory while they fit, then in sorted runs on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.memory.budget import MemoryBudget
from icestream.write.parquet.row_buffer import RowBuffer, cut
from icestream.write.spill.run_file import with_ids
from icestream.write.spill.sort_keys import SortKeys
from icestream.write.spill.sorted_rows import SortedRows
from icestream.write.spill.spill import Spill

_SORTING_ROW_BYTES = 24
_PIECES = 8
_MOST_BYTES = 512 * 2**20  # Columns are concatenated; an Arrow string array holds at most 2 GB.


class GroupedRows:
    """Takes rows, each with the number of its group, and returns them group by group.

    Memory: `most_bytes` and one piece, charged to the budget; a quarter of the budget's limit while
    rows are read back from disk.

    Args:
        budget: The budget that the rows are charged to.
        most_bytes: Maximum number of bytes held before rows go to disk.
        keys: Builds the sort keys for the rows of a group from their schema; None keeps the order
            of arrival.
    """

    def __init__(
        self,
        *,
        budget: MemoryBudget,
        most_bytes: int,
        keys: Callable[[pa.Schema], SortKeys] | None = None,
    ) -> None:
        self._most_bytes = max(1, min(most_bytes, _MOST_BYTES))
        self._budget = budget
        self._keys_of = keys
        self._keys: SortKeys | None = None
        self._rows = RowBuffer()
        self._lease = budget.force(0)
        self._spill: Spill | None = None  # None before the first row, as its schema is not known.

    @property
    def spilled_bytes(self) -> int:
        """The number of bytes written to disk."""
        return self._spill.spilled_bytes if self._spill is not None else 0

    @property
    def is_spilled(self) -> bool:
        """Whether some rows are on disk."""
        return self._spill is not None and len(self._spill) > 0

    def add(self, batch: pa.RecordBatch, groups: npt.NDArray[np.int32]) -> None:
        """Take rows.

        Raises:
            WriteError: If the disk is full.
        """
        if self._spill is None:
            self._keys = self._keys_of(batch.schema) if self._keys_of is not None else None
            self._spill = Spill(schema=batch.schema, budget=self._budget, keys=self._keys)
        for piece in cut(with_ids(batch, groups), max(1, self._most_bytes // _PIECES)):
            self._rows.append(piece)
            self._lease.resize(self._rows.bytes + self._rows.rows * _SORTING_ROW_BYTES)
            if self._lease.held_bytes >= self._most_bytes:
                self._to_disk(self._spill)

    def take_all(self) -> list[pa.RecordBatch]:
        """All rows in the order of arrival, if none is on disk. They stay charged until `close`."""
        assert not self.is_spilled
        return [
            pa.RecordBatch.from_arrays(
                batch.columns[:-1], schema=batch.schema.remove(batch.num_columns - 1)
            )
            for batch in self._rows.take(sys.maxsize)
        ]

    def groups(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """The groups, ordered by number. Read the rows of a group before the next group."""
        if self._spill is None or not len(self._spill):
            rows = SortedRows(self._rows.take(sys.maxsize), self._keys)
            for span in rows.spans():
                yield span.partition_id, rows.pieces(span, max(1, self._most_bytes // _PIECES))
            return
        if self._rows.rows:
            self._to_disk(self._spill)
        with closing(self._spill.merged()) as merged:
            yield from merged

    def close(self) -> None:
        """Drop everything."""
        self._rows.clear()
        self._lease.release()
        if self._spill is not None:
            self._spill.close()

    def _to_disk(self, spill: Spill) -> None:
        spill.add(SortedRows(self._rows.take(sys.maxsize), self._keys))
        self._lease.resize(0)
