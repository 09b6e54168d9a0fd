"""One try of a commit: checked against the table as it is now, and its metadata written."""

from __future__ import annotations

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from icestream._pyiceberg import interrupts
from icestream.commit.change import Change
from icestream.commit.cleanup import delete_files
from icestream.commit.producer import Produced, Producer
from icestream.commit.validate import validate
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
    """Validate a change and write its metadata files. On an error, none of them is left.

    Args:
        change: What to do.
        metadata: The table as it is now, with the change's new schema if it has one.
        io: How files are read and written.
        base_id: The branch's head in the catalog when the change was planned.
        head: The branch's head in the catalog now.
        snapshot_id: The snapshot's.
        table: The table's name, for messages.

    Raises:
        CommitConflictError: If the change no longer fits the table.
        CommitError: If a metadata file could not be read or written.
    """
    producer = Producer(change, metadata, io, snapshot_id, table=table)
    try:
        if metadata.format_version > 2:
            raise CommitConflictError(
                f"{table} was upgraded to format version {metadata.format_version} meanwhile, "
                "which icestream can't write. Nothing was changed"
            )
        if change.base_snapshot_id is not None and change.branch not in metadata.refs:
            raise CommitConflictError(
                f"the branch {change.branch!r} of {table} was removed meanwhile. Nothing was "
                "changed; make it again, or load into another one"
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
