"""The streaming reader of `format("icestream")`: follows the snapshots of a branch.

Spark runs the reader in a Python process on the driver. The reader determines the end of each
micro-batch and its tasks. Snapshots that append contribute their rows. Snapshots that replace files
(compactions) contribute nothing. Others are errors, unless an option skips them.

The stream returns rows as they were when they were added. Its columns are those of the table when
the query started: a column that is added later is read after a restart.
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

from icestream.catalogs.lookup import open_catalog
from icestream.errors import IcestreamError
from icestream.memory.budget import MemoryBudget
from icestream.operations.kept_tasks import KeptTasks
from icestream.read.decode.files import RetryPolicy
from icestream.read.plan.file_predicate import file_test
from icestream.read.plan.scan_plan import TaskSplits
from icestream.read.request import request
from icestream.read.scan import Scan
from icestream.spark.format.table_read import PinnedTable, Share, TableRead
from icestream.spark.streaming.followed_branch import FollowedBranch, Stretch
from icestream.spark.streaming.stream_offset import StreamOffset
from icestream.spark.streaming.stream_options import HAS_ADMISSION_CONTROL, StreamOptions
from icestream.spark.tasks.task_notes import plain_errors

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
    """The remaining capacity of a micro-batch."""

    def __init__(self, options: StreamOptions) -> None:
        self._files, self._bytes = options.max_files, options.max_bytes
        self._empty = True

    def take(self, task: FileScanTask) -> bool:
        """Take one more file if it fits. The first file always fits."""
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
    """On the driver, provides the offsets and tasks of a stream. In a task, reads a share.

    Args:
        read: The read of the table as it was when the query started.
        options: How the stream follows the table.
    """

    def __init__(self, read: TableRead, options: StreamOptions) -> None:
        self._read = read
        self._options = options
        self._schema = read.pinned.metadata.schema()
        self._catalog: Catalog | None = None
        self._now: FollowedBranch | None = None
        self._last: StreamOffset | None = None
        self._budget = MemoryBudget(read.memory_bytes)
        self._listed: dict[tuple[int, bool], KeptTasks] = {}
        self._read_share = read.share_reader

    def __getstate__(self) -> dict[str, Any]:
        """The state for a task, without the table's metadata and catalog."""
        return {"_read_share": self._read_share}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name, like those below
        """Where a new query starts."""
        with plain_errors():
            # `availableNow` has fixed the end of the stream: use the same state of the table.
            now = self._refresh() if self._last is None or self._now is None else self._now
            return replace(now.start(), is_initial=True).to_json(now.uuid)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the current head as the end of the stream."""
        with plain_errors():
            self._last = self._refresh().head

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """The limit in the options. Spark supports only one, but `latestOffset` applies both."""
        if self._options.max_files is not None:
            return ReadMaxFiles(self._options.max_files)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802
        self, start: Mapping[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """The end of the next micro-batch.

        Args:
            start: The end of the previous micro-batch. PySpark 4.1 does not pass it.
            limit: The limit of the trigger. PySpark 4.1 does not pass it.
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
        """The end of the history when the table was last loaded."""
        return None if self._now is None else self._now.head.to_json(self._now.uuid)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Share]:
        """The tasks of a micro-batch."""
        if start == end:
            return []
        with plain_errors():
            now = self._now or self._refresh()
            first = StreamOffset.of_json(start, now.uuid, table=now.name)
            last = StreamOffset.of_json(end, now.uuid, table=now.name)
            stretches = now.after(last.start_of(first), last)
            return self._shares(now, last, self._new_tasks(now, stretches))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: read a share.

        Memory: the scan stays within the task's limit.
        """
        return self._read_share(partition)

    def stop(self) -> None:
        """Release everything at the end of the query."""
        self._forget(len(self._listed))
        if self._catalog is not None:
            self._catalog.close()

    def _refresh(self) -> FollowedBranch:
        branch = self._read.options.scan.get("branch") or MAIN_BRANCH
        if self._catalog is None:
            options = self._read.options
            self._catalog = open_catalog(options.catalog, options.catalog_properties)
        pinned = PinnedTable.load(self._read.options, self._catalog)
        self._now = FollowedBranch(pinned, branch, self._options)
        return self._now

    def _advance(
        self, now: FollowedBranch, offset: StreamOffset, room: _Room | None
    ) -> StreamOffset:
        """The end of a micro-batch: where it is full, or before a snapshot that is an error."""
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

    def _new_tasks(self, now: FollowedBranch, stretches: list[Stretch]) -> Iterator[FileScanTask]:
        """The files of stretches, one after the other."""
        for stretch in stretches:
            brings = now.brings(stretch)
            if isinstance(brings, Exception):
                raise brings
            if brings == "rows":
                files = self._files(now, stretch)
                end = len(files) if stretch.end is None else stretch.end
                yield from (files[number] for number in range(stretch.first, end))

    def _files(self, now: FollowedBranch, stretch: Stretch) -> KeptTasks:
        """All files of the stretch's snapshot, listed once while the stream reads it."""
        key = stretch.snapshot.snapshot_id, stretch.whole
        if key not in self._listed:
            self._forget(len(self._listed) - _SNAPSHOTS_KEPT + 1)
            self._listed[key] = now.files(
                stretch, self._schema, self._filter_columns(now), budget=self._budget
            )
        return self._listed[key]

    def _forget(self, count: int) -> None:
        """Close the file lists of the oldest `count` snapshots."""
        for key in list(self._listed)[: max(count, 0)]:
            self._listed.pop(key).close()

    def _filter_columns(self, now: FollowedBranch) -> set[int]:
        """The field ids of the columns in the row filter."""
        arguments = {k: v for k, v in self._read.options.scan.items() if k != "branch"}
        context = request(now.table_at(None, self._schema).table(), **arguments).context
        bound = bind(context.read_schema, context.row_filter, context.case_sensitive)
        return extract_field_ids(bound)

    def _shares(
        self, now: FollowedBranch, end: StreamOffset, tasks: Iterator[FileScanTask]
    ) -> list[Share]:
        arguments = {k: v for k, v in self._read.options.scan.items() if k != "branch"}
        scanned = request(now.table_at(end.snapshot_id, self._schema).table(), **arguments)
        row_filter = scanned.context.row_filter
        might_match = file_test(
            scanned.data_scan.table_metadata,
            row_filter,
            case_sensitive=scanned.context.case_sensitive,
        )
        left = (
            FileScanTask(task.file, task.delete_files, residual=row_filter)
            for task in tasks
            if might_match(task.file)
        )
        planned = Scan(
            scanned,
            splits=TaskSplits(scanned, left),
            memory=self._read.memory_bytes,
            batch_size=None,
            order=None,
            policy=RetryPolicy(),
        )
        return self._read.shares(planned)


def _start_of(now: FollowedBranch) -> StreamOffset | None:
    """Where a stream would start now, or None if it can't start.

    PySpark 4.1 does not say whether a stream is new. If it is not, the start does not matter.
    """
    try:
        return now.start()
    except IcestreamError:
        return None
