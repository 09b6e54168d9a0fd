"""A plan as a DataFrame: a range of numbers with one row for each task, and tasks that read.

What a Python data source yields goes through Spark row by row, in code that is not compiled into
the query; what `mapInArrow` yields takes a shorter way, which costs the JVM half the CPU time
(docs/design/0008-spark.md).

What Spark takes the frame's size to be decides whether it sends all of it to every executor for a
join. It takes that of the range, 8 bytes a number, and believes that a filter lets everything
through: so the range is as long as the table's size asks for, and a filter leaves one number for
each task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from icestream.spark.installed import pyspark_module
from icestream.spark.share import read_share
from icestream.spark.task_plan import TaskPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

# Spark's own figures: a row of any kind, and the values of types whose size it does not know.
_ROW_BYTES = 8
_NUMBER_BYTES = 8
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
_MOST_NUMBERS = 1 << 26  # less than 0.1 s of CPU time, and more than anyone would broadcast


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """What a task does with its number: read the share that it stands for.

    Attributes:
        plan: All shares.
        stride: What a number is divided by, for its share.
        on_read: Called with a share's number and its rows, once it is read.
    """

    plan: TaskPlan
    stride: int
    on_read: Callable[[int, int], None] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        plan = self.plan
        for batch in batches:
            for number in batch.column(0).to_pylist():
                index, rows = number // self.stride, 0
                for read in read_share(plan.shares[index], plan.memory_bytes, plan.batch_rows):
                    rows += read.num_rows
                    yield read
                    del read
                if self.on_read is not None:
                    self.on_read(index, rows)


def planned_frame(
    spark: SparkSession,
    plan: TaskPlan,
    schema: StructType,
    on_read: Callable[[int, int], None] | None = None,
) -> DataFrame:
    """A DataFrame that reads a plan.

    Args:
        spark: A session, classic or Spark Connect.
        plan: What its tasks read.
        schema: The columns.
        on_read: Called in a task with a share's number and its rows, once it is read.
    """
    tasks = len(plan.shares)
    if not tasks:
        return spark.createDataFrame([], schema)
    row_bytes = _ROW_BYTES + type_bytes(schema)
    numbers = max(plan.rows * row_bytes, plan.stored_bytes) // _NUMBER_BYTES
    stride = _power_of_two(min(numbers, _MOST_NUMBERS) // tasks + 1)
    functions = pyspark_module("pyspark.sql.functions")
    numbered = spark.range(0, tasks * stride, 1, tasks)
    first = functions.col("id").bitwiseAND(functions.lit(stride - 1)) == 0
    return numbered.where(first).mapInArrow(PlannedRead(plan, stride, on_read), schema)


def type_bytes(kind: DataType) -> int:
    """What Spark takes a value of a type to need."""
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


def _power_of_two(at_least: int) -> int:
    return 1 << max(at_least - 1, 0).bit_length()
