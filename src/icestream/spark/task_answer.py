"""What each task of a job answers: one row, from `mapInArrow` to the driver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from icestream.spark.installed import is_classic
from icestream.spark.plain_record import decode, encode
from icestream.write.new_file import NewFile
from icestream.write.table_writer import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_Result = TypeVar("_Result")
ANSWER_PARTS = (Written, NewFile)
ANSWER_SCHEMA = "result binary, stage int, retried boolean"


def answer(result: object) -> pa.RecordBatch:
    """In a task: its result as the row that the driver gets."""
    from pyspark import TaskContext

    context = TaskContext.get()
    stage = context.stageId() if context else None
    retried = context is not None and context.attemptNumber() > 0
    columns = [
        pa.array([encode(result)], pa.binary()),
        pa.array([stage], pa.int32()),
        pa.array([retried]),
    ]
    return pa.record_batch(columns, names=["result", "stage", "retried"])


def run_tasks(frame: DataFrame, kind: type[_Result], *parts: type) -> tuple[list[_Result], bool]:
    """Run a job whose tasks answer.

    Args:
        frame: Of `ANSWER_SCHEMA`.
        kind: The dataclass that each task answers with.
        parts: Other dataclasses that an answer may hold.

    Returns:
        The results, and whether rows were taken more than once: a worker whose task is failed from
        elsewhere is killed, and can't delete what it has written.
    """
    rows = frame.collect()
    stages = {row[1] for row in rows if row[1] is not None}
    retried = any(row[2] for row in rows) or _ran_again(frame.sparkSession, stages)
    return [decode(bytes(row[0]), kind, *parts) for row in rows], retried


def _ran_again(spark: Any, stages: Iterable[int]) -> bool:
    """Whether Spark had to begin one of the stages anew: its tasks count from zero then.

    That is so where an executor is lost with rows that the stage was to read. Spark Connect does
    not tell.
    """
    if not is_classic(spark):
        return False
    tracker = spark.sparkContext.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in stages]
    return any(info is not None and info.currentAttemptId > 0 for info in found)
