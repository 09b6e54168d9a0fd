"""The jobs of a merge: keys of both sides joined by Spark, files changed where they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.table import FileScanTask

from icestream.spark.arrow_map import map_in_arrow, quoted
from icestream.spark.distribution import partition_keys
from icestream.spark.installed import pyspark_module
from icestream.spark.keyed_frame import KEY_NAMES, KeyedFrame
from icestream.spark.packing import wanted_tasks
from icestream.spark.task_answer import ANSWER_PARTS, ANSWER_SCHEMA, answer, run_tasks
from icestream.spark.task_failure import note_error
from icestream.spark.worker_memory import measured_worker, note_base
from icestream.upsert.key_index import Sieve
from icestream.upsert.merge_work import PLACE_FIELDS, MergePart, MergeWork

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FILE, _POSITION = (field.name for field in PLACE_FIELDS)
_LANE = "__icestream_lane"
_PARTITION = "__icestream_partition"
_BUCKETS = 1024  # of partitions, whose rows are counted
_LANE_BYTES = 64 << 20  # of Arrow, before rows of a partition go to one more task
_FEW_ROWS = 200_000
_FEW_BYTES = 32 << 20
_KEYS_SCHEMA = (
    f"{KEY_NAMES[0]} bigint, {KEY_NAMES[1]} bigint, {KEY_NAMES[2]} binary, "
    f"{_FILE} int, {_POSITION} bigint"
)


@dataclass(frozen=True, slots=True)
class _StoredKeys:
    """In a task: the keys of every n-th file."""

    work: MergeWork
    sieve: Sieve | None
    tasks: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        note_base()
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

        note_base()
        context = TaskContext.get()
        with note_error():
            part = self.work.apply(
                batches,
                task=context.partitionId() if context else 0,
                attempt=context.taskAttemptId() if context else 0,
            )
        yield answer(replace(part, worker=measured_worker()))


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
    located = _located(spark, source, work, tasks)
    placed = located.coalesce(1) if is_small else _spread(located, source, work, tasks)
    columns = [*work.plan.stream.names, _FILE, _POSITION]
    ordered = placed.sortWithinPartitions(functions.col(_FILE).asc_nulls_last(), _POSITION)
    answers = map_in_arrow(
        ordered.select(*(quoted(name) for name in columns)), _Applied(work), ANSWER_SCHEMA
    )
    parts, retried = run_tasks(answers, MergePart, *ANSWER_PARTS)
    return replace(sum(parts, MergePart()), retried=retried)


def _are_few(files: Sequence[FileScanTask]) -> bool:
    """Whether one task is quicker than several that Spark has to shuffle rows for."""
    rows = sum(task.file.record_count for task in files)
    return rows <= _FEW_ROWS and sum(task.file.file_size_in_bytes for task in files) <= _FEW_BYTES


def _located(spark: SparkSession, source: KeyedFrame, work: MergeWork, tasks: int) -> DataFrame:
    """The rows with the place of what they match, or nulls.

    The kinds of join are named, as Spark takes the keys of a table for a few bytes and would send
    them all through the driver.
    """
    if not work.files:
        return _without_place(source.frame)
    keys = _stored_keys(spark, source, work, tasks)
    if tasks == 1:  # both sides lie in one partition, so that nothing is shuffled either
        one = source.frame.coalesce(1)
        return one.join(keys.hint("shuffle_hash"), list(KEY_NAMES), "left")
    keys = keys.hint("merge")  # which goes to disk where memory ends
    if not source.has_null_keys:
        return source.frame.join(keys, list(KEY_NAMES), "left")
    # Nulls match nothing, and a join would bring them all to one task.
    has_key = source.frame[KEY_NAMES[0]].isNotNull()
    joined = source.frame.where(has_key).join(keys, list(KEY_NAMES), "left")
    return joined.unionByName(_without_place(source.frame.where(~has_key)))


def _without_place(frame: DataFrame) -> DataFrame:
    nothing = pyspark_module("pyspark.sql.functions").lit(None)
    return frame.withColumns({_FILE: nothing.cast("int"), _POSITION: nothing.cast("bigint")})


def _spread(located: DataFrame, source: KeyedFrame, work: MergeWork, tasks: int) -> DataFrame:
    """All that matches in a file to one task; of the rest, the rows of a partition together.

    Those of a partition that has many go to several tasks, as do rows without a partition.
    """
    functions = pyspark_module("pyspark.sql.functions")
    own_lane = _number(source, work)
    keys = partition_keys(located, work.target)
    if keys:
        located = located.withColumn(_PARTITION, functions.xxhash64(*keys))
        lanes = _lanes(source, keys, tasks)
        own_lane = functions.pmod(_PARTITION, functions.lit(tasks)) + functions.pmod(
            own_lane, lanes
        )
    lane = functions.coalesce(functions.col(_FILE), own_lane)
    return located.withColumn(
        _LANE, functions.pmod(lane, functions.lit(tasks)).cast("int")
    ).repartitionById(tasks, _LANE)


def _number(source: KeyedFrame, work: MergeWork) -> Column:
    """What tells rows apart, the same whenever it is computed: by values, not by their order."""
    functions, types = pyspark_module("pyspark.sql.functions"), pyspark_module("pyspark.sql.types")
    of_key = functions.xxhash64(*KEY_NAMES)
    if not source.has_null_keys:
        return of_key
    given = set(work.plan.stream.names)
    plain = [
        quoted(field.name)
        for field in source.frame.schema.fields
        if field.name in given and isinstance(field.dataType, types.AtomicType)
    ]
    of_values = functions.xxhash64(KEY_NAMES[0], *plain)  # there may be structs alone
    return functions.when(functions.col(KEY_NAMES[0]).isNull(), of_values).otherwise(of_key)


def _lanes(source: KeyedFrame, keys: list[Column], tasks: int) -> Column:
    """To how many tasks the rows of a partition go, by `_PARTITION`. Numbers come to the driver."""
    functions = pyspark_module("pyspark.sql.functions")
    most_rows = max(1, int(_LANE_BYTES / max(1.0, source.row_bytes)))
    bucket = functions.pmod(functions.xxhash64(*keys), functions.lit(_BUCKETS))
    large = []
    if source.rows > most_rows:
        counts = source.frame.groupBy(bucket.alias("bucket")).count()
        large = counts.where(functions.col("count") > most_rows).collect()
    if not large:
        return functions.lit(1)
    known = [
        functions.lit(number)
        for bucket_number, rows in large
        for number in (bucket_number, min(tasks, -(-rows // most_rows)))
    ]
    of_rows = functions.pmod(_PARTITION, functions.lit(_BUCKETS))
    found = functions.try_element_at(functions.create_map(*known), of_rows)
    return functions.coalesce(found, functions.lit(1))


def _stored_keys(spark: SparkSession, source: KeyedFrame, work: MergeWork, tasks: int) -> DataFrame:
    count = min(tasks, len(work.files))
    numbers = spark.range(0, count, 1, count)
    # Where rows are few, all of them take less time to send than a sieve to make.
    sieve = None if _are_few(work.files) else source.sieve()
    return numbers.mapInArrow(_StoredKeys(work, sieve, count), _KEYS_SCHEMA)
