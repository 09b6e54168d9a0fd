"""Rows in numbered groups, in memory as long as they fit, and in sorted runs on disk after that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.memory import MemoryBudget
from icestream.write.row_buffer import RowBuffer, cut
from icestream.write.run_file import with_ids
from icestream.write.sort_keys import SortKeys
from icestream.write.sorted_rows import SortedRows
from icestream.write.spill import Spill

_SORTING_ROW_BYTES = 24
_PIECES = 8
_MOST_BYTES = 512 * 2**20  # Columns are combined, and Arrow's strings hold 2 GB: stay below.


class GroupedRows:
    """Takes rows, each with the number of its group, and gives them back group by group.

    Memory: `most_bytes` and a piece, on lease from the budget; a quarter of the budget's limit
    while they are given back from disk.

    Args:
        schema: Of the rows.
        budget: What they are on lease from.
        most_bytes: What is held before rows go to disk.
        keys: What the rows of a group are sorted by; None leaves them as they came.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        budget: MemoryBudget,
        most_bytes: int,
        keys: SortKeys | None = None,
    ) -> None:
        self._most_bytes = max(1, min(most_bytes, _MOST_BYTES))
        self._keys = keys
        self._rows = RowBuffer()
        self._lease = budget.force(0)
        self._spill = Spill(schema=schema, budget=budget, keys=keys)

    @property
    def spilled_bytes(self) -> int:
        """What went to disk."""
        return self._spill.spilled_bytes

    @property
    def is_spilled(self) -> bool:
        """Whether some rows are on disk."""
        return bool(len(self._spill))

    def add(self, batch: pa.RecordBatch, groups: npt.NDArray[np.int32]) -> None:
        """Take rows.

        Raises:
            WriteError: If the disk is full.
        """
        for piece in cut(with_ids(batch, groups), max(1, self._most_bytes // _PIECES)):
            self._rows.append(piece)
            self._lease.resize(self._rows.bytes + self._rows.rows * _SORTING_ROW_BYTES)
            if self._lease.held_bytes >= self._most_bytes:
                self._to_disk()

    def take_all(self) -> list[pa.RecordBatch]:
        """All rows as they came, if none is on disk; they stay on lease until `close`."""
        assert not self.is_spilled
        return [
            pa.RecordBatch.from_arrays(
                batch.columns[:-1], schema=batch.schema.remove(batch.num_columns - 1)
            )
            for batch in self._rows.take(sys.maxsize)
        ]

    def groups(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """The rows, each group once, by number. Take a group's rows before the next group."""
        if not self.is_spilled:
            rows = SortedRows(self._rows.take(sys.maxsize), self._keys)
            for span in rows.spans():
                yield span.partition_id, rows.pieces(span, max(1, self._most_bytes // _PIECES))
            return
        if self._rows.rows:
            self._to_disk()
        with closing(self._spill.merged()) as merged:
            yield from merged

    def close(self) -> None:
        """Drop everything."""
        self._rows.clear()
        self._lease.release()
        self._spill.close()

    def _to_disk(self) -> None:
        self._spill.add(SortedRows(self._rows.take(sys.maxsize), self._keys))
        self._lease.resize(0)
