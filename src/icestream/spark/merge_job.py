"""The jobs of a merge: keys of both sides joined by Spark, files changed where they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table import FileScanTask

from icestream.spark.distribution import partition_keys
from icestream.spark.installed import pyspark_module
from icestream.spark.keyed_frame import KEY_NAMES, KeyedFrame
from icestream.spark.packing import wanted_tasks
from icestream.spark.task_answer import ANSWER_SCHEMA, answer, run_tasks
from icestream.spark.task_failure import note_error
from icestream.upsert.key_index import Sieve
from icestream.upsert.merge_work import PLACE_FIELDS, MergePart, MergeWork

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE, _POSITION = (field.name for field in PLACE_FIELDS)
_LANE = "icestream_lane"
_FEW_ROWS = 200_000
_FEW_BYTES = 32 << 20
_KEYS_SCHEMA = f"{KEY_NAMES[0]} bigint, {KEY_NAMES[1]} bigint, {_FILE} int, {_POSITION} bigint"


@dataclass(frozen=True, slots=True)
class _StoredKeys:
    """In a task: the keys of every n-th file."""

    work: MergeWork
    sieve: Sieve | None
    tasks: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with note_error():
            for batch in batches:
                for first in batch.column(0).to_pylist():
                    numbers = range(first, len(self.work.files), self.tasks)
                    yield from self.work.stored_keys(numbers, self.sieve)


@dataclass(frozen=True, slots=True)
class _Applied:
    """In a task: changed files, described by one row."""

    work: MergeWork

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        with note_error():
            part = self.work.apply(
                batches,
                task=context.partitionId() if context else 0,
                attempt=context.taskAttemptId() if context else 0,
            )
        yield answer(part)


def run_merge(spark: SparkSession, source: KeyedFrame, work: MergeWork, cores: int) -> MergePart:
    """Merge a frame into the files of a table.

    Args:
        spark: The session.
        source: The rows, checked.
        work: What each task does.
        cores: Tasks that run at once.

    Returns:
        What all tasks did. If it raises, files of tasks may be left.
    """
    functions = pyspark_module("pyspark.sql.functions")
    is_small = source.is_small and _are_few(work.files)
    tasks = 1 if is_small else wanted_tasks(cores)
    frame = source.frame
    if work.files:
        keys = _stored_keys(spark, source, work, tasks)
        if is_small:  # of keys there are numbers only, and few
            keys = keys.hint("broadcast")
        joined = frame.join(keys, list(KEY_NAMES), "left")
    else:
        nothing = functions.lit(None)
        joined = frame.withColumns({_FILE: nothing.cast("int"), _POSITION: nothing.cast("bigint")})
    placed = joined if is_small else _spread(joined, frame, work, tasks)
    columns = [*work.plan.stream.names, _FILE, _POSITION]
    answers = (
        placed.sortWithinPartitions(functions.col(_FILE).asc_nulls_last(), _POSITION)
        .select(*(f"`{name}`" for name in columns))
        .mapInArrow(_Applied(work), ANSWER_SCHEMA)
    )
    parts, retried = run_tasks(answers)
    return replace(sum(parts, MergePart()), retried=retried)


def _are_few(files: Sequence[FileScanTask]) -> bool:
    """Whether one task is quicker than several that Spark has to shuffle rows for."""
    rows = sum(task.file.record_count for task in files)
    return rows <= _FEW_ROWS and sum(task.file.file_size_in_bytes for task in files) <= _FEW_BYTES


def _spread(joined: DataFrame, frame: DataFrame, work: MergeWork, tasks: int) -> DataFrame:
    """All that matches in a file to one task; of the rest, the rows of a partition together."""
    functions = pyspark_module("pyspark.sql.functions")
    together = partition_keys(frame, work.target) or [frame[name] for name in KEY_NAMES]
    lane = functions.coalesce(functions.col(_FILE), functions.hash(*together))
    return joined.withColumn(
        _LANE, functions.pmod(lane, functions.lit(tasks)).cast("int")
    ).repartitionById(tasks, _LANE)


def _stored_keys(spark: SparkSession, source: KeyedFrame, work: MergeWork, tasks: int) -> DataFrame:
    count = min(tasks, len(work.files))
    numbers = spark.range(0, count, 1, count)
    # Where rows are few, all of them take less time to send than a sieve to make.
    sieve = None if _are_few(work.files) else source.sieve()
    return numbers.mapInArrow(_StoredKeys(work, sieve, count), _KEYS_SCHEMA)
