"""`orphans`: files in storage that the table does not refer to."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider

from icestream.commit.cleanup import delete_files
from icestream.commit.in_flight import MARKER_PREFIX, marker_path
from icestream.errors import InvalidArgumentError
from icestream.report import OrphansReport
from icestream.upkeep.folder import Folder, StoredFile, delete_stored
from icestream.upkeep.orphan_search import Orphan, OrphanSearch
from icestream.write.target import WriteTarget

DEFAULT_AGE = timedelta(days=3)
_log = logging.getLogger(__name__)


def orphans(
    table: Table,
    *,
    older_than: timedelta | float | datetime = DEFAULT_AGE,
    delete: bool = False,
    folders: Sequence[str] = (),
) -> OrphansReport:
    """Find files below the table's location that nothing in the table refers to, and delete them.

    A file counts as referred to if any snapshot, branch, tag, statistics file, metadata log entry,
    version hint or the current metadata does. Left alone are other tables that lie below the
    location, files and folders whose names start with `_` or `.`, and symbolic links.

    Files of a write that icestream began and did not finish are known by the write's marker. They
    are as old as the marker's last renewal, and a write whose process runs on this machine is not
    touched whatever `older_than` says. Writes of other engines leave no marker: let `older_than` be
    longer than the longest of them takes.

    Where `write.data.path` or `write.metadata.path` leads out of the location, other tables may
    have files there as well: only files of icestream's own unfinished writes are found there,
    unless `folders` says that the folder is this table's alone.

    Args:
        table: The table; it is refreshed, once at the start and once right before anything is
            deleted, so that what was committed meanwhile is kept.
        older_than: How long ago a file must have been written last: a duration, seconds, or a
            moment (UTC if it has no time zone). It must be longer than any commit takes that may be
            under way: zero is for tables that nobody else writes to just now.
        delete: Whether to delete what was found.
        folders: Further folders that hold nothing but this table's files.

    Returns:
        What was found, what was deleted, and what was kept because it is too young.

    Raises:
        CatalogError: If the table's metadata can't be read or a folder can't be listed; then
            nothing is deleted.

    Memory: about 100 bytes for each file that the table refers to, in all its snapshots, and about
        400 for each file in storage while it is listed.
    """
    started = time.monotonic()
    now_ms = time.time_ns() // 1_000_000
    search = OrphanSearch(table, _cutoff_ms(older_than, now_ms), now_ms, tuple(folders))
    found = search.run()
    # Files first: should this be interrupted, the markers still say what the rest is.
    found.sort(key=lambda orphan: (orphan.file.name.startswith(MARKER_PREFIX), orphan.file.key))
    left = {file.key for file in _delete(found)} if delete else set()
    deleted = [o for o in found if o.file.key not in left] if delete else []
    return OrphansReport(
        table=search.name,
        folders=tuple(folder.location for folder in search.folders),
        files=tuple(orphan.described() for orphan in found),
        count=len(found),
        bytes=sum(orphan.file.size_bytes for orphan in found),
        files_deleted=len(deleted),
        bytes_deleted=sum(orphan.file.size_bytes for orphan in deleted),
        not_deleted=tuple(o.file.path for o in found if o.file.key in left),
        kept_young=search.verdicts["young"],
        kept_in_flight=search.verdicts["live"],
        files_listed=search.files_listed,
        files_referenced=len(search.references),
        nested_tables=search.nested.found(),
        written_before_ms=search.cutoff_ms,
        seconds=time.monotonic() - started,
    )


def delete_write(target: WriteTarget, *, keep: Collection[str] = ()) -> None:
    """Delete the files of a write that comes to nothing, whichever workers made them.

    For a write of several workers whose files were not given to a commit. Never raises: what could
    not be deleted is found by `orphans` later.

    Args:
        target: What the workers were given.
        keep: Files of it that were committed: then those of attempts that failed are deleted.
    """
    kept = {path.rpartition("/")[2] for path in keep}
    locations = load_location_provider(target.metadata.location, target.properties)
    try:
        folder = Folder(target.io, locations.data_path)
        left = delete_stored(
            file
            for file in folder.files()
            if target.write_id in file.name and file.name not in kept
        )
        if not left and not kept:  # of what was committed the marker is gone
            delete_files(target.io, [marker_path(target, target.write_id)])
    except Exception as error:
        _log.debug("the files of write %s were not all deleted: %s", target.write_id, error)


def _delete(found: list[Orphan]) -> list[StoredFile]:
    """Delete orphans, and markers only where nothing of their write is left."""
    markers = [o for o in found if o.file.name.startswith(MARKER_PREFIX)]
    files = [o for o in found if not o.file.name.startswith(MARKER_PREFIX)]
    left = delete_stored(orphan.file for orphan in files)
    kept = {file.key for file in left}
    unfinished = {o.write_id for o in files if o.file.key in kept}
    done = [o.file for o in markers if o.write_id not in unfinished]
    stay = [o.file for o in markers if o.write_id in unfinished]
    return [*left, *delete_stored(done), *stay]


def _cutoff_ms(older_than: timedelta | float | datetime, now_ms: int) -> int:
    if isinstance(older_than, datetime):
        moment = older_than if older_than.tzinfo else older_than.replace(tzinfo=UTC)
        cutoff_ms = int(moment.timestamp() * 1000)
    elif isinstance(older_than, timedelta):
        cutoff_ms = now_ms - int(older_than.total_seconds() * 1000)
    elif (
        isinstance(older_than, (int, float))
        and not isinstance(older_than, bool)
        and math.isfinite(older_than)
    ):
        cutoff_ms = now_ms - int(older_than * 1000)
    else:
        raise InvalidArgumentError(
            f"older_than is {older_than!r}: give a timedelta, seconds, or a datetime"
        )
    if cutoff_ms > now_ms:
        raise InvalidArgumentError(f"older_than is {older_than!r}: that lies in the future")
    return cutoff_ms
