"""The streaming side of the sink: `df.writeStream.format("icestream") ... .start("db.t")`.

Each micro-batch becomes exactly one snapshot, unless it is empty. The options are those of
`icestream.spark.format.sink` for appending, and this one:

| option | meaning |
|---|---|
| `stream-id` | the stream's name, required: see `icestream.spark.streaming.stream_id` |

Spark creates one writer in a Python process and sends it to the tasks. It creates a second writer
in another process for the commit, which gets the first writer's plan with the tasks' results.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from icestream.commit.outcome.load_id import batch_load_id
from icestream.errors import InvalidArgumentError
from icestream.spark.arrow.frame_schema import arrow_schema
from icestream.spark.format.sink import SinkOptions
from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.streaming.stream_id import (
    QUERY_ID_KEY,
    QUERY_ID_PROPERTY,
    check_stream_id,
    refuse_other_query,
)
from icestream.spark.tasks.task_notes import plain_errors
from icestream.spark.tasks.task_write import TaskResult
from icestream.spark.writing.table_write import PlannedWrite
from icestream.spark.writing.written_frame import plan

_STREAM_ID = "stream-id"
_OF_SPARK = ("checkpointlocation", "queryname")
_log = logging.getLogger(__name__)


class BatchAnswer(WriterCommitMessage):  # type: ignore[misc]
    """The result of a task of a micro-batch.

    Attributes:
        result: The files that the task wrote.
        query_id: The id of the query, which Spark gives to its tasks.
        write_id: The id of the write that the files belong to.
        planned: The plan. Only the first task returns it, because it has the table's metadata.
    """

    def __init__(self, result: TaskResult, planned: PlannedWrite) -> None:
        context = TaskContext.get()
        first = context is None or context.partitionId() == 0
        self.result = result
        self.query_id = context.getLocalProperty(QUERY_ID_PROPERTY) if context else None
        self.write_id = planned.target.write_id
        self.planned = planned if first else None


class IcestreamStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Plans a micro-batch and writes it in tasks. A second writer commits it."""

    def __init__(
        self,
        options: Mapping[str, str],
        schema: Any,
        overwrite: bool,
        defaults: SessionDefaults,
    ) -> None:
        """Plan a write. Nothing is written or created yet.

        Args:
            options: The options of the writer.
            schema: The frame's Spark schema.
            overwrite: Whether the output mode is `complete`.
            defaults: The defaults of the session.

        Raises:
            SchemaMismatchError: If the frame does not fit the table.
            InvalidArgumentError: If an option is unknown or invalid.
            CatalogError: If the catalog has no such table, or can't be reached.
        """
        given = {name.lower(): value for name, value in options.items()}
        if overwrite:
            raise InvalidArgumentError(
                "output mode 'complete' would write all rows again with every micro-batch: use "
                "'append', or 'update' with foreachBatch(icestream.spark.merge_batches(...))"
            )
        if "load-id" in given:
            raise InvalidArgumentError(
                "load-id is for one load, but a stream makes many: leave it out. stream-id and the "
                "number of the micro-batch take its place"
            )
        how = '.option("stream-id", "orders")'
        self._stream_id = check_stream_id(given.pop(_STREAM_ID, None), how=how)
        for name in _OF_SPARK:
            given.pop(name, None)
        given.setdefault("memory", str(defaults.memory_bytes))
        self._options = SinkOptions.of(given, overwrite=False)
        self._planned, self._into = plan(
            self._options.table,
            self._options.open_catalog(),
            arrow_schema(schema),
            self._options.write,
            self._options.creation,
        )

    def __getstate__(self) -> dict[str, Any]:
        """The state for a task: the plan without the catalog."""
        return {"_planned": self._planned}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchAnswer:
        """In a task: write its rows.

        Memory: the Arrow bytes held stay within the option `memory`.
        """
        return BatchAnswer(self._planned.task.write(iterator), self._planned)

    def commit(self, messages: Sequence[BatchAnswer | None], batchId: int) -> None:  # noqa: N803
        """Commit the files of all tasks as one snapshot, unless this batch is already committed."""
        answers = [answer for answer in messages if answer is not None]
        results = [answer.result for answer in answers]
        if not any(result.written.files for result in results):
            return
        query_id = answers[0].query_id
        planned = next(answer.planned for answer in answers if answer.planned is not None)
        properties = {**(planned.options.properties or {})}
        if query_id is not None:
            properties[QUERY_ID_KEY] = query_id
        load_id = batch_load_id(self._stream_id, batchId)
        options = replace(planned.options, load_id=load_id, properties=properties)
        planned = replace(planned, options=options)
        with plain_errors():
            self._refuse_other_query(planned, query_id)
            into = self._into if planned.new_table is None else self._options.open_catalog()
            report = planned.commit(into, results)
        _log.debug("%s, batch %s: %s", self._options.table, batchId, report)

    def abort(self, messages: Sequence[BatchAnswer | None], batchId: int) -> None:  # noqa: N803
        """Delete the files of a batch whose tasks failed.

        A task that fails deletes its own files. If no task has returned a result, the id of the
        write is unknown, and `orphans` finds the files later. Spark calls this method after a
        failed commit, too. In that case every task has returned a result, and the commit has
        deleted the files itself unless they may be in the table.
        """
        answered = next((answer for answer in messages if answer is not None), None)
        if answered is None or all(message is not None for message in messages):
            return
        target = replace(self._planned.target, write_id=answered.write_id)
        replace(self._planned, target=target).abandon()

    def _refuse_other_query(self, planned: PlannedWrite, query_id: str | None) -> None:
        if not isinstance(self._into, Table):
            return
        branch = planned.options.branch or MAIN_BRANCH
        metadata = self._into.metadata
        try:
            refuse_other_query(
                metadata, branch, self._stream_id, query_id, table=planned.target.table
            )
        except BaseException:
            planned.abandon()
            raise
