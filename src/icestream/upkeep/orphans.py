"""`orphans`: files in storage that the table does not refer to."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Literal

from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider

from icestream.commit.cleanup import delete_files
from icestream.commit.in_flight import MARKER_PREFIX, marker_path
from icestream.errors import InvalidArgumentError
from icestream.memory import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.report import OrphanFile, OrphansReport
from icestream.upkeep.folder import Folder, delete_stored
from icestream.upkeep.search.orphan_search import Orphan, OrphanSearch
from icestream.upkeep.search.sharing import sharing_of
from icestream.write.target import WriteTarget

DEFAULT_AGE = timedelta(days=3)
_LISTED_BYTES = 700
_MOST_NAMED = 10_000
_log = logging.getLogger(__name__)


def orphans(
    table: Table,
    *,
    older_than: timedelta | float | datetime = DEFAULT_AGE,
    delete: bool = False,
    folders: Sequence[str] = (),
    other_tables: Literal["refuse", "keep"] = "refuse",
    dropped: Collection[str] = (),
    only_catalog: bool = False,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
) -> OrphansReport:
    """Find files below the table's location that nothing in the table refers to, and delete them.

    A file counts as referred to if any snapshot, branch, tag, statistics file, metadata log entry,
    version hint or the current metadata does. Local files are compared by what they are, not by
    their paths alone, so that symbolic links, other mounts and other spellings lead to the same
    file. Files and folders whose names start with `_` or `.` and symbolic links are left alone.

    Other tables may have files in the same folders: one that was renamed before another got its
    name and location, one below the location, one whose `write.data.path` leads here. They are
    known by their metadata files in storage, and by the catalog. The search is refused if there
    are any, unless `other_tables` and `dropped` say what to do about each.

    A metadata file with this table's own id that was never a version of it in this catalog may be
    the current one in another catalog. All that it refers to is kept, unless the commit that wrote
    it was lost and cleaned up, or `only_catalog` is set. A catalog that points to an *earlier*
    version of the table is not protected: what is expired here is gone there.

    Files of a write that icestream began and did not finish are known by the write's marker. They
    are as old as the marker's last renewal, and a write whose process runs on this machine is not
    touched whatever `older_than` says. Writes of other engines leave no marker: let `older_than` be
    longer than the longest of them takes.

    Where `write.data.path` or `write.metadata.path` leads out of the location, other tables may
    have files there as well: only files of icestream's own unfinished writes are found there,
    unless `folders` says that the folder is this table's alone.

    Args:
        table: The table; it is refreshed, at the start and before each part that is deleted, so
            that what was committed meanwhile is kept.
        older_than: How long ago a file must have been written last: a duration, seconds, or a
            moment (UTC if it has no time zone). It must be longer than any commit takes that may be
            under way: zero is for tables that nobody else writes to just now.
        delete: Whether to delete what was found.
        folders: Further folders that hold nothing but this table's files.
        other_tables: What to do if other tables may have files in the same folders. `"refuse"`
            raises an error that names them. `"keep"` keeps all that any of their metadata files
            refers to, and leaves folders alone that are theirs as a whole.
        dropped: Ids (UUIDs) of other tables that are dropped: their files are orphans.
        only_catalog: Whether no other catalog has this table. Then metadata files of lost or killed
            commits are orphans, with all that only they refer to.
        memory: The limit in bytes, or a string such as `"64MB"`, or a budget to share.

    Returns:
        What was found, what was deleted, and what was kept because it is too young or another
        table's.

    Raises:
        CatalogError: If other tables may have files here, the table's metadata can't be read or a
            folder can't be listed; then nothing is deleted.
        InvalidArgumentError: If an argument makes no sense, such as a dropped table that the
            catalog has.

    Memory: at most the limit; names of files go to disk beyond a share of it. The report lists as
        many orphans as a quarter of the limit holds. Object stores list a folder at once, which
        takes about 400 bytes for each file in it.
    """
    started = time.monotonic()
    now_ms = time.time_ns() // 1_000_000
    cutoff_ms = _cutoff_ms(older_than, now_ms)
    if not isinstance(table, Table):
        raise InvalidArgumentError(f"the table is a {type(table).__name__}: give a PyIceberg Table")
    sharing = sharing_of(other_tables, dropped, only_catalog, str(table.metadata.table_uuid))
    budget = as_budget(memory)
    search = OrphanSearch(table, cutoff_ms, now_ms, tuple(folders), sharing, budget)
    with closing(search), closing(_Findings(budget)) as found:
        search.look(twice=delete)
        for part in search.orphans():
            found.add(part, delete=delete)
        found.finish(delete=delete)
        return OrphansReport(
            table=search.name,
            folders=tuple(folder.location for folder in search.folders),
            files=found.files(),
            count=found.count,
            bytes=found.bytes,
            files_deleted=found.files_deleted,
            bytes_deleted=found.bytes_deleted,
            not_deleted=tuple(found.not_deleted),
            kept_young=search.verdicts["young"],
            kept_in_flight=search.verdicts["live"],
            kept_for_others=search.verdicts["others"],
            files_listed=search.files_listed,
            files_referenced=len(search.references),
            nested_tables=search.others.found(),
            copies=search.others.copies,
            written_before_ms=search.cutoff_ms,
            seconds=time.monotonic() - started,
        )


class _Findings:
    """Counts orphans, and deletes them if that is asked for.

    Files come first and markers last: should this be interrupted, the markers still say what the
    rest is. A marker stays as long as a file of its write does.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self.count = self.bytes = self.files_deleted = self.bytes_deleted = 0
        self.not_deleted: list[str] = []
        self._lease = budget.force(0)
        self._most_bytes = budget.limit_bytes // 4
        self._listed: list[Orphan] = []
        self._markers: list[Orphan] = []
        self._unfinished: set[str | None] = set()

    def add(self, found: list[Orphan], *, delete: bool) -> None:
        """Take in some orphans."""
        files = [o for o in found if not o.file.name.startswith(MARKER_PREFIX)]
        self._markers += [o for o in found if o.file.name.startswith(MARKER_PREFIX)]
        self._count(files)
        if delete:
            self._delete(files)

    def finish(self, *, delete: bool) -> None:
        """Do the same with the markers."""
        self._count(self._markers)
        if delete:
            stay = [o for o in self._markers if o.write_id in self._unfinished]
            self._delete([o for o in self._markers if o.write_id not in self._unfinished])
            self.not_deleted += [o.file.path for o in stay]

    def files(self) -> tuple[OrphanFile, ...]:
        """What the report lists, in order of path, markers last."""
        self._listed.sort(key=lambda o: (o.file.name.startswith(MARKER_PREFIX), o.file.key))
        return tuple(orphan.described() for orphan in self._listed)

    def close(self) -> None:
        """Give the bytes back."""
        self._lease.release()

    def _count(self, found: list[Orphan]) -> None:
        self.count += len(found)
        for orphan in found:
            self.bytes += orphan.file.size_bytes
            size = _LISTED_BYTES + 3 * len(orphan.file.key)
            if self._lease.held_bytes + size <= self._most_bytes:
                self._listed.append(orphan)
                self._lease.resize(self._lease.held_bytes + size)

    def _delete(self, found: list[Orphan]) -> None:
        left = {file.key for file in delete_stored(orphan.file for orphan in found)}
        for orphan in found:
            if orphan.file.key not in left:
                self.files_deleted += 1
                self.bytes_deleted += orphan.file.size_bytes
                continue
            self._unfinished.add(orphan.write_id)
            if len(self.not_deleted) < _MOST_NAMED:
                self.not_deleted.append(orphan.file.path)


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
