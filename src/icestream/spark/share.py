"""What a task reads: its share of a plan."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from icestream.read.order import TaskOrder
from icestream.read.scan import read_splits
from icestream.spark.conversion import SparkBatches
from icestream.spark.task_failure import note_error
from icestream.spark.task_plan import splits_of
from icestream.spark.worker_memory import note_base


def read_share(share: bytes, memory_bytes: int, batch_rows: int | None) -> Iterator[pa.RecordBatch]:
    """Read a share as Spark wants it.

    Args:
        share: One of `TaskPlan.shares`.
        memory_bytes: What the task may hold.
        batch_rows: The most rows in a batch; None leaves it to the scan.

    Memory: what the scan holds stays within the limit; a batch is on its way to the JVM beside it.
    """
    note_base()
    with (
        note_error(),
        read_splits(
            splits_of(share), memory=memory_bytes, batch_size=batch_rows, order=TaskOrder()
        ) as batches,
    ):
        convert = SparkBatches(batches.schema)
        for batch in batches:
            yield convert(batch)
