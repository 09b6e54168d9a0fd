"""A task of a write: it writes its rows to files and returns one row that describes them.

`answer` makes that row for any result, and `run_tasks` collects the results on the driver.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from icestream.memory.budget import MemoryBudget
from icestream.operations.write_files import write_stream
from icestream.spark.setup.installed import is_classic
from icestream.spark.tasks.plain_record import decode, encode
from icestream.spark.tasks.task_notes import Measured, measured_worker, note_base, note_error
from icestream.write.new_file import NewFile
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.table_writer import Written
from icestream.write.target import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_Result = TypeVar("_Result")
ANSWER_PARTS = (Written, NewFile)
ANSWER_SCHEMA = "result binary, stage int, retried boolean"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task.

    Attributes:
        written: The files that the task wrote.
        peak_bytes: The peak of the Arrow bytes that the task held.
        worker: The peak and the base of the worker's memory: see `task_notes`.
        retried: Whether other attempts at the same rows may have left files. When Spark fails a
            task from outside, it kills the worker, which then can't delete its files.
    """

    written: Written
    peak_bytes: int
    retried: bool = False
    worker: Measured = (0, 0)


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """The work of a task: plain data that Spark sends to executors, the same for all tasks.

    Attributes:
        target: The table, with the schema of the new files.
        memory_bytes: The memory limit of each task.
        schema_mode: The caller's schema mode. The driver has checked the columns already.

    Memory: the Arrow bytes of a task stay within `memory_bytes`.
    """

    target: WriteTarget
    memory_bytes: int
    schema_mode: SchemaMode

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: yields one row with the result."""
        yield answer(self.write(batches))

    def write(
        self, batches: Iterable[pa.RecordBatch], budget: MemoryBudget | None = None
    ) -> TaskResult:
        """Write the rows of one task. On an error, the task deletes its files.

        Args:
            batches: The rows.
            budget: The budget of the task, if reading the rows is charged to it, too.
        """
        from pyspark import TaskContext

        note_base()
        context = TaskContext.get()
        budget = budget if budget is not None else MemoryBudget(self.memory_bytes)
        target = self.target.for_task(
            context.partitionId() if context else 0, context.taskAttemptId() if context else 0
        )
        with note_error():
            written = write_stream(
                target, batches, budget=budget, schema_mode=self.schema_mode, shared=True
            )
        retried = context is not None and context.attemptNumber() > 0
        return TaskResult(written, budget.peak_bytes, retried, measured_worker())


def answer(result: object) -> pa.RecordBatch:
    """In a task: the row that carries its result to the driver."""
    from pyspark import TaskContext

    context = TaskContext.get()
    stage = context.stageId() if context else None
    retried = context is not None and context.attemptNumber() > 0
    encoded = encode(result)
    columns = [
        _one(pa.binary(), struct.pack("=ii", 0, len(encoded)), encoded),
        pa.nulls(1, pa.int32()) if stage is None else _one(pa.int32(), struct.pack("=i", stage)),
        _one(pa.bool_(), bytes([retried])),
    ]
    return pa.record_batch(columns, names=["result", "stage", "retried"])


def _one(kind: pa.DataType, *buffers: bytes) -> pa.Array:
    """One value as an array. `pa.array` would import pandas into the worker."""
    return pa.Array.from_buffers(kind, 1, [None, *map(pa.py_buffer, buffers)])


def run_tasks(frame: DataFrame, kind: type[_Result], *parts: type) -> tuple[list[_Result], bool]:
    """Run a job and collect the results of its tasks.

    Args:
        frame: A frame with the columns of `ANSWER_SCHEMA`.
        kind: The dataclass of the results.
        parts: Other dataclasses that a result may contain.

    Returns:
        The results, and whether Spark ran any task more than once. When Spark fails a task from
        outside, it kills the worker, which then can't delete the files it has written.
    """
    rows = frame.collect()
    stages = {row[1] for row in rows if row[1] is not None}
    retried = any(row[2] for row in rows) or _ran_again(frame.sparkSession, stages)
    return [decode(bytes(row[0]), kind, *parts) for row in rows], retried


def _ran_again(spark: Any, stages: Iterable[int]) -> bool:
    """Whether Spark started one of the stages again, which resets the attempt numbers of its tasks.

    This happens when an executor is lost together with rows that the stage needs. Spark Connect
    does not report it.
    """
    if not is_classic(spark):
        return False
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getStageInfo(stage) for stage in stages]
    return any(info is not None and info.currentAttemptId > 0 for info in infos)
