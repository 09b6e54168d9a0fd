"""Other tables that may have files in a table's folders, recognized by their metadata files."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from pyiceberg.io import FileIO

from icestream.errors import CatalogError, IcestreamError, InvalidArgumentError
from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.folder import StoredFile
from icestream.operations.upkeep.manifest_entries import unreadable
from icestream.operations.upkeep.orphan_search.metadata_file import (
    MetadataFile,
    is_metadata_file,
    read_metadata_file,
)
from icestream.operations.upkeep.orphan_search.own_versions import OwnVersions
from icestream.operations.upkeep.orphan_search.references import References
from icestream.operations.upkeep.path_keys import folder_key, path_key

# A file that is still being written can be read a moment later.
_TRIES, _WAIT_SECONDS = 4, 0.25
_SHOWN = 5
_OTHER_FORMATS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
_FILE_BYTES = 400


@dataclass(frozen=True, slots=True)
class Sharing:
    """The checked options.

    Attributes:
        keeps_others: Whether files of other tables are kept; otherwise their presence is an error.
        dropped: Ids of dropped tables.
        only_catalog: Whether no other catalog has this table.
    """

    keeps_others: bool
    dropped: frozenset[str]
    only_catalog: bool


def sharing_of(
    other_tables: str, dropped: Collection[str], only_catalog: bool, own_uuid: str
) -> Sharing:
    """Check the options.

    Raises:
        InvalidArgumentError: If an option is invalid.
    """
    if other_tables not in ("refuse", "keep"):
        raise InvalidArgumentError(f"other_tables is {other_tables!r}: give 'refuse' or 'keep'")
    if isinstance(dropped, str):
        raise InvalidArgumentError(f"dropped is {dropped!r}: give a list of table ids")
    ids = set()
    for each in dropped:
        try:
            ids.add(str(UUID(str(each))))
        except ValueError:
            raise InvalidArgumentError(
                f"dropped names {each!r}, which is not a table's id: give ids such as {own_uuid}"
            ) from None
    if own_uuid in ids:
        raise InvalidArgumentError(
            f"dropped names {own_uuid}, the id of the table itself: pass only_catalog=True if no "
            "other catalog has it"
        )
    if not isinstance(only_catalog, bool):
        raise InvalidArgumentError(f"only_catalog is {only_catalog!r}: give True or False")
    return Sharing(other_tables == "keep", frozenset(ids), only_catalog)


class SharedFoldersError(Exception):
    """A table's folders hold metadata files of other tables.

    Args:
        tables: The metadata files of each table, by its id.
    """

    def __init__(self, tables: dict[str, list[str]]) -> None:
        super().__init__(tables)
        self._tables = tables

    def described(self, names: Mapping[str, str]) -> str:
        """The tables, with some of their metadata files.

        Args:
            names: The names of the tables in the catalog, by id.
        """
        shown = []
        for uuid, paths in list(self._tables.items())[:_SHOWN]:
            name = f"{names[uuid]}, id" if uuid in names else "a table that is not in this catalog,"
            shown.append(f"{name} {uuid} ({len(paths)} metadata files, such as {paths[-1]})")
        if len(self._tables) > _SHOWN:
            shown.append(f"and {len(self._tables) - _SHOWN} more")
        return "; ".join(shown)

    def unnamed(self, names: Mapping[str, str]) -> str | None:
        """The id of a table that the catalog does not have, if there is one."""
        return next((uuid for uuid in self._tables if uuid not in names), None)

    def refusal(self, table: str, names: Mapping[str, str]) -> CatalogError:
        """The error for the caller.

        Args:
            table: The table that owns the folders.
            names: The names of the tables in the catalog, by id.
        """
        unnamed = self.unnamed(names)
        return CatalogError(
            f"other tables may have files in the folders of {table}: {self.described(names)}. "
            "No file was reported as an orphan. Pass other_tables='keep' to keep the files of "
            "these tables"
            + (f"; if one is dropped, pass its id: dropped=['{unnamed}']" if unnamed else "")
        )


class OtherTables:
    """Finds other tables by their metadata files, and keeps the files that they refer to.

    A table may be in use as long as one of its metadata files exists. Only its catalog knows which
    of them is current, so the references of all of them are kept.

    Memory: about 400 bytes for each metadata file that is not a version of the table itself.

    Args:
        io: The file access.
        own: The table's own versions.
        references: The references of other tables, to which this object adds.
        sharing: The options on other tables.
        budget: The budget that reading is charged to.
        concerns: Whether a metadata file of another table matters here: it is in one of this
            table's folders, or its table writes there.
        may_be_left: Whether a folder, given by its key, may be skipped as a whole: it is below the
            table's location, and does not contain its data or metadata folder.
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
        """Record a file that this table does not refer to, if it is a table's metadata."""
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
        """Examine the files recorded since the last call.

        Raises:
            SharedFoldersError: If another table may have files here.
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
            if read is None or self._is_irrelevant(read):
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
        """Skip a folder, given by its key, if it belongs to another table alone."""
        if self._may_be_left(folder):
            self._left.add(folder)

    def hold(self, key: str) -> bool:
        """Whether a path is in another table's folder."""
        folder = posixpath.dirname(key)
        while self._left and folder != "/":
            if folder in self._left:
                return True
            folder = posixpath.dirname(folder)
        return False

    def folders(self) -> tuple[str, ...]:
        """The folders that are skipped as a whole."""
        return tuple(sorted(self._left))

    def _read(self, file: StoredFile) -> MetadataFile | None:
        """The content of a file; None if it is gone.

        Raises:
            CatalogError: If the store fails to return it.
            ValueError: If it is not a table's metadata.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                return read_metadata_file(self._io, file.path, self._budget)
            except FileNotFoundError:
                return None
            except IcestreamError:
                raise
            except OSError as error:  # The store failed: the file's content is not known.
                if not tries_left:
                    raise unreadable(file.path, error) from error
            except Exception as error:
                if not tries_left:
                    raise ValueError(f"{type(error).__name__}: {error}") from error
            time.sleep(_WAIT_SECONDS)
        raise AssertionError("unreachable")

    def _is_irrelevant(self, read: MetadataFile) -> bool:
        """Whether no file needs to be kept for a metadata file."""
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
        """Keep all files that a metadata file refers to, and skip folders of its table."""
        folders = {folder, *self._own.folders}

        def may_miss(path: str) -> bool:
            # Expiry deletes files that earlier versions refer to. The folder of the metadata file
            # is accessible, so a file that is missing there is really gone.
            return posixpath.dirname(path_key(path)) in folders

        self._references.add_named(read.named())
        for manifest_list in read.lists:
            self._references.add_list(
                self._io,
                manifest_list,
                has_files=manifest_list in read.lists_with_files,
                may_miss=may_miss,
            )
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
                f"{folder} may hold a {format_name} table, whose files look like orphans, so no "
                "file was reported as an orphan. Move that table elsewhere"
                + (
                    ", or pass other_tables='keep' to skip its folder"
                    if self._may_be_left(folder)
                    else ""
                )
            )

    def _is_leftover(self, file: StoredFile) -> bool:
        """Whether a killed commit to this table left this unreadable file."""
        in_own_folder = posixpath.dirname(file.key) in self._own.folders
        return self._sharing.only_catalog and in_own_folder and not self.uuids


def _not_readable(file: StoredFile, error: Exception) -> CatalogError:
    return CatalogError(
        f"{file.path} can't be read as a table's metadata ({error}), so the files of that table "
        "are not known, and no file was reported as an orphan. If no table needs the file, delete "
        "it; if a killed commit to this table left it, pass only_catalog=True"
    )
