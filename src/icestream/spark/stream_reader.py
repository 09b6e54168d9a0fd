"""The streaming reader of `format("icestream")`: follows the snapshots of a branch.

Spark runs it in a Python process on the driver, asks it how far a micro-batch may go, and for the
tasks of one. Snapshots that append bring their rows; those that replace (compactions) bring nothing
new; others are errors, unless an option says to pass over them.

Rows come as they were when they were added. The columns are those of the table when the query was
started: a column that is added later is read after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.table import FileScanTask
from pyiceberg.table.refs import MAIN_BRANCH
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from icestream.catalogs import open_catalog
from icestream.errors import IcestreamError
from icestream.read.file_test import file_test
from icestream.read.files import RetryPolicy
from icestream.read.plan import TaskSplits
from icestream.read.request import request
from icestream.read.scan import Scan
from icestream.spark.followed_branch import FollowedBranch, Stretch
from icestream.spark.plain_errors import plain_errors
from icestream.spark.planning import plan_tasks
from icestream.spark.reader import PinnedTable, TableRead
from icestream.spark.share_reader import Share, ShareReader
from icestream.spark.stream_offset import StreamOffset
from icestream.spark.stream_options import HAS_ADMISSION_CONTROL, StreamOptions
from icestream.spark.task_plan import TaskPlan

_bases: tuple[type, ...] = (DataSourceStreamReader,)
if HAS_ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )

    _bases = (DataSourceStreamReader, SupportsTriggerAvailableNow)

_SNAPSHOTS_KEPT = 2


class _Room:
    """What a micro-batch may still take."""

    def __init__(self, options: StreamOptions) -> None:
        self._files, self._bytes = options.max_files, options.max_bytes
        self._empty = True

    def take(self, task: FileScanTask) -> bool:
        """Whether one more file fits; the first always does."""
        size = task.file.file_size_in_bytes
        full = self._files is not None and self._files < 1
        full = full or (self._bytes is not None and self._bytes < size)
        if full and not self._empty:
            return False
        self._empty = False
        self._files = None if self._files is None else self._files - 1
        self._bytes = None if self._bytes is None else self._bytes - size
        return True


class IcestreamStreamReader(*_bases):  # type: ignore[misc]
    """Offsets and tasks of a stream, on the driver; in a task it reads a share.

    Args:
        read: The read, of the table as it was when the query was started.
        options: How the table is followed.
    """

    def __init__(self, read: TableRead, options: StreamOptions) -> None:
        self._read = read
        self._options = options
        self._schema = read.pinned.metadata.schema()
        self._catalog: Catalog | None = None
        self._now: FollowedBranch | None = None
        self._last: StreamOffset | None = None
        self._listed: dict[tuple[int, bool], list[FileScanTask]] = {}
        self._tasks = ShareReader(
            TaskPlan(
                (),
                read.options.memory_bytes or read.defaults.memory_bytes,
                read.defaults.batch_rows,
            )
        )

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs: neither the table's metadata nor how to reach its catalog."""
        return {"_tasks": self._tasks}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, as are those below
        """Where a new query starts."""
        with plain_errors():
            # With `availableNow`, what was there then is all there is.
            now = self._refresh() if self._last is None or self._now is None else self._now
            return replace(now.start(), is_initial=True).to_json(now.uuid)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let what is there now be the end."""
        with plain_errors():
            self._last = self._refresh().head

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """The limit of the options. Spark knows of one only, `latestOffset` of both."""
        if self._options.max_files is not None:
            return ReadMaxFiles(self._options.max_files)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802
        self, start: Mapping[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """How far the next micro-batch goes.

        Args:
            start: How far the last one went; PySpark 4.1 does not say.
            limit: What Spark wants; likewise.
        """
        with plain_errors():
            now = self._refresh()
            if start is None:
                return replace(now.head, began=_start_of(now)).to_json(now.uuid)
            offset = StreamOffset.of_json(start, now.uuid, table=now.name)
            everything = limit is None or isinstance(limit, ReadAllAvailable)
            room = None if everything else _Room(self._options)
            reached = self._advance(now, offset, room)
            if reached == offset:
                return dict(start)
            began = offset if offset.is_initial else None
            return replace(reached, began=began).to_json(now.uuid)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The end of the history, when it was looked at last."""
        return None if self._now is None else self._now.head.to_json(self._now.uuid)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Share]:
        """The tasks of a micro-batch."""
        if start == end:
            return []
        with plain_errors():
            now = self._now or self._refresh()
            first = StreamOffset.of_json(start, now.uuid, table=now.name)
            last = StreamOffset.of_json(end, now.uuid, table=now.name)
            tasks: list[FileScanTask] = []
            for stretch in now.after(last.start_of(first), last):
                brings = now.brings(stretch)
                if isinstance(brings, Exception):
                    raise brings
                if brings == "rows":
                    tasks += self._files(now, stretch)[stretch.first : stretch.end]
            return self._shares(now, last, tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: read a share.

        Memory: what the scan holds stays within the task's limit.
        """
        return self._tasks.read(partition)

    def stop(self) -> None:
        """The query has ended."""
        if self._catalog is not None:
            self._catalog.close()

    def _refresh(self) -> FollowedBranch:
        branch = self._read.options.scan.get("branch") or MAIN_BRANCH
        if self._catalog is None:
            asked = self._read.options
            self._catalog = open_catalog(asked.catalog, asked.catalog_properties)
        pinned = PinnedTable.load(self._read.options, self._catalog)
        self._now = FollowedBranch(pinned, branch, self._options)
        return self._now

    def _advance(
        self, now: FollowedBranch, offset: StreamOffset, room: _Room | None
    ) -> StreamOffset:
        """As far as there is room, and nothing is in the way that an earlier batch can avoid."""
        reached = offset
        for stretch in now.after(offset, self._last):
            brings = now.brings(stretch)
            if isinstance(brings, Exception):
                if reached == offset:
                    raise brings
                return reached
            if brings == "rows" and room is not None:
                files = self._files(now, stretch)
                for number in range(stretch.first, len(files)):
                    if not room.take(files[number]):
                        if number == stretch.first:
                            return reached
                        return StreamOffset(stretch.snapshot.snapshot_id, number, stretch.whole)
            reached = StreamOffset(stretch.snapshot.snapshot_id)
        return reached

    def _files(self, now: FollowedBranch, stretch: Stretch) -> list[FileScanTask]:
        """All files of the stretch's snapshot, listed once while the stream is in it."""
        key = stretch.snapshot.snapshot_id, stretch.whole
        if key not in self._listed:
            while len(self._listed) >= _SNAPSHOTS_KEPT:
                self._listed.pop(next(iter(self._listed)))
            self._listed[key] = now.files(stretch, self._schema, self._filter_columns(now))
        return self._listed[key]

    def _filter_columns(self, now: FollowedBranch) -> set[int]:
        """The columns that files are chosen by."""
        arguments = {k: v for k, v in self._read.options.scan.items() if k != "branch"}
        context = request(now.table_at(None, self._schema).table(), **arguments).context
        bound = bind(context.read_schema, context.row_filter, context.case_sensitive)
        return extract_field_ids(bound)

    def _shares(
        self, now: FollowedBranch, end: StreamOffset, tasks: list[FileScanTask]
    ) -> list[Share]:
        arguments = {k: v for k, v in self._read.options.scan.items() if k != "branch"}
        asked = request(now.table_at(end.snapshot_id, self._schema).table(), **arguments)
        row_filter = asked.context.row_filter
        might_match = file_test(
            asked.data_scan.table_metadata,
            row_filter,
            case_sensitive=asked.context.case_sensitive,
        )
        left = [
            FileScanTask(task.file, task.delete_files, residual=row_filter)
            for task in tasks
            if might_match(task.file)
        ]
        memory_bytes = self._read.options.memory_bytes or self._read.defaults.memory_bytes
        planned = Scan(
            asked,
            splits=list(TaskSplits(asked, left)),
            memory=memory_bytes,
            batch_size=None,
            order=None,
            policy=RetryPolicy(),
        )
        plan = plan_tasks(
            planned,
            self._read.defaults,
            memory_bytes=memory_bytes,
            split_bytes=self._read.options.split_bytes,
        )
        return [Share(share) for share in plan.shares]


def _start_of(now: FollowedBranch) -> StreamOffset | None:
    """Where a stream would start that starts now.

    PySpark 4.1 does not say whether one does: for others, it does not matter that it can't be told.
    """
    try:
        return now.start()
    except IcestreamError:
        return None
