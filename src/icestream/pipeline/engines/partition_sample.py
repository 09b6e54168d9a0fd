"""Estimates how many files tasks write for a partitioned table, from a sample of the rows.

If each task writes the rows that it reads, a partition has a file for each task with rows of it.
Rows in order of the partitions give about one file for each partition. Rows in random order give
one for each partition and task. The sample shows which case it is: samples of different parts of
the sources have the same partitions, or others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from icestream.memory.budget import MemoryBudget
from icestream.spark.tasks.direct_write import SourcePart, SourceReader
from icestream.write.partition.partitioner import Partitioner
from icestream.write.schema.conform import Conformer

_SAMPLED_PARTS = 8
_SAMPLED_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """What a sample says about the partitions of the rows.

    Attributes:
        partitions: Estimated number of partitions.
        parts: Number of parts of the sources with rows in the sample.
        parts_per_partition: In how many of these parts a partition has rows, on average.
    """

    partitions: float
    parts: int
    parts_per_partition: float

    def files(self, tasks: int) -> float:
        """The number of files if each task writes the rows that it reads."""
        if self.parts < 2:
            return self.partitions * tasks
        shared = (self.parts_per_partition - 1) / (self.parts - 1)
        return self.partitions * (1 + min(max(shared, 0.0), 1.0) * (tasks - 1))


def sample_partitions(
    reader: SourceReader,
    parts: Sequence[SourcePart],
    schema: Schema,
    spec: PartitionSpec,
    *,
    memory_bytes: int,
    table: str,
) -> PartitionSample | None:
    """Read some rows of some parts, and look at their partitions.

    Args:
        reader: Reads parts.
        parts: All parts of the sources.
        schema: The schema of the table.
        spec: Its partition spec.
        memory_bytes: The memory limit.
        table: The table's name, for messages.

    Returns:
        The estimate; None if there are no rows in the sample, or if it is too small for so many
        partitions.

    Memory: one batch, and the memory to read it, within the limit.
    """
    conform = Conformer(reader.schema, schema, mode="discard", table=table)
    partitioner = Partitioner(schema, spec)
    numbers: list[npt.NDArray[Any]] = []
    for part in _spread(parts):
        ids = []
        batches = reader.read([part], MemoryBudget(reader.own_bytes(memory_bytes)))
        with closing(batches), reader.shape(_first(batches)) as rows:  # type: ignore[type-var]
            for batch in rows:
                ids.append(partitioner.ids(conform.convert(batch)))
                del batch
        if ids:
            numbers.append(np.concatenate(ids))
    if not numbers or _is_too_small(np.concatenate(numbers)):
        return None
    whole = _number_of_kinds(np.concatenate(numbers))
    of_parts = sum(_number_of_kinds(each) for each in numbers)
    return PartitionSample(whole, len(numbers), of_parts / whole)


def _first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        few = batch.slice(0, _SAMPLED_ROWS - rows)
        rows += few.num_rows
        if few.num_rows:
            yield few
        del batch, few
        if rows >= _SAMPLED_ROWS:
            return


def _is_too_small(numbers: npt.NDArray[Any]) -> bool:
    """Whether the sample probably lacks most partitions: most of its rows are alone in theirs."""
    _, counts = np.unique(numbers, return_counts=True)
    return int((counts == 1).sum()) > len(numbers) / 2


def _number_of_kinds(numbers: npt.NDArray[Any]) -> float:
    """The number of distinct values in all rows, by the estimator of Chao.

    Values that are in the sample once or twice show how many are not in it.
    """
    _, counts = np.unique(numbers, return_counts=True)
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    return len(counts) + once * (once - 1) / (2 * (twice + 1))


def _spread(parts: Sequence[SourcePart]) -> list[SourcePart]:
    """Some parts, from the first to the last."""
    if len(parts) <= _SAMPLED_PARTS:
        return list(parts)
    last = len(parts) - 1
    return [parts[number * last // (_SAMPLED_PARTS - 1)] for number in range(_SAMPLED_PARTS)]
