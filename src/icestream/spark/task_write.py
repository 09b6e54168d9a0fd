"""What a task of a write does: its rows become files, and one answer describes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from icestream.commit.write_files import write_stream
from icestream.memory import MemoryBudget
from icestream.spark.task_answer import answer
from icestream.spark.task_failure import note_error
from icestream.spark.worker_memory import Measured, measured_worker, note_base
from icestream.write.schema import SchemaMode
from icestream.write.table_writer import Written
from icestream.write.target import WriteTarget


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task did.

    Attributes:
        written: Its files.
        peak_bytes: The most that it held.
        worker: The worker's peak and base; see `worker_memory`.
        retried: Whether other attempts at the same rows may have left files: a worker whose task
            is failed from elsewhere is killed, and can't delete them.
    """

    written: Written
    peak_bytes: int
    retried: bool = False
    worker: Measured = (0, 0)


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """The same for every task of a write: plain data that travels to executors.

    Attributes:
        target: The table, with the schema that its files are to have.
        memory_bytes: What a task may hold.
        schema_mode: What the caller said; the driver has checked the columns already.

    Memory: the Arrow bytes of a task stay within `memory_bytes`.
    """

    target: WriteTarget
    memory_bytes: int
    schema_mode: SchemaMode

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: one row comes out, with the result."""
        yield answer(self.write(batches))

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskResult:
        """Write the rows of one task. If it raises, its files are gone."""
        from pyspark import TaskContext

        note_base()
        context = TaskContext.get()
        budget = MemoryBudget(self.memory_bytes)
        target = self.target.for_task(
            context.partitionId() if context else 0, context.taskAttemptId() if context else 0
        )
        with note_error():
            written = write_stream(
                target, batches, budget=budget, schema_mode=self.schema_mode, shared=True
            )
        retried = context is not None and context.attemptNumber() > 0
        return TaskResult(written, budget.peak_bytes, retried, measured_worker())
