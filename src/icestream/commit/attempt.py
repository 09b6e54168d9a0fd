"""One try of a commit: checks the change against the current table, and writes its metadata."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from icestream.catalogs._pyiceberg.commits import interrupts
from icestream.commit.change import Change
from icestream.commit.cleanup import delete_files
from icestream.commit.snapshot.conflicts import validate
from icestream.commit.snapshot.producer import Produced, Producer
from icestream.errors import CommitConflictError, CommitError


def attempt(
    change: Change,
    metadata: TableMetadata,
    io: FileIO,
    *,
    base_id: int | None,
    head: Snapshot | None,
    snapshot_id: int,
    table: str,
) -> Produced:
    """Validate a change and write its metadata files. After an error, no file is left.

    Args:
        change: The change.
        metadata: The current table, with the change's new schema if it has one.
        io: Reads and writes files.
        base_id: The branch's head in the catalog when the change was planned.
        head: The branch's head in the catalog now.
        snapshot_id: The id of the new snapshot.
        table: The table's name, for messages.

    Raises:
        CommitConflictError: If the change no longer fits the table.
        CommitError: If a metadata file could not be read or written.
        FileMissingError: If a manifest or the manifest list of the table is gone.
        CorruptFileError: If one of them is damaged.
    """
    producer = Producer(change, metadata, io, snapshot_id, table=table)
    try:
        if metadata.format_version > 2:
            raise CommitConflictError(
                f"{table} was upgraded concurrently to format version {metadata.format_version}, "
                "which icestream can't write. Nothing was changed"
            )
        if change.base_snapshot_id is not None and change.branch not in metadata.refs:
            raise CommitConflictError(
                f"the branch {change.branch!r} of {table} was removed concurrently. Nothing was "
                "changed; create it again, or write to another branch"
            )
        with interrupts():
            validate(change, metadata, io, base_id=base_id, head=head, table=table)
            return producer.produce()
    except BaseException as error:
        delete_files(io, producer.paths)
        if isinstance(error, OSError):
            raise CommitError(
                f"a metadata file of {table} could not be read or written: {error}. Nothing was "
                "changed"
            ) from error
        raise


def delete_lost(io: FileIO, attempts: Sequence[Produced], manifest_list: str | None) -> None:
    """Delete the metadata of all attempts but the committed one, if it is among them."""
    lost = [each for each in attempts if each.manifest_list != manifest_list]
    if len(lost) < len(attempts):
        delete_files(io, [path for each in lost for path in each.paths])
