"""Checks a change for conflicts with commits since it was planned.

PyIceberg's own checks miss conflicts (docs/design/0006), so icestream has its own. They follow the
branch from its head back to the snapshot that the change was planned on.
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
from icestream.read.plan.file_predicate import file_test
from icestream.read.plan.manifests import MetadataFiles, metadata_files

# The path column of a position delete file. Its bounds show which data files the deletes are for.
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
    """Refuse a change that conflicts with commits since it was planned.

    Whether the files to remove still exist is checked when the manifests are rewritten.

    Args:
        change: The change.
        metadata: The current table.
        io: Reads manifests.
        base_id: The branch's head when the change was planned, without staged snapshots.
        head: The branch's head now, without staged snapshots.
        table: The table's name, for messages.

    Raises:
        CommitConflictError: If rows were added or deleted that the change should have seen.
    """
    if change.only_adds or base_id == (head.snapshot_id if head else None):
        return
    between = _snapshots_between(change, metadata, base_id, head, table)
    check = _Check(change, metadata, metadata_files(io, table=table), between, table)
    if change.conflict_filter is not None or change.conflict_partitions is not None:
        if base_id is None and head is not None:
            check.refuse_live_data(head)
        else:
            check.refuse_added_data()
    if change.removed or change.deleted_from:
        check.refuse_new_deletes()
    if change.deleted_from:
        check.refuse_removed_files()


def _snapshots_between(
    change: Change,
    metadata: TableMetadata,
    base_id: int | None,
    head: Snapshot | None,
    table: str,
) -> list[Snapshot]:
    between: list[Snapshot] = []
    for snapshot in ancestors_of(head, metadata):
        if snapshot.snapshot_id == base_id:
            return between
        between.append(snapshot)
    if base_id is not None:
        raise CommitConflictError(
            f"snapshot {base_id}, from which this change to {table} was planned, is no "
            f"longer in the history of {change.branch!r}: it was rolled back or has expired. "
            "Nothing was changed; start again"
        )
    if between and between[-1].parent_snapshot_id is not None:
        raise CommitConflictError(
            f"{change.branch!r} of {table} was empty when this change was planned, and snapshot "
            f"{between[-1].parent_snapshot_id}, committed since, has expired: its changes are not "
            "known. Nothing was changed; start again"
        )
    return between


@dataclass(frozen=True, slots=True)
class _Check:
    """Compares a change with the snapshots that were committed since it was planned."""

    change: Change
    metadata: TableMetadata
    files: MetadataFiles
    between: list[Snapshot]
    table: str

    def refuse_live_data(self, head: Snapshot) -> None:
        """Refuse a change planned on an empty branch that should have seen the branch's data.

        All data was added since. The snapshots that added it may have expired without a trace, so
        this checks the live files instead.
        """
        might_match = _conflict_test(self.change, self.metadata)
        for manifest in self.files.manifests_of(head):
            if manifest.content != ManifestContent.DATA:
                continue
            for entry in self.files.entries(manifest):
                if might_match(entry.data_file):
                    raise _added_rows(entry.snapshot_id, entry.data_file, self.table)

    def refuse_added_data(self) -> None:
        might_match = _conflict_test(self.change, self.metadata)
        for snapshot, entry in self._entries(ManifestContent.DATA, ManifestEntryStatus.ADDED):
            if snapshot.summary and snapshot.summary.operation == Operation.REPLACE:
                continue  # the same rows in other files
            if might_match(entry.data_file):
                raise _added_rows(snapshot.snapshot_id, entry.data_file, self.table)

    def refuse_new_deletes(self) -> None:
        removed = _Removed.of(self.change.removed + self.change.deleted_from)
        for snapshot, entry in self._entries(ManifestContent.DELETES, ManifestEntryStatus.ADDED):
            if removed.might_be_deleted_from(entry.data_file):
                raise CommitConflictError(
                    f"snapshot {snapshot.snapshot_id} deleted rows of {self.table} from files that "
                    "this change rewrites or deletes from: they would reappear or be duplicated. "
                    "Nothing was changed; start again"
                )

    def refuse_removed_files(self) -> None:
        """Refuse deletes from files that were removed: their rows are in other files now."""
        paths = {file.file_path for file in self.change.deleted_from}
        for snapshot, entry in self._entries(ManifestContent.DATA, ManifestEntryStatus.DELETED):
            if entry.data_file.file_path in paths:
                raise CommitConflictError(
                    f"snapshot {snapshot.snapshot_id} removed a file of {self.table} that this "
                    f"change deletes rows of ({entry.data_file.file_path}). Nothing was changed; "
                    "start again"
                )

    def _entries(
        self, content: ManifestContent, status: ManifestEntryStatus
    ) -> Iterator[tuple[Snapshot, ManifestEntry]]:
        """The entries that each snapshot added or removed."""
        for snapshot in self.between:
            for manifest in self.files.manifests_of(snapshot):
                is_own = manifest.added_snapshot_id == snapshot.snapshot_id
                if manifest.content != content or not is_own:
                    continue
                for entry in self.files.entries(manifest, removed=True):
                    if entry.status == status:
                        yield snapshot, entry


def _added_rows(snapshot_id: int | None, file: DataFile, table: str) -> CommitConflictError:
    return CommitConflictError(
        f"snapshot {snapshot_id} added rows to {table} that this change should have seen "
        f"({file.file_path}). Nothing was changed; start again, or keep such rows: set "
        "write.delete.isolation-level (for an overwrite write.update.isolation-level) to snapshot"
    )


def _conflict_test(change: Change, metadata: TableMetadata) -> Callable[[DataFile], bool]:
    if change.conflict_filter is not None:
        schema_id = change.conflict_schema_id
        if schema_id is not None:  # columns may have been renamed since
            if metadata.schema_by_id(schema_id) is None:
                return lambda file: True
            metadata = metadata.model_copy(update={"current_schema_id": schema_id})
        return file_test(metadata, change.conflict_filter, case_sensitive=True)
    keys, spec_id = change.conflict_partitions or frozenset(), change.conflict_spec_id
    if spec_id is None:
        spec_id = metadata.default_spec_id
    return lambda file: file.spec_id != spec_id or partition_values(file) in keys


@dataclass(frozen=True, slots=True)
class _Removed:
    """The files that a change removes, to test delete files against."""

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
