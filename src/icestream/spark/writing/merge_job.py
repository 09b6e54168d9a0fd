"""The jobs of a merge: Spark joins the keys of both sides, and tasks change the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from icestream.operations.kept_tasks import KeptTasks
from icestream.operations.merge.keys.key_index import Sieve
from icestream.operations.merge.merge_work import (
    FILE_FIELD,
    FILE_POSITION,
    PLACE_FIELDS,
    MergeWork,
)
from icestream.operations.write_parts import WorkerPart
from icestream.spark.arrow.frame_schema import map_in_arrow, quoted
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.tasks.file_shares import FileShare, file_shares
from icestream.spark.tasks.packing import MOST_BYTES_PER_TASK, wanted_tasks
from icestream.spark.tasks.shares import map_shares
from icestream.spark.tasks.task_notes import measured_worker, note_base, note_error
from icestream.spark.tasks.task_write import ANSWER_PARTS, ANSWER_SCHEMA, answer, run_tasks
from icestream.spark.writing.distribution import partition_keys
from icestream.spark.writing.keyed_frame import KEY_NAMES, KeyedFrame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FILE, _POSITION = (field.name for field in PLACE_FIELDS)
_LANE = "__icestream_lane"
_PARTITION = "__icestream_partition"
_BUCKETS = 1024  # rows are counted by bucket of partitions
_LANE_BYTES = 64 << 20  # Arrow bytes of a partition for each task that gets its rows
_FEW_ROWS = 200_000
_FEW_BYTES = 32 << 20
_KEYS_SCHEMA = (
    f"{KEY_NAMES[0]} bigint, {KEY_NAMES[1]} bigint, {KEY_NAMES[2]} binary, "
    f"{_FILE} int, {_POSITION} bigint"
)


@dataclass(frozen=True, slots=True)
class _StoredKeys:
    """In a task: reads the keys of the files in its share."""

    work: MergeWork
    sieve: Sieve | None

    def __call__(self, number: int, encoded: bytes) -> Iterator[pa.RecordBatch]:
        note_base()
        with note_error():
            share = FileShare.of(encoded)
            yield from self.work.stored_keys(share.files, share.first, self.sieve)


@dataclass(frozen=True, slots=True)
class AppliedRows:
    """In a task: changes files, and returns one row with the result."""

    work: MergeWork

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`, with rows as `MergeWork.apply` takes them."""
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


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The table's files that may hold keys of the frame.

    Attributes:
        files: The files.
        rows: The number of rows in them.
        bytes: Their stored size.
        key_bytes: The stored size of the key columns in each file.
    """

    files: KeptTasks
    rows: int
    bytes: int
    key_bytes: list[int]

    @classmethod
    def of(cls, files: KeptTasks, key_ids: frozenset[int]) -> _Candidates:
        rows = size = 0
        key_bytes = []
        for task in files:
            rows += task.file.record_count
            size += task.file.file_size_in_bytes
            sizes = task.file.column_sizes or {}
            known = sum(sizes.get(field_id, 0) for field_id in key_ids)
            key_bytes.append(known or task.file.file_size_in_bytes)
        return cls(files, rows, size, key_bytes)

    @property
    def are_few(self) -> bool:
        """Whether one task is faster than several with a shuffle."""
        return self.rows <= _FEW_ROWS and self.bytes <= _FEW_BYTES


def run_merge(
    spark: SparkSession, source: KeyedFrame, work: MergeWork, files: KeptTasks, cores: int
) -> WorkerPart:
    """Merge a frame into the files of a table.

    Args:
        spark: The session.
        source: The rows, after `KeyedFrame.check`.
        work: The work of each task.
        files: The table's files that may hold keys of the frame.
        cores: Number of tasks that run at once.

    Returns:
        The combined results of all tasks. After an error, files of tasks may remain.
    """
    functions = pyspark_module("pyspark.sql.functions")
    work = work.for_workers()
    candidates = _Candidates.of(files, work.plan.key.ids)
    is_small = source.is_small and candidates.are_few
    located = _located(spark, source, work, candidates, None if is_small else cores)
    located = _with_files(located, files)
    if is_small:
        placed = located.coalesce(1)
    else:
        inserting = _tasks(source.bytes, cores)
        tasks = _tasks(source.bytes + candidates.bytes, cores)
        placed = _spread(located, source, work, tasks, inserting)
    columns = [*work.plan.stream.names, _FILE, _POSITION, FILE_FIELD.name]
    ordered = placed.sortWithinPartitions(functions.col(_FILE).asc_nulls_last(), _POSITION)
    answers = map_in_arrow(
        ordered.select(*(quoted(name) for name in columns)), AppliedRows(work), ANSWER_SCHEMA
    )
    parts, retried = run_tasks(answers, WorkerPart, *ANSWER_PARTS)
    return WorkerPart.joined(parts, retried=retried)


def _tasks(size: int, cores: int) -> int:
    """The number of tasks for some bytes: enough for all cores, and none too large."""
    return max(wanted_tasks(cores), -(-size // MOST_BYTES_PER_TASK))


def _located(
    spark: SparkSession,
    source: KeyedFrame,
    work: MergeWork,
    candidates: _Candidates,
    cores: int | None,
) -> DataFrame:
    """The rows with the file and position of the row that they match, or nulls.

    The number of cores is None if one task does everything. The joins have hints, because Spark
    underestimates the size of a table's keys and would send them all through the driver.
    """
    if not candidates.files:
        return _without_place(source.frame)
    keys = _stored_keys(spark, source, work, candidates, cores)
    if cores is None:  # both sides are in one partition, so nothing is shuffled
        one = source.frame.coalesce(1)
        return one.join(keys.coalesce(1).hint("shuffle_hash"), list(KEY_NAMES), "left")
    keys = keys.hint("merge")  # this join can spill to disk
    if not source.has_null_keys:
        return source.frame.join(keys, list(KEY_NAMES), "left")
    # Nulls match nothing, and a join would send them all to one task.
    has_key = source.frame[KEY_NAMES[0]].isNotNull()
    joined = source.frame.where(has_key).join(keys, list(KEY_NAMES), "left")
    return joined.unionByName(_without_place(source.frame.where(~has_key)))


def _without_place(frame: DataFrame) -> DataFrame:
    nothing = pyspark_module("pyspark.sql.functions").lit(None)
    return frame.withColumns({_FILE: nothing.cast("int"), _POSITION: nothing.cast("bigint")})


def _with_files(located: DataFrame, files: KeptTasks) -> DataFrame:
    """Add a row for each file with its packed task, which then goes to the task of the matches."""
    functions = pyspark_module("pyspark.sql.functions")
    nothing = functions.lit(None)
    located = located.withColumn(FILE_FIELD.name, nothing.cast("binary"))
    if not files:
        return located
    columns = {
        _FILE: pa.array(range(len(files)), pa.int32()),
        _POSITION: pa.repeat(pa.scalar(FILE_POSITION, pa.int64()), len(files)),
        FILE_FIELD.name: pa.array(files.records, pa.binary()),
    }
    described = located.sparkSession.createDataFrame(pa.table(columns))
    own = {name: functions.col(name) for name in columns}
    return located.union(
        described.select(
            *(
                own.get(field.name, nothing.cast(field.dataType)).alias(field.name)
                for field in located.schema.fields
            )
        )
    )


def _spread(
    located: DataFrame, source: KeyedFrame, work: MergeWork, tasks: int, inserting: int
) -> DataFrame:
    """Send all matches in a file to one task, and other rows to tasks by partition.

    The rows of a large partition go to several tasks, as do rows of unpartitioned tables.

    Args:
        located: The rows, and the files that they may match.
        source: The rows, after `KeyedFrame.check`.
        work: The work of each task.
        tasks: The number of tasks.
        inserting: The number of these that get rows of unpartitioned tables without a match. With
            more, there would be many small files.
    """
    functions = pyspark_module("pyspark.sql.functions")
    own_lane = functions.pmod(_number(source, work), functions.lit(inserting))
    keys = partition_keys(located, work.target)
    if keys:
        located = located.withColumn(_PARTITION, functions.xxhash64(*keys))
        lanes = _lanes(source, keys, tasks)
        own_lane = functions.pmod(_PARTITION, functions.lit(tasks)) + functions.pmod(
            _number(source, work), lanes
        )
    lane = functions.coalesce(functions.col(_FILE), own_lane)
    return located.withColumn(
        _LANE, functions.pmod(lane, functions.lit(tasks)).cast("int")
    ).repartitionById(tasks, _LANE)


def _number(source: KeyedFrame, work: MergeWork) -> Column:
    """A number for each row that depends only on its values, so it is always the same."""
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
    of_values = functions.xxhash64(KEY_NAMES[0], *plain)  # there may be no plain columns
    return functions.when(functions.col(KEY_NAMES[0]).isNull(), of_values).otherwise(of_key)


def _lanes(source: KeyedFrame, keys: list[Column], tasks: int) -> Column:
    """The number of tasks for each partition, by `_PARTITION`. The driver gets only counts."""
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
    lanes = functions.try_element_at(functions.create_map(*known), of_rows)
    return functions.coalesce(lanes, functions.lit(1))


def _stored_keys(
    spark: SparkSession,
    source: KeyedFrame,
    work: MergeWork,
    candidates: _Candidates,
    cores: int | None,
) -> DataFrame:
    tasks = 1 if cores is None else wanted_tasks(cores)
    shares = file_shares(candidates.files, candidates.key_bytes, tasks=tasks)
    # With few rows, sending all keys takes less time than building a sieve.
    sieve = None if candidates.are_few else source.sieve()
    return map_shares(spark, shares, _StoredKeys(work, sieve), _KEYS_SCHEMA)
