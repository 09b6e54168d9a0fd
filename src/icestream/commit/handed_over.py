"""Files that `write_files` has handed over: each is committed once."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from icestream.commit.change import Change
from icestream.commit.load_id import WRITE_IDS_KEY, CommittedLoad, find_load, load_of
from icestream.errors import InvalidArgumentError
from icestream.read.manifests import metadata_files


def find_committed(change: Change, metadata: TableMetadata, io: FileIO) -> CommittedLoad | None:
    """The same load, or the same files, if they are in the branch already.

    Raises:
        InvalidArgumentError: If some of the files are in it, and others are not.
    """
    found = find_load(metadata, change.branch, change.load_id)
    return found or find_files(metadata, change.branch, change.handed_over, change.write_ids, io)


def find_files(
    metadata: TableMetadata,
    branch: str,
    paths: Collection[str],
    write_ids: Collection[str],
    io: FileIO,
) -> CommittedLoad | None:
    """The newest commit that added some of the files, if all have been added.

    Only commits of the same writes are looked into: `icestream.write-ids` in their summaries.

    Raises:
        InvalidArgumentError: If some of the files have been added, and others have not.
    """
    if not paths:
        return None
    newest: Snapshot | None = None
    missing = set(paths)
    for snapshot in ancestors_of(metadata.snapshot_by_name(branch), metadata):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if not set(summary.get(WRITE_IDS_KEY, "").split(",")).isdisjoint(write_ids):
            added = _added_paths(snapshot, io, metadata.location)
            newest = newest or (snapshot if not missing.isdisjoint(added) else None)
            missing -= added
    if newest is not None and missing:
        raise InvalidArgumentError(
            f"{len(paths) - len(missing)} of the {len(paths)} files have been committed before, "
            f"the last in snapshot {newest.snapshot_id}: commit the others alone, such as "
            f"{min(missing)}"
        )
    return load_of(newest) if newest is not None else None


def _added_paths(snapshot: Snapshot, io: FileIO, table: str) -> set[str]:
    return {
        entry.data_file.file_path
        for manifest in snapshot.manifests(io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in metadata_files(io, table=table).entries(manifest)
        if entry.snapshot_id == snapshot.snapshot_id
    }
