"""The history of a branch as a stream follows it: which snapshots come next, and their files."""

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

from icestream.commit.kept_tasks import KeptTasks
from icestream.errors import FileMissingError, InvalidArgumentError, StreamError
from icestream.memory import MemoryBudget
from icestream.read.manifests import added_entries
from icestream.read.plan import plan_tasks
from icestream.read.request import request
from icestream.spark.reader import PinnedTable
from icestream.spark.stream_offset import StreamOffset
from icestream.spark.stream_options import StreamOptions

_AGAIN = "Start with a new checkpointLocation"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Files of one snapshot that a stream is to read.

    Attributes:
        snapshot: The snapshot.
        whole: Whether all files of the table are meant, not only those that it has added.
        first: The first file.
        end: After the last one; None: all that there are.
    """

    snapshot: Snapshot
    whole: bool = False
    first: int = 0
    end: int | None = None


@dataclass(frozen=True, slots=True)
class FollowedBranch:
    """A branch, as the catalog has told of it.

    Attributes:
        pinned: The table.
        branch: The branch.
        options: What is passed over.
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
        """The table's id, which it keeps for life."""
        return str(self.pinned.metadata.table_uuid)

    @property
    def head(self) -> StreamOffset:
        """The end of the history."""
        snapshot = self._head()
        return StreamOffset(snapshot.snapshot_id if snapshot else None)

    def start(self) -> StreamOffset:
        """Where a new stream starts.

        Raises:
            InvalidArgumentError: If there is no such snapshot in the branch.
            StreamError: If the snapshots from there on have expired.
        """
        options = self.options
        if options.start_snapshot_id is not None:
            if options.start_snapshot_id not in {s.snapshot_id for s in self._back()}:
                raise InvalidArgumentError(
                    f"start-snapshot-id is {options.start_snapshot_id}, which is no snapshot of "
                    f"branch {self.branch!r} of {self.name}: it may have expired; table.history() "
                    "lists those that there are"
                )
            return StreamOffset(options.start_snapshot_id)
        if options.start_ms is not None:
            return self._at(options.start_ms)
        head = self.head
        if options.start == "latest" or head.snapshot_id is None:
            return head
        return replace(head, files=0, whole=True)

    def after(self, offset: StreamOffset, until: StreamOffset | None = None) -> list[Stretch]:
        """What comes after an offset, oldest first; what remains of its own snapshot, too.

        Args:
            offset: How far the stream has read.
            until: Where to stop; the head by default.

        Raises:
            StreamError: If the history does not lead there.
        """
        snapshots = self._between(offset, self.head if until is None else until)
        stretches = [Stretch(snapshot) for snapshot in snapshots]
        if offset.files is not None:
            own = self.pinned.metadata.snapshot_by_id(offset.snapshot_id or 0)
            assert own is not None  # _between has found it
            stretches.insert(0, Stretch(own, offset.whole, offset.files))
        if until is not None and until.files is not None:
            stretches[-1] = replace(stretches[-1], end=until.files)
        return stretches

    def brings(self, stretch: Stretch) -> Literal["rows", "nothing"] | StreamError:
        """Whether a snapshot has rows for the stream; the error, if it is in its way."""
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
                f"{named} does not say what it does to the table, so that its rows can't be told "
                f"from older ones. {_AGAIN} and start-snapshot-id {snapshot.snapshot_id}"
            )
        does = "overwrites" if operation is Operation.OVERWRITE else "deletes"
        return StreamError(
            f"{named} {does} rows, and a stream only tells of rows that are added. Set option "
            f"{option!r} to true to pass over such snapshots, with the rows that they add; or "
            f"start with a new checkpointLocation to read the table as it is now"
        )

    def files(
        self, stretch: Stretch, schema: Schema, columns: Collection[int] = ()
    ) -> list[FileScanTask]:
        """All files of a stretch's snapshot, in an order that never changes.

        Args:
            stretch: The snapshot, as a whole or what it added.
            schema: The schema that the stream began with.
            columns: The field ids whose statistics are wanted; others are left out.

        Raises:
            FileMissingError: If the snapshot's manifests are gone.
        """
        try:
            found = self._all(stretch, schema) if stretch.whole else self._added(stretch.snapshot)
            tasks = KeptTasks(None, columns=columns).extend(found)
        except FileMissingError as error:
            raise FileMissingError(
                f"a manifest of snapshot {stretch.snapshot.snapshot_id} of {self.name} is gone: "
                f"{error.path}. Has the snapshot expired? {_AGAIN}",
                path=error.path,
            ) from error
        return sorted(tasks, key=lambda task: task.file.file_path)

    def table_at(self, snapshot_id: int | None, schema: Schema) -> PinnedTable:
        """The table as if that snapshot were its newest, with another schema.

        A stream keeps the schema that it began with; `scan(snapshot_id=...)` would take that of
        the snapshot.
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

    def _all(self, stretch: Stretch, schema: Schema) -> Iterator[FileScanTask]:
        table = self.table_at(stretch.snapshot.snapshot_id, schema).table()
        return plan_tasks(request(table), budget=MemoryBudget())

    def _added(self, snapshot: Snapshot) -> Iterator[FileScanTask]:
        io: FileIO = self.pinned.io
        for entry in added_entries(io, snapshot, table=self.name):
            yield FileScanTask(entry.data_file, residual=AlwaysTrue())

    def _head(self) -> Snapshot | None:
        metadata = self.pinned.metadata
        if self.branch != MAIN_BRANCH and self.branch not in metadata.refs:
            known = ", ".join(sorted(metadata.refs)) or "none"
            raise InvalidArgumentError(f"{self.name} has no branch {self.branch!r}: it has {known}")
        return metadata.snapshot_by_name(self.branch)

    def _back(self) -> Iterator[Snapshot]:
        """The history, newest first, as far as it is known."""
        snapshot = self._head()
        while snapshot is not None:
            yield snapshot
            if snapshot.parent_snapshot_id is None:
                return
            snapshot = self.pinned.metadata.snapshot_by_id(snapshot.parent_snapshot_id)

    def _at(self, start_ms: int) -> StreamOffset:
        """The newest snapshot that is not younger."""
        if start_ms > time.time() * 1000:
            raise InvalidArgumentError(
                f"start-timestamp is {start_ms}, which is yet to come: start=latest follows "
                f"{self.name} from now on"
            )
        oldest = None
        for snapshot in self._back():
            if snapshot.timestamp_ms <= start_ms:
                return StreamOffset(snapshot.snapshot_id)
            oldest = snapshot
        if oldest is not None and not _is_first(oldest):
            raise StreamError(
                f"start-timestamp is {start_ms}, and snapshots of {self.name} from that time have "
                f"expired: the oldest that is left is {oldest.snapshot_id} of "
                f"{oldest.timestamp_ms}. Start there, or with start=earliest for all rows of now"
            )
        return StreamOffset(None)

    def _between(self, offset: StreamOffset, until: StreamOffset) -> Sequence[Snapshot]:
        """The snapshots after an offset's, up to another's."""
        found: list[Snapshot] = []
        started = False
        oldest = None
        for snapshot in self._back():
            started = started or snapshot.snapshot_id == until.snapshot_id
            if snapshot.snapshot_id == offset.snapshot_id:
                if not started:
                    raise self._lost(until)
                return found[::-1]
            if started:
                found.append(snapshot)
            oldest = snapshot
        if not started and until.snapshot_id is not None:
            raise self._lost(until)
        complete = oldest is None or _is_first(oldest)
        if offset.snapshot_id is None and complete:
            return found[::-1]
        raise self._lost(offset, complete)

    def _lost(self, offset: StreamOffset, complete: bool = True) -> StreamError:
        """The error for an offset that is not in the history.

        Args:
            offset: How far the stream has read.
            complete: Whether the history is known to its beginning.
        """
        if offset.snapshot_id is None:
            return StreamError(
                f"the first snapshots of {self.name} have expired before the stream has read them, "
                f"so that rows would be missing. {_AGAIN}, and expire snapshots later"
            )
        named = f"snapshot {offset.snapshot_id} of {self.name}"
        is_there = self.pinned.metadata.snapshot_by_id(offset.snapshot_id) is not None
        if is_there and complete:
            return StreamError(
                f"{named}, up to which the stream has read, is not in the history of branch "
                f"{self.branch!r} any more: the table was rolled back or the branch was moved, and "
                f"rows that were read are no part of it. {_AGAIN}"
            )
        what = "snapshots after it have expired" if is_there else "it has expired"
        return StreamError(
            f"the stream has read up to {named}, and {what} (or the table was rolled back), so "
            f"that rows may be missing. {_AGAIN}, and expire snapshots later"
        )


def _is_first(snapshot: Snapshot) -> bool:
    """Whether nothing was before a snapshot: those whose parents expire lose the link to them."""
    if snapshot.parent_snapshot_id is not None:
        return False
    if snapshot.sequence_number:
        return snapshot.sequence_number == 1
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return summary.get("total-data-files") == summary.get("added-data-files")
