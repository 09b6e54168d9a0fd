"""Shares of a plan are handed out where Spark plans, and read in tasks.

What reads is imported by tasks only: Spark starts processes that hand out shares and end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from icestream.spark.task_plan import TaskPlan

if TYPE_CHECKING:
    import pyarrow as pa


class Share(InputPartition):  # type: ignore[misc]
    """One task's splits, pickled; the base class holds them as `value`."""


class ShareReader(DataSourceReader):  # type: ignore[misc]
    """Hands out the shares of a plan on the driver's side and reads one in a task."""

    def __init__(self, plan: TaskPlan) -> None:
        self._shares = plan.shares
        self._memory_bytes = plan.memory_bytes
        self._batch_rows = plan.batch_rows

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs: its share comes as a partition, the others need not travel."""
        return {**self.__dict__, "_shares": ()}

    def partitions(self) -> list[Share]:
        """One share for each task."""
        return [Share(share) for share in self._shares]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read a share.

        Memory: what the scan holds stays within the task's limit; a batch is on its way to the JVM
            beside it.
        """
        if not isinstance(partition, Share):  # Spark's stand-in for a plan without partitions
            return
        from icestream.spark.share import read_share

        yield from read_share(partition.value, self._memory_bytes, self._batch_rows)
