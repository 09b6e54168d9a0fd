"""Other tables whose files may lie in a table's folders, known by their metadata files."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Mapping

from pyiceberg.io import FileIO

from icestream.errors import CatalogError, IcestreamError
from icestream.memory import MemoryBudget
from icestream.upkeep.folder import StoredFile
from icestream.upkeep.path_keys import folder_key, path_key
from icestream.upkeep.search.metadata_file import (
    MetadataFile,
    is_metadata_file,
    read_metadata_file,
)
from icestream.upkeep.search.own_versions import OwnVersions
from icestream.upkeep.search.references import References
from icestream.upkeep.search.sharing import Sharing

# A file that is being written while it is looked at can be read a moment later.
_TRIES, _WAIT_SECONDS = 4, 0.25
_SHOWN = 5
_OTHER_FORMATS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
_FILE_BYTES = 400


class SharedFoldersError(Exception):
    """Metadata files of other tables lie in a table's folders.

    Args:
        found: The metadata files of each table, by its id.
    """

    def __init__(self, found: dict[str, list[str]]) -> None:
        super().__init__(found)
        self._found = found

    def refusal(self, table: str, names: Mapping[str, str]) -> CatalogError:
        """The error for the caller.

        Args:
            table: The table whose folders they are.
            names: Names of tables that the catalog has, by their ids.
        """
        shown = []
        for uuid, paths in list(self._found.items())[:_SHOWN]:
            name = f"{names[uuid]}, id" if uuid in names else "a table that is not in this catalog,"
            shown.append(f"{name} {uuid} ({len(paths)} metadata files, such as {paths[-1]})")
        if len(self._found) > _SHOWN:
            shown.append(f"and {len(self._found) - _SHOWN} more")
        unnamed = next((uuid for uuid in self._found if uuid not in names), None)
        return CatalogError(
            f"other tables may have files in the folders of {table}: {'; '.join(shown)}. Nothing "
            "was called an orphan. Pass other_tables='keep' to keep all that these tables refer to"
            + (f"; if one is dropped, pass its id: dropped=['{unnamed}']" if unnamed else "")
        )


class OtherTables:
    """Finds other tables by their metadata files, and keeps what they refer to.

    A table may live as long as one of its metadata files is there. Which of them is its current one
    only its catalog knows, so the references of every one are kept.

    Memory: about 400 bytes for each metadata file that is not a version of the table itself.

    Args:
        io: How metadata files are read.
        own: The table's own versions.
        references: What is kept.
        sharing: What the caller says.
        budget: What reading is on lease from.
        concerns: Whether a metadata file of another table has to do with this one: it lies in one
            of this table's folders, or its table writes there.
        may_be_left: Whether a folder, by its key, may be left alone as a whole: it lies below the
            table's location, and not above its data or metadata.
    """

    def __init__(
        self,
        io: FileIO,
        own: OwnVersions,
        references: References,
        sharing: Sharing,
        budget: MemoryBudget,
        concerns: Callable[[MetadataFile], bool],
        may_be_left: Callable[[str], bool],
    ) -> None:
        self.uuids: set[str] = set()
        self.copies = 0
        self._io = io
        self._own = own
        self._references = references
        self._sharing = sharing
        self._budget = budget
        self._concerns = concerns
        self._may_be_left = may_be_left
        self._lease = budget.force(0)
        self._waiting: dict[str, StoredFile] = {}
        self._judged: set[str] = set()
        self._left: set[str] = set()
        self._other_formats: dict[str, str] = {}

    def look_at(self, file: StoredFile) -> None:
        """Note a file that this table does not refer to, if it is a table's metadata."""
        if is_metadata_file(file.name):
            if file.key not in self._judged and file.path not in self._own:
                self._waiting[file.key] = file
                self._lease.resize(len(self._waiting) * _FILE_BYTES)
            return
        if "_delta_log" in file.relative or ".hoodie" in file.relative:
            before, _, _ = file.key.rpartition("/")
            while before != "/" and posixpath.basename(before) not in _OTHER_FORMATS:
                before = posixpath.dirname(before)
            if before != "/":
                folder, marker = posixpath.split(before)
                self._other_formats[folder] = _OTHER_FORMATS[marker]

    def judge(self) -> None:
        """Decide about what was noted since the last time.

        Raises:
            SharedFoldersError: If another table may live here.
            CatalogError: If a metadata file can't be read.
        """
        self._refuse_other_formats()
        others: dict[str, list[str]] = {}
        unreadable: list[tuple[StoredFile, Exception]] = []
        for file in self._waiting.values():
            self._judged.add(file.key)
            try:
                read = self._read(file)
            except ValueError as error:
                unreadable.append((file, error))
                continue
            if read is None or self._is_no_matter(read):
                continue
            if read.table_uuid != self._own.table_uuid:
                self.uuids.add(read.table_uuid)
                if not self._sharing.keeps_others:
                    others.setdefault(read.table_uuid, []).append(read.path)
                    continue
            self.copies += read.table_uuid == self._own.table_uuid
            self._keep(read, posixpath.dirname(file.key))
        self._waiting.clear()
        self._lease.release()
        if others:
            raise SharedFoldersError(others)
        for file, reason in unreadable:
            if not self._is_leftover(file):
                raise _not_readable(file, reason) from reason

    def leave(self, folder: str) -> None:
        """Leave a folder alone, by its key, if it is another table's as a whole."""
        if self._may_be_left(folder):
            self._left.add(folder)

    def hold(self, key: str) -> bool:
        """Whether a path lies in another table's folder."""
        folder = posixpath.dirname(key)
        while self._left and folder != "/":
            if folder in self._left:
                return True
            folder = posixpath.dirname(folder)
        return False

    def found(self) -> tuple[str, ...]:
        """The folders that are left alone as a whole."""
        return tuple(sorted(self._left))

    def _read(self, file: StoredFile) -> MetadataFile | None:
        """The file's content; None if it is gone by now."""
        for tries_left in reversed(range(_TRIES)):
            try:
                return read_metadata_file(self._io, file.path, self._budget)
            except FileNotFoundError:
                return None
            except IcestreamError:
                raise
            except Exception as error:
                if not tries_left:
                    raise ValueError(f"{type(error).__name__}: {error}") from error
            time.sleep(_WAIT_SECONDS)
        raise AssertionError("unreachable")

    def _is_no_matter(self, read: MetadataFile) -> bool:
        """Whether nothing need be kept for a metadata file."""
        if read.table_uuid in self._sharing.dropped:
            return True
        if read.table_uuid != self._own.table_uuid:
            return not self._concerns(read)
        return (
            read.path in self._own
            or self._sharing.only_catalog
            or self._own.is_lost_commit(self._io, read)
        )

    def _keep(self, read: MetadataFile, folder: str) -> None:
        """Keep all that a metadata file refers to, and folders that are its table's alone."""
        folders = {folder, *self._own.folders}

        def may_miss(path: str) -> bool:
            # Expiry deletes what earlier versions refer to. Where the metadata itself was found
            # the storage is there, so that what is missing is gone for everybody.
            return posixpath.dirname(path_key(path)) in folders

        self._references.add_named(read.named())
        for manifest_list in read.lists:
            self._references.add_list(self._io, manifest_list, may_miss=may_miss)
        if read.manifests:
            raise CatalogError(
                f"{read.path} is metadata of version 1 that names manifests without a list, which "
                "icestream does not read: move the table elsewhere, or rewrite it with the engine "
                "that wrote it"
            )
        self.leave(
            posixpath.dirname(folder) if posixpath.basename(folder) == "metadata" else folder
        )
        if read.table_uuid != self._own.table_uuid:
            for location in (read.location, *read.folders):
                self.leave(folder_key(location))

    def _refuse_other_formats(self) -> None:
        for folder, format_name in self._other_formats.items():
            if self._sharing.keeps_others and self._may_be_left(folder):
                self._left.add(folder)
                continue
            raise CatalogError(
                f"a {format_name} table may live in {folder}, and its files can't be told from "
                "orphans, so nothing was called an orphan. Move that table elsewhere"
                + (
                    ", or pass other_tables='keep' to leave its folder alone"
                    if self._may_be_left(folder)
                    else ""
                )
            )

    def _is_leftover(self, file: StoredFile) -> bool:
        """Whether a file that can't be read was left by a commit to this table that was killed."""
        in_own_folder = posixpath.dirname(file.key) in self._own.folders
        return self._sharing.only_catalog and in_own_folder and not self.uuids


def _not_readable(file: StoredFile, error: Exception) -> CatalogError:
    return CatalogError(
        f"{file.path} can't be read as a table's metadata ({error}), so it is not known what "
        "belongs to that table, and nothing was called an orphan. If no table needs the file, "
        "delete it; if a killed commit to this table left it, pass only_catalog=True"
    )
