"""Sorts buffered rows by partition, and copies them out piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.write.parquet.row_buffer import joined
from icestream.write.partition.stable_order import stable_order
from icestream.write.spill.sort_keys import SortKeys


@dataclass(frozen=True, slots=True)
class Span:
    """The rows of one partition: from `start` up to `stop` (exclusive) in sorted order."""

    partition_id: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class SortedRows:
    """Rows sorted by partition id, then by sort keys. Equal rows keep their order.

    Rows that are already sorted are not copied: `rows` returns slices of them.

    Memory: the rows, 12 bytes for each row, and a second copy of the largest column while the
    columns are combined.

    Args:
        batches: The rows. Each batch has its partition ids as last column. The list is emptied.
        keys: The sort keys within a partition; None keeps the order of arrival.

    Attributes:
        ids: The partition id of each row, in sorted order.
        bytes: The size of the rows.
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
        """The average size of a row."""
        return self.bytes / max(1, len(self.ids))

    def spans(self) -> list[Span]:
        """The span of each partition, in order of partition id."""
        if not len(self.ids):
            return []
        starts = np.concatenate([[0], np.flatnonzero(self.ids[1:] != self.ids[:-1]) + 1])
        stops = np.append(starts[1:], len(self.ids))
        columns = (self.ids[starts].tolist(), starts.tolist(), stops.tolist())
        return [Span(*values) for values in zip(*columns, strict=True)]

    def rows(self, start: int, stop: int) -> list[pa.RecordBatch]:
        """A range of rows in sorted order: slices if they came sorted, else a copy."""
        if self._order is not None:
            return [self._combined().take(pa.array(self._order[start:stop]))]
        slices = []
        for batch in self._batches:
            if start < batch.num_rows and stop > 0:
                first = max(0, start)
                slices.append(batch.slice(first, min(stop, batch.num_rows) - first))
            start, stop = start - batch.num_rows, stop - batch.num_rows
        return slices

    def pieces(self, span: Span, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, in pieces of about `max_bytes`."""
        step = self._step(max_bytes)
        for start in range(span.start, span.stop, step):
            yield from self.rows(start, min(span.stop, start + step))

    def chunks(self, max_bytes: int) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.int32]]]:
        """All rows in pieces of about `max_bytes`, with the partition id of each row."""
        step = self._step(max_bytes)
        for start in range(0, len(self), step):
            ids = self.ids[start : start + step]
            for batch in self.rows(start, min(len(self), start + step)):
                yield batch, ids[: batch.num_rows]
                ids = ids[batch.num_rows :]

    def only(self, spans: list[Span]) -> SortedRows:
        """Only the rows in the spans. The rows are not copied."""
        order = np.arange(len(self.ids)) if self._order is None else self._order
        pieces = [np.arange(span.start, span.stop) for span in spans]
        chosen = np.concatenate(pieces) if pieces else np.arange(0)
        fewer = object.__new__(SortedRows)
        fewer._batches = self._batches
        fewer._order = order[chosen]
        fewer.ids = self.ids[chosen]
        fewer.bytes = int(self.row_bytes * len(chosen))
        return fewer

    def _step(self, max_bytes: int) -> int:
        return max(1, int(max_bytes / max(1.0, self.row_bytes)))

    def _sort(self, ids: Any, keys: SortKeys | None) -> Any:
        """The sorted positions of the rows; None if the rows are already sorted."""
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
