"""The files of a table that is dropped: which of them no other table can need."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider

from icestream.catalogs.credentials import table_access
from icestream.errors import CatalogError, UnsupportedFeatureError
from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.folder import Folder, Storage, StoredFile
from icestream.operations.upkeep.manifest_entries import FILE_PATH, ManifestEntries
from icestream.operations.upkeep.markers import Markers
from icestream.operations.upkeep.orphan_search.candidates import CHUNK_FILES, Candidates
from icestream.operations.upkeep.orphan_search.catalog_tables import (
    CatalogTables,
    lies_in,
    overlaps,
)
from icestream.operations.upkeep.orphan_search.metadata_file import is_metadata_file
from icestream.operations.upkeep.orphan_search.other_tables import (
    OtherTables,
    SharedFoldersError,
    sharing_of,
)
from icestream.operations.upkeep.orphan_search.own_versions import OwnVersions
from icestream.operations.upkeep.orphan_search.references import References
from icestream.operations.upkeep.path_keys import folder_key, path_key
from icestream.read.plan.manifests import counts_files

_GC_ENABLED = "gc.enabled"
_MOST_NAMED = 10_000
_OF_ORPHANS = re.compile(r",? (so|and) no file was reported as an orphan")


class Purge:
    """Finds and deletes the files that a table refers to, in its own folders.

    It refuses to delete anything in these cases:

    - The table property `gc.enabled` is false: the files belong to someone else.
    - A write to the table is running.
    - Another table of the catalog has a folder that overlaps the table's, or refers to a file there
      (for example with `add_files`). All manifests of the catalog's tables are read for that.
    - The folders hold metadata of another table, or of a copy of this table in another catalog.

    It never deletes files that the table does not refer to, nor files outside its folders.

    Memory: that of `orphans`.

    Args:
        table: The table, in its current version.
        budget: The budget that the search is charged to.
        dropped: Ids (UUIDs) of other tables that are dropped. Their metadata may be in the folders.
        only_catalog: Whether no other catalog has this table.
    """

    def __init__(
        self,
        table: Table,
        budget: MemoryBudget,
        *,
        dropped: Collection[str] = (),
        only_catalog: bool = False,
    ) -> None:
        self.count = self.bytes = self.files_left = 0
        self.files_deleted = self.bytes_deleted = 0
        self.not_deleted: list[str] = []
        self.metadata_location = table.metadata_location
        self._table = table
        self._name = ".".join(table.name())
        self._budget = budget
        uuid = str(table.metadata.table_uuid)
        self._sharing = sharing_of("refuse", dropped, only_catalog, uuid)
        self._io = table_access(table)
        locations = load_location_provider(table.location(), table.metadata.properties)
        self._metadata_folder = Folder(self._io, locations.metadata_path)
        self._folders: list[Folder] = []
        for location in (table.location(), locations.data_path, locations.metadata_path):
            folder = Folder(self._io, location)
            if not any(lies_in(folder.key, own.key) for own in self._folders):
                self._folders.append(folder)
        self._references = References(budget)
        self._others = References(budget)
        self._files = Candidates(self._folders, budget)

    def __enter__(self) -> Purge:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()
        self._references.close()
        self._others.close()

    def look(self) -> None:
        """Find the files, and make sure that no other table needs them.

        Raises:
            CatalogError: If another table may need them, a write is running, or metadata that
                could show this can't be read.
            UnsupportedFeatureError: If the table forbids to delete its files.
        """
        if self._table.metadata.properties.get(_GC_ENABLED, "true").lower() == "false":
            raise UnsupportedFeatureError(
                f"{self._name} has the property {_GC_ENABLED}=false, so its files may belong to "
                "another table. Drop it without deleting its files"
            )
        self._refuse_running_writes()
        try:
            self._search()
        except CatalogError as error:
            if not _OF_ORPHANS.search(str(error)):
                raise
            raise self._refused(_OF_ORPHANS.sub("", str(error)).rstrip(".")) from error

    def _search(self) -> None:
        self._references.add(self._table)
        own = OwnVersions(self._table, self._budget)
        own.add(self._table)
        self._refuse_other_tables()
        others = OtherTables(
            self._io, own, self._others, self._sharing, self._budget,
            concerns=lambda read: True, may_be_left=lambda folder: False,
        )  # fmt: skip
        for files in _chunks(file for folder in self._folders for file in folder.files()):
            for file in files:
                others.look_at(file)
            self._take(files, own)
        try:
            others.judge()
        except SharedFoldersError as shared:
            unnamed = shared.unnamed({})
            raise self._refused(
                f"its folders hold metadata of other tables: {shared.described({})}. If one of "
                f"them was dropped, pass its id: dropped=['{unnamed}']"
            ) from None
        if others.copies:
            raise self._refused(
                f"its folders hold {others.copies} metadata files of versions that this catalog "
                "does not have, so another catalog may have the table. If none has, pass "
                "only_catalog=True"
            )

    def delete(self) -> None:
        """Delete the files: data first, so that the metadata can still name what is left.

        Raises:
            CatalogError: If another table has come to the folders since `look`. No file is deleted.
        """
        self._refuse_new_tables()
        for is_metadata in (False, True):
            for files in self._files.chunks():
                self._delete([f for f in files if self._is_metadata(f) == is_metadata])
        for folder in self._folders:
            if folder.is_local:
                _remove_empty(folder.base)

    def _take(self, files: list[StoredFile], own: OwnVersions) -> None:
        held = self._references.hold(files)
        taken = []
        for file, is_held in zip(files, held, strict=True):
            if is_held or (is_metadata_file(file.name) and file.path in own):
                taken.append(file)
                self.bytes += file.size_bytes
            else:
                self.files_left += 1
        self.count += len(taken)
        self._files.add(taken)

    def _delete(self, files: list[StoredFile]) -> None:
        left = {file.key for file in Storage().delete(files)}
        for file in files:
            if file.key not in left:
                self.files_deleted += 1
                self.bytes_deleted += file.size_bytes
            elif len(self.not_deleted) < _MOST_NAMED:
                self.not_deleted.append(file.path)

    def _is_metadata(self, file: StoredFile) -> bool:
        return self._metadata_folder.holds(file.key)

    def _refuse_running_writes(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        markers = Markers.read(self._metadata_folder, self._table.metadata)
        running = [marker for marker in markers if marker.is_live(now_ms)]
        if running:
            raise self._refused(
                f"a write to it is running on this machine (marker {running[0].file.path}). Wait "
                "for it, or end it"
            )

    def _refuse_other_tables(self) -> None:
        """Refuse if a table of the catalog has a folder, or refers to a file, in the folders."""
        for other in self._other_tables():
            name = ".".join(other.name())
            if self._overlaps(other):
                raise self._refused(f"{name} of the same catalog has files in the same folders")
            path = next(self._shared_paths(other), None)
            if path is not None:
                raise self._refused(f"{name} of the same catalog refers to {path}")

    def _refuse_new_tables(self) -> None:
        """Refuse if a table has come to these folders since `look`, such as a renamed one."""
        catalog, name = self._table.catalog, self._table.name()
        again = [catalog.load_table(name)] if catalog.table_exists(name) else []
        for other in (*again, *self._other_tables()):
            if self._overlaps(other):
                raise CatalogError(
                    f"{self._name} was dropped, but its files stay: meanwhile, the table "
                    f"{'.'.join(other.name())} has come to the same folders"
                )

    def _other_tables(self) -> Iterator[Table]:
        tables = CatalogTables(self._table)
        for name in tables.names():
            other = tables.load(name)
            if other is not None:
                yield other

    def _overlaps(self, other: Table) -> bool:
        locations = load_location_provider(other.location(), other.metadata.properties)
        folders = (other.location(), locations.data_path, locations.metadata_path)
        keys = [folder_key(folder) for folder in folders]
        return any(overlaps(key, own.key) for key in keys for own in self._folders)

    def _shared_paths(self, other: Table) -> Iterator[str]:
        """The files in this table's folders that another table refers to."""
        entries = ManifestEntries(table_access(other), self._budget)
        read: set[str] = set()
        for snapshot in other.metadata.snapshots:
            listed = entries.manifests(snapshot.manifest_list, has_files=counts_files(snapshot))
            fresh = [each for each in listed if each.manifest_path not in read]
            read.update(each.manifest_path for each in fresh)
            named = (str(record[0]) for _, record in entries.values(fresh, FILE_PATH))
            yield from (path for path in named if self._is_here(path))

    def _is_here(self, path: str) -> bool:
        key = path_key(path)
        return any(folder.holds(key) for folder in self._folders)

    def _refused(self, reason: str) -> CatalogError:
        return CatalogError(
            f"the files of {self._name} can't be deleted safely: {reason}. Nothing was dropped; "
            "without a purge, the table is dropped and its files stay"
        )


def _chunks(files: Iterable[StoredFile]) -> Iterator[list[StoredFile]]:
    chunk: list[StoredFile] = []
    for file in files:
        chunk.append(file)
        if len(chunk) >= CHUNK_FILES:
            yield chunk
            chunk = []
    yield chunk


def _remove_empty(folder: str) -> None:
    """Remove a local folder and the folders below it, as far as they are empty."""
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(path).rmdir()
