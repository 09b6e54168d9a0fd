"""`shares_frame` gives each task its own share and no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from icestream.spark.tasks.shares import shares_frame, shares_in


def _look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for number, share in shares_in(batches):
        columns = {"task": [context.partitionId()], "number": [number], "share": [share]}
        yield pa.RecordBatch.from_pydict(columns)


def _size(frame: Any) -> int:
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


@pytest.mark.parametrize("assumed_bytes", [0, 1 << 30])
def test_each_task_gets_its_share_and_no_other(spark: Any, assumed_bytes: int) -> None:
    shares = [b"a", b"", b"ccc"]
    frame = shares_frame(spark, shares, assumed_bytes=assumed_bytes)
    rows = frame.mapInArrow(_look, "task long, number long, share binary").collect()
    assert sorted((row.task, row.number, bytes(row.share)) for row in rows) == [
        (0, 0, b"a"),
        (1, 1, b""),
        (2, 2, b"ccc"),
    ]


def test_spark_assumes_about_the_given_size(spark: Any) -> None:
    small = shares_frame(spark, [b"a"] * 4)
    large = shares_frame(spark, [b"a"] * 4, assumed_bytes=1 << 30)
    assert _size(small) < 10 << 20  # Spark may broadcast it
    assert _size(large) >= 1 << 30
