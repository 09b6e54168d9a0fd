"""Sends each task its own share of the work, and nothing of the other shares.

A function that Spark sends to executors travels whole to every task. With a list of all shares in
it, each task would receive and hold the work of all others. Here the shares are the rows of a small
frame that Spark broadcasts to the JVMs of the executors. A join gives each task its row, so a
Python worker only sees its own share.

A broadcast is a job of its own. `map_shares` saves it if all shares together are small: then they
travel with the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from icestream.spark.setup.installed import pyspark_module
from icestream.spark.tasks.shown_work import NamedTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NUMBER = "__icestream_number"
_SHARE = "__icestream_share"
_MOST_NUMBERS = 1 << 26  # takes less than 0.1 s of CPU time, and is too large to broadcast
# The sizes that Spark assumes for a row of the range and for a row with a share, whatever is in it.
_ROW_BYTES = 8
_SHARE_ROW_BYTES = 108
_SMALL_BYTES = 64 << 10

Work = Callable[[int, bytes], Iterator[pa.RecordBatch]]
"""In a task: what to do with a share, given its number and its bytes."""


def map_shares(
    spark: SparkSession,
    shares: Sequence[bytes],
    work: Work,
    schema: StructType | str,
    *,
    assumed_bytes: int = 0,
    name: str | None = None,
) -> DataFrame:
    """A frame with the rows that `work` makes of each share, in a task of its own.

    Args:
        spark: A session, classic or Spark Connect.
        shares: The work of each task, encoded. At least one.
        work: Called in the task.
        schema: The columns of the frame.
        assumed_bytes: The size that Spark should assume for the frame.
        name: The name of the work in Spark's plans.
    """
    name = name or type(work).__name__
    if sum(map(len, shares)) > _SMALL_BYTES:
        frame = shares_frame(spark, shares, assumed_bytes=assumed_bytes)
        return frame.mapInArrow(NamedTask(_EachShare(work), name), schema)
    tasks = len(shares)
    stride = _power_of_two(min(assumed_bytes // _ROW_BYTES, _MOST_NUMBERS) // tasks + 1)
    numbers = _every(spark, stride, tasks)
    task = NamedTask(_EachNumber(work, tuple(shares), stride), name)
    return numbers.mapInArrow(task, schema)


def shares_frame(
    spark: SparkSession, shares: Sequence[bytes], *, assumed_bytes: int = 0
) -> DataFrame:
    """A frame with one task for each share. Read it in the task with `shares_in`.

    Spark estimates the size of a frame to decide whether a join broadcasts it. It multiplies the
    sizes of the range and of the shares, and assumes that a filter keeps all rows. So the range is
    as long as `assumed_bytes` needs, and a filter keeps one number for each task.

    Args:
        spark: A session, classic or Spark Connect.
        shares: The work of each task, encoded. At least one.
        assumed_bytes: The size that Spark should assume for the frame.
    """
    functions = pyspark_module("pyspark.sql.functions")
    tasks = len(shares)
    columns = {
        _NUMBER: pa.array(range(tasks), pa.int64()),
        _SHARE: pa.array(shares, pa.large_binary() if _is_large(shares) else pa.binary()),
    }
    numbered = spark.createDataFrame(pa.table(columns))
    estimate = _ROW_BYTES * tasks * _SHARE_ROW_BYTES * tasks
    stride = _power_of_two(min(assumed_bytes // estimate + 1, _MOST_NUMBERS // tasks))
    number = functions.shiftright("id", stride.bit_length() - 1)
    joined = _every(spark, stride, tasks).join(
        functions.broadcast(numbered), number == functions.col(_NUMBER)
    )
    return joined.select(_NUMBER, _SHARE)


def shares_in(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    """In a task, inside `mapInArrow`: the number and the bytes of each of its shares."""
    for batch in batches:
        for number, share in zip(batch.column(0), batch.column(1), strict=True):
            yield number.as_py(), share.as_py()


@dataclass(frozen=True, slots=True)
class _EachShare:
    """In a task: does the work of its shares."""

    work: Work

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, share in shares_in(batches):
            yield from self.work(number, share)


@dataclass(frozen=True, slots=True)
class _EachNumber:
    """In a task: does the work of the shares whose numbers the task gets."""

    work: Work
    shares: tuple[bytes, ...]
    stride: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.work(number // self.stride, self.shares[number // self.stride])


def _every(spark: SparkSession, stride: int, tasks: int) -> DataFrame:
    """A range of `tasks` numbers, of which Spark assumes that there are `stride` times as many."""
    functions = pyspark_module("pyspark.sql.functions")
    numbers = spark.range(0, tasks * stride, 1, tasks)
    return numbers.where(functions.col("id").bitwiseAND(functions.lit(stride - 1)) == 0)


def _is_large(shares: Sequence[bytes]) -> bool:
    return sum(map(len, shares)) >= 1 << 31


def _power_of_two(at_least: int) -> int:
    return 1 << max(at_least - 1, 0).bit_length()
