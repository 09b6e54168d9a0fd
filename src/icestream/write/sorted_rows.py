"""Buffered rows in order of their partitions, gathered piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.write.row_buffer import joined
from icestream.write.sort_keys import SortKeys
from icestream.write.stable_order import stable_order


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of one partition: from `start` to before `stop` in sorted order."""

    partition_id: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class SortedRows:
    """Rows sorted by partition id, and by sort keys within; equal ones as they came.

    Rows that came in that order are not touched: `rows` gives slices of them.

    Memory: the rows given, 12 bytes a row, and the largest column once more while the columns are
    combined.

    Args:
        batches: The rows, each batch with its partition ids as last column. The list is emptied.
        keys: How rows of one partition are sorted; None leaves them as they came.

    Attributes:
        ids: The partition id of each row, in sorted order.
        bytes: What the rows take.
    """

    def __init__(self, batches: list[pa.RecordBatch], keys: SortKeys | None = None) -> None:
        self.bytes: int = sum(batch.nbytes for batch in batches)
        self._batches = [_without_ids(batch) for batch in batches]
        columns = [batch.column(batch.num_columns - 1).to_numpy() for batch in batches]
        ids = np.concatenate([np.zeros(0, np.int32), *columns])
        batches.clear()
        self._order = self._sort(ids, keys)
        self.ids: npt.NDArray[np.int32] = ids if self._order is None else ids[self._order]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def row_bytes(self) -> float:
        """What a row takes on average."""
        return self.bytes / max(1, len(self.ids))

    def spans(self) -> list[Span]:
        """Where each partition's rows are, in order of the ids."""
        if not len(self.ids):
            return []
        starts = np.concatenate([[0], np.flatnonzero(self.ids[1:] != self.ids[:-1]) + 1])
        stops = np.append(starts[1:], len(self.ids))
        columns = (self.ids[starts].tolist(), starts.tolist(), stops.tolist())
        return [Span(*values) for values in zip(*columns, strict=True)]

    def rows(self, start: int, stop: int) -> list[pa.RecordBatch]:
        """Some rows in sorted order: a copy, or slices where they lie in that order already."""
        if self._order is not None:
            return [self._combined().take(pa.array(self._order[start:stop]))]
        found = []
        for batch in self._batches:
            if start < batch.num_rows and stop > 0:
                first = max(0, start)
                found.append(batch.slice(first, min(stop, batch.num_rows) - first))
            start, stop = start - batch.num_rows, stop - batch.num_rows
        return found

    def pieces(self, span: Span, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, gathered a piece of about `max_bytes` at a time."""
        step = max(1, int(max_bytes / max(1.0, self.row_bytes)))
        for start in range(span.start, span.stop, step):
            yield from self.rows(start, min(span.stop, start + step))

    def only(self, spans: list[Span]) -> SortedRows:
        """The same rows without those outside the spans; nothing is copied."""
        order = np.arange(len(self.ids)) if self._order is None else self._order
        pieces = [np.arange(span.start, span.stop) for span in spans]
        chosen = np.concatenate(pieces) if pieces else np.arange(0)
        fewer = object.__new__(SortedRows)
        fewer._batches = self._batches
        fewer._order = order[chosen]
        fewer.ids = self.ids[chosen]
        fewer.bytes = int(self.row_bytes * len(chosen))
        return fewer

    def _sort(self, ids: Any, keys: SortKeys | None) -> Any:
        """The order of the rows; None if it is the one they came in."""
        if keys is not None and len(ids):
            order = keys.indices(self._combined(), pa.array(ids)).to_numpy().view(np.int64)
            return None if np.array_equal(order, np.arange(len(ids))) else order
        return None if np.all(ids[1:] >= ids[:-1]) else stable_order(ids)

    def _combined(self) -> pa.RecordBatch:
        """All rows as one batch."""
        if len(self._batches) > 1:
            self._batches.append(joined(self._batches))
        return self._batches[0]


def _without_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = batch.schema.remove(batch.num_columns - 1)
    return pa.RecordBatch.from_arrays(batch.columns[:-1], schema=schema)
