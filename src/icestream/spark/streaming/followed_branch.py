"""The history of a branch that a stream follows: the next snapshots, and their files."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from icestream.errors import FileMissingError, InvalidArgumentError, StreamError
from icestream.memory.budget import MemoryBudget
from icestream.operations.kept_tasks import KeptTasks
from icestream.read.plan.manifests import added_entries
from icestream.read.plan.scan_plan import plan_tasks
from icestream.read.request import request
from icestream.spark.format.table_read import PinnedTable
from icestream.spark.streaming.stream_offset import StreamOffset
from icestream.spark.streaming.stream_options import StreamOptions

_AGAIN = "Start with a new checkpointLocation"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Files of one snapshot that a stream reads.

    Attributes:
        snapshot: The snapshot.
        whole: Whether to read all files of the table, or only those that the snapshot added.
        first: The number of the first file.
        end: The number after the last file. None means all files.
    """

    snapshot: Snapshot
    whole: bool = False
    first: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class FollowedBranch:
    """The state of a branch at one time.

    Attributes:
        pinned: The table.
        branch: The branch.
        options: Where the stream starts, and which snapshots it skips.
    """

    pinned: PinnedTable
    branch: str
    options: StreamOptions

    @property
    def name(self) -> str:
        """The table's name."""
        return ".".join(self.pinned.name)

    @property
    def uuid(self) -> str:
        """The table's UUID, which never changes."""
        return str(self.pinned.metadata.table_uuid)

    @property
    def head(self) -> StreamOffset:
        """The offset at the end of the history."""
        snapshot = self._head()
        return StreamOffset(snapshot.snapshot_id if snapshot else None)

    def start(self) -> StreamOffset:
        """The offset where a new stream starts.

        Raises:
            InvalidArgumentError: If the branch has no such snapshot.
            StreamError: If the snapshots after the start have expired.
        """
        options = self.options
        if options.start_snapshot_id is not None:
            if options.start_snapshot_id not in {s.snapshot_id for s in self._back()}:
                raise InvalidArgumentError(
                    f"start-snapshot-id is {options.start_snapshot_id}, but branch {self.branch!r} "
                    f"of {self.name} has no such snapshot: it may have expired. table.history() "
                    "lists the snapshots"
                )
            return StreamOffset(options.start_snapshot_id)
        if options.start_ms is not None:
            return self._at(options.start_ms)
        head = self.head
        if options.start == "latest" or head.snapshot_id is None:
            return head
        return replace(head, files=0, whole=True)

    def after(self, offset: StreamOffset, until: StreamOffset | None = None) -> list[Stretch]:
        """The files after an offset, oldest first, including the rest of the offset's snapshot.

        Args:
            offset: The position of the stream.
            until: Where to stop. By default at the head.

        Raises:
            StreamError: If the history does not connect the two offsets.
        """
        snapshots = self._between(offset, self.head if until is None else until)
        stretches = [Stretch(snapshot) for snapshot in snapshots]
        if offset.files is not None:
            own = self.pinned.metadata.snapshot_by_id(offset.snapshot_id or 0)
            assert own is not None  # because _between returned
            stretches.insert(0, Stretch(own, offset.whole, offset.files))
        if until is not None and until.files is not None:
            stretches[-1] = replace(stretches[-1], end=until.files)
        return stretches

    def brings(self, stretch: Stretch) -> Literal["rows", "nothing"] | StreamError:
        """Whether a snapshot has rows for the stream, or the error if it stops the stream."""
        if stretch.whole:
            return "rows"
        snapshot = stretch.snapshot
        operation = snapshot.summary.operation if snapshot.summary else None
        if operation is Operation.APPEND:
            return "rows"
        if operation is Operation.REPLACE:  # a compaction: the same rows in other files
            return "nothing"
        skipped, option = {
            Operation.OVERWRITE: (self.options.skip_overwrites, "skip-overwrite-snapshots"),
            Operation.DELETE: (self.options.skip_deletes, "skip-delete-snapshots"),
        }.get(operation or Operation.APPEND, (False, None))
        if skipped:
            return "nothing"
        named = f"snapshot {snapshot.snapshot_id} of {self.name}"
        if option is None:
            return StreamError(
                f"{named} does not record its operation, so its new rows can't be distinguished "
                f"from older ones. {_AGAIN} and start-snapshot-id {snapshot.snapshot_id}"
            )
        does = "overwrites" if operation is Operation.OVERWRITE else "deletes"
        return StreamError(
            f"{named} {does} rows, but a stream only reads rows that are added. Set option "
            f"{option!r} to true to skip such snapshots and the rows that they add, or start with "
            "a new checkpointLocation to read the table as it is now"
        )

    def files(
        self,
        stretch: Stretch,
        schema: Schema,
        columns: Collection[int] = (),
        *,
        budget: MemoryBudget,
    ) -> KeptTasks:
        """All files of a stretch's snapshot, in an order that never changes.

        Args:
            stretch: The snapshot, with all its files or with those that it added.
            schema: The schema with which the stream started.
            columns: The field ids whose statistics are kept.
            budget: The budget that the descriptions of the files count against until `close`.

        Raises:
            FileMissingError: If manifests of the snapshot are missing.
            MemoryBudgetError: If the descriptions of the files need more than half of the limit.
        """
        tasks = KeptTasks(budget, columns=columns)
        try:
            if stretch.whole:
                tasks.extend(self._all(stretch, schema, budget))
            else:
                tasks.extend(self._added(stretch.snapshot, budget))
            tasks.sort_by_path()
        except BaseException as error:
            tasks.close()
            if not isinstance(error, FileMissingError):
                raise
            raise FileMissingError(
                f"a manifest of snapshot {stretch.snapshot.snapshot_id} of {self.name} is missing: "
                f"{error.path}. Has the snapshot expired? {_AGAIN}",
                path=error.path,
            ) from error
        return tasks

    def table_at(self, snapshot_id: int | None, schema: Schema) -> PinnedTable:
        """The table as if that snapshot were its newest, with another schema.

        A stream keeps the schema with which it started. `scan(snapshot_id=...)` would use the
        snapshot's schema.
        """
        metadata = self.pinned.metadata
        schemas = metadata.schemas
        if schema.schema_id not in {known.schema_id for known in schemas}:
            schemas = [*schemas, schema]
        refs = {}
        if snapshot_id is not None:
            refs[MAIN_BRANCH] = SnapshotRef.model_validate(
                {"snapshot-id": snapshot_id, "type": SnapshotRefType.BRANCH}
            )
        changed = metadata.model_copy(
            update={
                "schemas": schemas,
                "current_schema_id": schema.schema_id,
                "current_snapshot_id": snapshot_id,
                "refs": refs,
            }
        )
        return replace(self.pinned, metadata=changed)

    def _all(
        self, stretch: Stretch, schema: Schema, budget: MemoryBudget
    ) -> Iterator[FileScanTask]:
        table = self.table_at(stretch.snapshot.snapshot_id, schema).table()
        return plan_tasks(request(table), budget=budget)

    def _added(self, snapshot: Snapshot, budget: MemoryBudget) -> Iterator[FileScanTask]:
        io: FileIO = self.pinned.io
        for entry in added_entries(io, snapshot, table=self.name, budget=budget):
            yield FileScanTask(entry.data_file, residual=AlwaysTrue())

    def _head(self) -> Snapshot | None:
        metadata = self.pinned.metadata
        if self.branch != MAIN_BRANCH and self.branch not in metadata.refs:
            known = ", ".join(sorted(metadata.refs)) or "none"
            raise InvalidArgumentError(f"{self.name} has no branch {self.branch!r}: it has {known}")
        return metadata.snapshot_by_name(self.branch)

    def _back(self) -> Iterator[Snapshot]:
        """The snapshots of the history that have not expired, newest first."""
        snapshot = self._head()
        while snapshot is not None:
            yield snapshot
            if snapshot.parent_snapshot_id is None:
                return
            snapshot = self.pinned.metadata.snapshot_by_id(snapshot.parent_snapshot_id)

    def _at(self, start_ms: int) -> StreamOffset:
        """The newest snapshot at or before a time."""
        if start_ms > time.time() * 1000:
            raise InvalidArgumentError(
                f"start-timestamp is {start_ms}, which is in the future: to follow {self.name} "
                "from now on, use start=latest"
            )
        oldest = None
        for snapshot in self._back():
            if snapshot.timestamp_ms <= start_ms:
                return StreamOffset(snapshot.snapshot_id)
            oldest = snapshot
        if oldest is not None and not _is_first(oldest):
            raise StreamError(
                f"start-timestamp is {start_ms}, but the snapshots of {self.name} from that time "
                f"have expired: the oldest one left is {oldest.snapshot_id}, created at "
                f"{oldest.timestamp_ms}. Start there, or read all current rows with start=earliest"
            )
        return StreamOffset(None)

    def _between(self, offset: StreamOffset, until: StreamOffset) -> Sequence[Snapshot]:
        """The snapshots after one offset, up to another."""
        snapshots: list[Snapshot] = []
        started = False
        oldest = None
        for snapshot in self._back():
            started = started or snapshot.snapshot_id == until.snapshot_id
            if snapshot.snapshot_id == offset.snapshot_id:
                if not started:
                    raise self._lost(until)
                return snapshots[::-1]
            if started:
                snapshots.append(snapshot)
            oldest = snapshot
        if not started and until.snapshot_id is not None:
            raise self._lost(until)
        complete = oldest is None or _is_first(oldest)
        if offset.snapshot_id is None and complete:
            return snapshots[::-1]
        raise self._lost(offset, complete)

    def _lost(self, offset: StreamOffset, complete: bool = True) -> StreamError:
        """The error for an offset that is not in the history.

        Args:
            offset: The position of the stream.
            complete: Whether the history is known back to its beginning.
        """
        if offset.snapshot_id is None:
            return StreamError(
                f"the first snapshots of {self.name} have expired before the stream has read them, "
                f"so rows would be missing. {_AGAIN}, and expire snapshots later"
            )
        named = f"snapshot {offset.snapshot_id} of {self.name}"
        is_there = self.pinned.metadata.snapshot_by_id(offset.snapshot_id) is not None
        if is_there and complete:
            return StreamError(
                f"{named}, up to which the stream has read, is no longer in the history of branch "
                f"{self.branch!r}: the table was rolled back or the branch was moved, and rows "
                f"that the stream has read are no longer in the table. {_AGAIN}"
            )
        what = "snapshots after it have expired" if is_there else "it has expired"
        return StreamError(
            f"the stream has read up to {named}, but {what} (or the table was rolled back), so "
            f"rows may be missing. {_AGAIN}, and expire snapshots later"
        )


def _is_first(snapshot: Snapshot) -> bool:
    """Whether a snapshot is the first of its table. Others lose their parent when it expires."""
    if snapshot.parent_snapshot_id is not None:
        return False
    if snapshot.sequence_number:
        return snapshot.sequence_number == 1
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return summary.get("total-data-files") == summary.get("added-data-files")
