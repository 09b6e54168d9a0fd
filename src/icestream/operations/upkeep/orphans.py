"""`orphans`: find and delete files in storage that the table does not refer to."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider

from icestream.catalogs.lookup import resolve_table
from icestream.commit.cleanup import delete_files
from icestream.commit.in_flight import MARKER_PREFIX, marker_path
from icestream.errors import InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.operations.upkeep.folder import Folder, Storage, delete_stored
from icestream.operations.upkeep.orphan_search.orphan_search import Orphan, OrphanSearch
from icestream.operations.upkeep.orphan_search.other_tables import sharing_of
from icestream.report.upkeep_report import OrphanFile, OrphansReport
from icestream.write.target import WriteTarget

DEFAULT_AGE = timedelta(days=3)
_LISTED_BYTES = 700
_MOST_NAMED = 10_000
_log = logging.getLogger(__name__)


def orphans(
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    older_than: timedelta | float | datetime = DEFAULT_AGE,
    delete: bool = False,
    folders: Sequence[str] = (),
    other_tables: Literal["refuse", "keep"] = "refuse",
    dropped: Collection[str] = (),
    only_catalog: bool = False,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
) -> OrphansReport:
    """Find files below the table's location that nothing in the table refers to, and delete them.

    A file is referenced if any snapshot, branch, tag, statistics file, metadata log entry, version
    hint or the current metadata refers to it. Local files are compared by their identity as well as
    by their paths, so that symbolic links, other mounts and other spellings lead to the same file.
    Symbolic links, and files and folders whose names start with `_` or `.`, are never deleted.

    Other tables may have files in the same folders: for example a renamed table, a table below this
    location, or a table whose `write.data.path` points here. The search recognizes them by their
    metadata files in storage, and through the catalog. If there are any, it stops with an error,
    unless `other_tables` and `dropped` say what to do with each. It also stops if the catalog fails
    to list its tables or to load one of them. Catalogs that can't list tables are not consulted.

    A metadata file with this table's id that was never a version of it in this catalog may be the
    current one in another catalog. All files that it refers to are kept, unless the commit that
    wrote it failed and was cleaned up, or `only_catalog` is set. A catalog that points to an
    *earlier* version of the table is not protected: files that expire here are gone there as well.

    Each write of icestream has a marker until it finishes. The age of an unfinished write's files
    counts from the last renewal of its marker. Files of a write whose process runs on this machine
    are never deleted. Writes of other engines have no marker: set `older_than` to more than the
    duration of the longest one.

    If `write.data.path` or `write.metadata.path` points outside the location, other tables may have
    files there as well. The search then finds only files of icestream's own unfinished writes
    there, unless `folders` states that the folder belongs to this table alone.

    Args:
        table: The table, or its name such as `"db.t"`. It is refreshed at the start and before each
            part of the deletion, so that files committed meanwhile are kept.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        older_than: Minimum age of orphans since their last write: a duration, seconds, or a
            point in time (UTC if it has no time zone). It must exceed the duration of any commit
            that may be running. Use zero only if nobody else writes to the table.
        delete: Whether to delete the orphans.
        folders: Further folders that hold only this table's files.
        other_tables: What to do if other tables may have files in the same folders. `"refuse"`
            raises an error that names them. `"keep"` keeps every file that any of their metadata
            files refers to, and skips folders that belong to them alone.
        dropped: Ids (UUIDs) of other tables that are dropped: their files are orphans.
        only_catalog: Whether no other catalog has this table. Then metadata files of failed or
            killed commits are orphans, together with the files that only they refer to.
        memory: The limit in bytes, or a string such as `"64MB"`, or a budget to share.

    Returns:
        The orphans, the files deleted, and counts of files kept because they are too young or
        belong to another table.

    Raises:
        CatalogError: If other tables may have files here, the catalog fails to list or load them,
            the table's metadata can't be read or a folder can't be listed; then nothing is deleted.
        CredentialsExpiredError: If the store's credentials have expired, and the catalog provides
            no new ones.
        InvalidArgumentError: If an argument is invalid, such as a dropped table that the catalog
            has.
        MemoryBudgetError: If a metadata file is too large for the limit.

    Memory: at most the limit; names of files go to disk beyond a share of it. The report lists as
        many orphans as a quarter of the limit holds. Object stores list a folder at once, which
        takes about 400 bytes for each file in it.
    """
    table = resolve_table(table, catalog)
    return find_orphans(
        table,
        older_than=older_than,
        delete=delete,
        folders=folders,
        other_tables=other_tables,
        dropped=dropped,
        only_catalog=only_catalog,
        memory=memory,
        storage=Storage(),
    )


def find_orphans(
    table: Table,
    *,
    older_than: timedelta | float | datetime,
    delete: bool,
    folders: Sequence[str],
    other_tables: Literal["refuse", "keep"],
    dropped: Collection[str],
    only_catalog: bool,
    memory: int | str | MemoryBudget,
    storage: Storage,
) -> OrphansReport:
    """`orphans`, with a storage that lists folders and deletes files."""
    started = time.monotonic()
    now_ms = time.time_ns() // 1_000_000
    cutoff_ms = _cutoff_ms(older_than, now_ms)
    if not isinstance(table, Table):
        raise InvalidArgumentError(
            f"the table is a {type(table).__name__}: give a name such as 'db.t', or a "
            "PyIceberg Table"
        )
    sharing = sharing_of(other_tables, dropped, only_catalog, str(table.metadata.table_uuid))
    budget = as_budget(memory)
    search = OrphanSearch(table, cutoff_ms, now_ms, tuple(folders), sharing, budget, storage)
    with closing(search), closing(_Findings(budget, storage)) as findings:
        search.look(twice=delete)
        for part in search.orphans():
            findings.add(part, delete=delete)
        findings.finish(delete=delete)
        return OrphansReport(
            table=search.name,
            folders=tuple(folder.location for folder in search.folders),
            files=findings.files(),
            count=findings.count,
            bytes=findings.bytes,
            files_deleted=findings.files_deleted,
            bytes_deleted=findings.bytes_deleted,
            not_deleted=tuple(findings.not_deleted),
            kept_young=search.verdicts["young"],
            kept_in_flight=search.verdicts["live"],
            kept_for_others=search.verdicts["others"],
            files_listed=search.files_listed,
            files_referenced=len(search.references),
            nested_tables=search.others.folders(),
            copies=search.others.copies,
            written_before_ms=search.cutoff_ms,
            seconds=time.monotonic() - started,
        )


class _Findings:
    """Counts orphans, and deletes them on request.

    Markers are deleted last: after an interruption, they still identify the remaining files. A
    marker stays as long as a file of its write does.
    """

    def __init__(self, budget: MemoryBudget, storage: Storage) -> None:
        self._storage = storage
        self.count = self.bytes = self.files_deleted = self.bytes_deleted = 0
        self.not_deleted: list[str] = []
        self._lease = budget.force(0)
        self._most_bytes = budget.limit_bytes // 4
        self._listed: list[Orphan] = []
        self._markers: list[Orphan] = []
        self._unfinished: set[str | None] = set()

    def add(self, orphans: list[Orphan], *, delete: bool) -> None:
        """Count or delete orphans; keep markers for later."""
        files = [o for o in orphans if not o.file.name.startswith(MARKER_PREFIX)]
        self._markers += [o for o in orphans if o.file.name.startswith(MARKER_PREFIX)]
        self._count(files)
        if delete:
            self._delete(files)

    def finish(self, *, delete: bool) -> None:
        """Count or delete the markers."""
        self._count(self._markers)
        if delete:
            stay = [o for o in self._markers if o.write_id in self._unfinished]
            self._delete([o for o in self._markers if o.write_id not in self._unfinished])
            self.not_deleted += [o.file.path for o in stay]

    def files(self) -> tuple[OrphanFile, ...]:
        """The orphans for the report, ordered by path, markers last."""
        self._listed.sort(key=lambda o: (o.file.name.startswith(MARKER_PREFIX), o.file.key))
        return tuple(orphan.described() for orphan in self._listed)

    def close(self) -> None:
        """Release the memory."""
        self._lease.release()

    def _count(self, orphans: list[Orphan]) -> None:
        self.count += len(orphans)
        for orphan in orphans:
            self.bytes += orphan.file.size_bytes
            size = _LISTED_BYTES + 3 * len(orphan.file.key)
            if self._lease.held_bytes + size <= self._most_bytes:
                self._listed.append(orphan)
                self._lease.resize(self._lease.held_bytes + size)

    def _delete(self, orphans: list[Orphan]) -> None:
        left = {file.key for file in self._storage.delete([orphan.file for orphan in orphans])}
        for orphan in orphans:
            if orphan.file.key not in left:
                self.files_deleted += 1
                self.bytes_deleted += orphan.file.size_bytes
                continue
            self._unfinished.add(orphan.write_id)
            if len(self.not_deleted) < _MOST_NAMED:
                self.not_deleted.append(orphan.file.path)


def delete_write(target: WriteTarget, *, keep: Collection[str] = ()) -> None:
    """Delete the files that the workers of a write have left in storage.

    Never raises: `orphans` finds the files that can't be deleted now.

    Args:
        target: The target that the workers wrote to.
        keep: Committed files of the write; only the other ones are deleted.
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
        if not left and not kept:  # A commit has deleted the marker.
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
        raise InvalidArgumentError(f"older_than is {older_than!r}, which is in the future")
    return cutoff_ms
