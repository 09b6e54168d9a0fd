"""A plan as a DataFrame: one task for each share, which is mapped to the rows in it.

The frame uses `mapInArrow` and not a Python data source. Spark handles the batches of a data source
row by row, in code that is not compiled into the query; with `mapInArrow` the JVM needs half the
CPU time (docs/design/0008-spark.md).

Spark estimates the size of a frame to decide whether a join broadcasts it. `shares.py` makes it
assume the size of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icestream.read.order import TaskOrder
from icestream.read.scan import read_splits
from icestream.spark.arrow.conversion import SparkBatches
from icestream.spark.tasks.shares import map_shares
from icestream.spark.tasks.task_notes import note_base, note_error
from icestream.spark.tasks.task_plan import TaskPlan, splits_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

# The sizes that Spark assumes for a row, and for values whose size it does not know.
_ROW_BYTES = 8
_BYTES_BY_TYPE = {
    "boolean": 1,
    "byte": 1,
    "short": 2,
    "integer": 4,
    "date": 4,
    "float": 4,
    "string": 20,
    "binary": 100,
}
_BYTES_OF_OTHERS = 8


def read_share(share: bytes, memory_bytes: int, batch_rows: int | None) -> Iterator[pa.RecordBatch]:
    """In a task: read a share, in batches that Spark accepts.

    Args:
        share: One of `TaskPlan.shares`.
        memory_bytes: The memory limit of the task.
        batch_rows: Maximum number of rows in a batch. By default the scan decides.

    Memory: the scan stays within the limit. One batch more is on its way to the JVM.
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


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """In a task: reads its shares.

    Attributes:
        memory_bytes: The memory limit of the task.
        batch_rows: Maximum number of rows in a batch. By default the scan decides.
        on_read: Called after each share, with its number and its row count.
    """

    memory_bytes: int
    batch_rows: int | None
    on_read: Callable[[int, int], None] | None = None

    def __call__(self, number: int, share: bytes) -> Iterator[pa.RecordBatch]:
        """For `map_shares`."""
        rows = 0
        for read in read_share(share, self.memory_bytes, self.batch_rows):
            rows += read.num_rows
            yield read
            del read
        if self.on_read is not None:
            self.on_read(number, rows)


def planned_frame(
    spark: SparkSession,
    plan: TaskPlan,
    schema: StructType,
    on_read: Callable[[int, int], None] | None = None,
    name: str = "icestream read",
) -> DataFrame:
    """A DataFrame that reads a plan.

    Args:
        spark: A session, classic or Spark Connect.
        plan: The plan of the read.
        schema: The columns.
        on_read: Called in the task after each share, with its number and its row count.
        name: The name of the read in Spark's plans.
    """
    if not plan.shares:
        return spark.createDataFrame([], schema)
    row_bytes = _ROW_BYTES + type_bytes(schema)
    return map_shares(
        spark,
        plan.shares,
        PlannedRead(plan.memory_bytes, plan.batch_rows, on_read),
        schema,
        assumed_bytes=max(plan.rows * row_bytes, plan.stored_bytes),
        name=name,
    )


def type_bytes(kind: DataType) -> int:
    """The size that Spark assumes for a value of a type."""
    name = kind.typeName()
    if name == "struct":
        fields: Any = kind
        return sum(type_bytes(field.dataType) for field in fields)
    if name == "array":
        return type_bytes(kind.elementType)
    if name == "map":
        return type_bytes(kind.keyType) + type_bytes(kind.valueType)
    if name == "decimal":
        return 8 if kind.precision <= 18 else 16
    return _BYTES_BY_TYPE.get(name, _BYTES_OF_OTHERS)
