"""Streams to write. Their batches come from a small pool, so that they cost almost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.data import columns as col

_POOL_BATCHES = 16


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows to write.

    Attributes:
        rows: Number of rows.
        batch_rows: Rows in a batch.
        columns: Number of columns: 5 for the narrow shape, more for the wide one.
        partitions: Number of distinct values of the column `part`, or 0 for no such column.
        clustered: Whether the rows of a partition are consecutive.
    """

    rows: int
    batch_rows: int = 65_536
    columns: int = 5
    partitions: int = 0
    clustered: bool = False

    def schema(self) -> pa.Schema:
        """Return the schema of the batches."""
        return self._batch(0, 1).schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. They are the same on every call."""
        pool = [self._batch(number, self.batch_rows) for number in range(_POOL_BATCHES)]
        for number, first in enumerate(range(0, self.rows, self.batch_rows)):
            count = min(self.batch_rows, self.rows - first)
            batch = pool[number % _POOL_BATCHES].slice(0, count)
            arrays = [pa.array(np.arange(first, first + count)), *batch.columns[1:]]
            if self.partitions:
                arrays[1] = self._parts(number, first, count)
            yield pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader."""
        return pa.RecordBatchReader.from_batches(self.schema(), self.batches())

    def _batch(self, number: int, count: int) -> pa.RecordBatch:
        rng = np.random.default_rng([300, number])
        data = {"id": col.sequence(0, count)}
        if self.partitions:
            data["part"] = pa.array(np.zeros(count, np.int64))
        data["amount"] = col.amounts(rng, count)
        data["customer"] = col.words(rng, count)
        data["active"] = col.flags(rng, count)
        data["created_at"] = col.timestamps(rng, count)
        for extra in range(len(data), self.columns):
            make = (col.doubles, col.amounts)[extra % 2] if extra % 8 else col.words
            data[f"c{extra}"] = make(rng, count)
        return pa.RecordBatch.from_pydict(data)

    def _parts(self, number: int, first: int, count: int) -> pa.Array:
        if self.clustered:
            rows = np.arange(first, first + count)
            return pa.array(rows * self.partitions // self.rows)
        rng = np.random.default_rng([301, number])
        return pa.array(rng.integers(0, self.partitions, count))


STREAMS = {
    "narrow": Stream(16_000_000),
    "narrow10": Stream(160_000_000),
    "wide": Stream(200_000, batch_rows=4_096, columns=400),
    "random1000": Stream(8_000_000, columns=6, partitions=1_000),
    "random10000": Stream(8_000_000, columns=6, partitions=10_000),
    "sorted1000": Stream(8_000_000, columns=6, partitions=1_000, clustered=True),
    "batches2750": Stream(27_500_000, batch_rows=10_000),
    "batches5500": Stream(55_000_000, batch_rows=10_000),
}
