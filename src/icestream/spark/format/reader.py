"""The batch readers of `format("icestream")`, which run in the process where Spark plans.

`PushingReader` also applies the filters of the query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from icestream.read.request import request
from icestream.spark.format.filters import pushed
from icestream.spark.format.table_read import Share, TableRead
from icestream.spark.tasks.task_notes import planning_errors


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Plans a table when Spark requests its partitions."""

    def __init__(self, read: TableRead) -> None:
        self._read = read
        self._more: BooleanExpression = AlwaysTrue()
        self._read_share = read.share_reader

    def __getstate__(self) -> dict[str, Any]:
        """The state for a task, without the table's metadata and catalog."""
        return {"_read_share": self._read_share}

    def partitions(self) -> list[Share]:
        """Plan the read, and return one share for each task."""
        with planning_errors():
            return self._read.shares(self._read.scan(self._more))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """In a task: read a share."""
        return self._read_share(partition)


class PushingReader(TableReader):
    """A `TableReader` that applies the query's filters if it can do so exactly."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Accept filters of the query, and return those that Spark must apply."""
        context = request(
            self._read.pinned.table(),
            **{k: v for k, v in self._read.options.scan.items() if k != "where"},
        ).context
        translated = [(each, pushed(each, context.schema)) for each in filters]
        for _, expression in translated:
            if expression is not None:
                self._more = And(self._more, expression)
        return [each for each, expression in translated if expression is None]
