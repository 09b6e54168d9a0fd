"""Whether what others committed since a change was planned is in its way.

PyIceberg's own checks miss conflicts (docs/design/0006), so these are ours. They walk the branch
from its head back to where the change was planned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from icestream.commit.change import Change, Key, partition_values
from icestream.errors import CommitConflictError
from icestream.read.file_test import file_test
from icestream.read.manifests import metadata_files

# The columns of a position delete file; its bounds on the path tell which data files it is for.
_DELETED_PATH_ID = 2147483546


def validate(
    change: Change,
    metadata: TableMetadata,
    io: FileIO,
    *,
    base_id: int | None,
    head: Snapshot | None,
    table: str,
) -> None:
    """Refuse a change that others have made wrong since it was planned.

    That the files to remove still exist is found out when the manifests are rewritten.

    Args:
        change: What is to be committed.
        metadata: The table as it is now.
        io: How manifests are read.
        base_id: The branch's head when the change was planned, without what is only staged.
        head: The branch's head now, without what is only staged.
        table: The table's name, for messages.

    Raises:
        CommitConflictError: If data was added, or rows were deleted, that the change did not see.
    """
    if change.only_adds or base_id == (head.snapshot_id if head else None):
        return
    between = _snapshots_between(change, metadata, base_id, head, table)
    if change.conflict_filter is not None or change.conflict_partitions is not None:
        if base_id is None and head is not None:
            _refuse_live_data(change, metadata, io, head, table)
        else:
            _refuse_added_data(change, metadata, io, between, table)
    if change.removed or change.deleted_from:
        _refuse_new_deletes(change, io, between, table)
    if change.deleted_from:
        _refuse_removed_files(change, io, between, table)


def _snapshots_between(
    change: Change,
    metadata: TableMetadata,
    base_id: int | None,
    head: Snapshot | None,
    table: str,
) -> list[Snapshot]:
    found: list[Snapshot] = []
    for snapshot in ancestors_of(head, metadata):
        if snapshot.snapshot_id == base_id:
            return found
        found.append(snapshot)
    if base_id is not None:
        raise CommitConflictError(
            f"snapshot {base_id}, from which this change to {table} was planned, is no "
            f"longer in the history of {change.branch!r}: it was rolled back or expired meanwhile. "
            "Nothing was changed; start again"
        )
    if found and found[-1].parent_snapshot_id is not None:
        raise CommitConflictError(
            f"{change.branch!r} of {table} was empty when this change was planned, and snapshot "
            f"{found[-1].parent_snapshot_id}, which was committed since, has expired: what it did "
            "is not known. Nothing was changed; start again"
        )
    return found


def _refuse_live_data(
    change: Change, metadata: TableMetadata, io: FileIO, head: Snapshot, table: str
) -> None:
    """Refuse a change planned on an empty branch that would have had to see what is there now.

    All of it was added since. Snapshots that added it may have expired, and PyIceberg leaves no
    trace of that in those that are left, so this goes by the files that are there.
    """
    might_match = _conflict_test(change, metadata)
    for manifest in head.manifests(io):
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in metadata_files(io, table=table).entries(manifest):
            if might_match(entry.data_file):
                raise _added_rows(entry.snapshot_id, entry.data_file, table)


def _refuse_added_data(
    change: Change, metadata: TableMetadata, io: FileIO, between: list[Snapshot], table: str
) -> None:
    might_match = _conflict_test(change, metadata)
    for snapshot, entry in _added(io, between, ManifestContent.DATA, table):
        if snapshot.summary and snapshot.summary.operation == Operation.REPLACE:
            continue  # the same rows in other files
        if might_match(entry.data_file):
            raise _added_rows(snapshot.snapshot_id, entry.data_file, table)


def _added_rows(snapshot_id: int | None, file: DataFile, table: str) -> CommitConflictError:
    return CommitConflictError(
        f"snapshot {snapshot_id} added rows to {table} that this change would have had to see "
        f"({file.file_path}). Nothing was changed; start again, or let such rows stay: set "
        "write.delete.isolation-level (for an overwrite write.update.isolation-level) to snapshot"
    )


def _conflict_test(change: Change, metadata: TableMetadata) -> Callable[[DataFile], bool]:
    if change.conflict_filter is not None:
        schema_id = change.conflict_schema_id
        if schema_id is not None:  # columns may have been renamed meanwhile
            if metadata.schema_by_id(schema_id) is None:
                return lambda file: True
            metadata = metadata.model_copy(update={"current_schema_id": schema_id})
        return file_test(metadata, change.conflict_filter, case_sensitive=True)
    keys, spec_id = change.conflict_partitions or frozenset(), change.conflict_spec_id
    if spec_id is None:
        spec_id = metadata.default_spec_id
    return lambda file: file.spec_id != spec_id or partition_values(file) in keys


def _refuse_new_deletes(change: Change, io: FileIO, between: list[Snapshot], table: str) -> None:
    removed = _Removed.of(change.removed + change.deleted_from)
    for snapshot, entry in _added(io, between, ManifestContent.DELETES, table):
        if removed.might_be_deleted_from(entry.data_file):
            raise CommitConflictError(
                f"snapshot {snapshot.snapshot_id} deleted rows of {table} from files that this "
                "change rewrites, or deletes from: they would come back, or come twice. Nothing "
                "was changed; start again"
            )


def _refuse_removed_files(change: Change, io: FileIO, between: list[Snapshot], table: str) -> None:
    """Positions mean nothing once their file is gone: its rows are elsewhere then."""
    paths = {file.file_path for file in change.deleted_from}
    removed = _entries(io, between, ManifestContent.DATA, ManifestEntryStatus.DELETED, table)
    for snapshot, entry in removed:
        if entry.data_file.file_path in paths:
            raise CommitConflictError(
                f"snapshot {snapshot.snapshot_id} removed a file of {table} that this change "
                f"deletes rows of ({entry.data_file.file_path}). Nothing was changed; start again"
            )


def _added(
    io: FileIO, between: list[Snapshot], content: ManifestContent, table: str
) -> Iterator[tuple[Snapshot, ManifestEntry]]:
    return _entries(io, between, content, ManifestEntryStatus.ADDED, table)


def _entries(
    io: FileIO,
    between: list[Snapshot],
    content: ManifestContent,
    status: ManifestEntryStatus,
    table: str,
) -> Iterator[tuple[Snapshot, ManifestEntry]]:
    """What each of some snapshots added, or removed."""
    for snapshot in between:
        for manifest in snapshot.manifests(io):
            if manifest.content != content or manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in metadata_files(io, table=table).entries(manifest, removed=True):
                if entry.status == status:
                    yield snapshot, entry


@dataclass(frozen=True, slots=True)
class _Removed:
    """Which delete files might be about files that a change removes."""

    paths: frozenset[bytes]
    partitions: frozenset[tuple[int, Key]]

    @classmethod
    def of(cls, files: tuple[DataFile, ...]) -> _Removed:
        return cls(
            frozenset(file.file_path.encode() for file in files),
            frozenset(_partition_of(file) for file in files),
        )

    def might_be_deleted_from(self, delete: DataFile) -> bool:
        lower = (delete.lower_bounds or {}).get(_DELETED_PATH_ID)
        upper = (delete.upper_bounds or {}).get(_DELETED_PATH_ID)
        if lower is not None and lower == upper:
            return lower in self.paths
        # Unpartitioned equality deletes apply to every partition.
        return len(delete.partition) == 0 or _partition_of(delete) in self.partitions


def _partition_of(file: DataFile) -> tuple[int, Key]:
    return file.spec_id or 0, partition_values(file)
