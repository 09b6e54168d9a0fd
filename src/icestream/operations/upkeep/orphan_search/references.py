"""The files that tables refer to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from icestream.catalogs.credentials import table_access
from icestream.errors import FileMissingError
from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.folder import StoredFile
from icestream.operations.upkeep.manifest_entries import FILE_PATH, ManifestEntries
from icestream.operations.upkeep.orphan_search.name_set import NameSet
from icestream.operations.upkeep.path_keys import all_keys, forget_links, plain_name
from icestream.read.plan.manifests import counts_files

_READ_BYTES = 128  # per manifest that is remembered as read


class References:
    """The files that a table refers to, in any snapshot, branch or tag.

    All names of a file (`path_keys`) are stored as hashes. A collision only keeps a file.

    Memory: 24 bytes for each file, regardless of the length of paths; beyond an eighth of the
    budget they go to disk. 128 bytes for each manifest; beyond a sixteenth of the budget, manifests
    are read again instead. In addition, the memory for reading manifests.

    Args:
        budget: The budget that the names are charged to.
        beyond: Other references. Manifests that were read for them are not read again.
    """

    def __init__(self, budget: MemoryBudget, *, beyond: References | None = None) -> None:
        self._paths = NameSet(budget, budget.limit_bytes // 16)
        self._others = NameSet(budget, budget.limit_bytes // 16)
        self._beyond = beyond
        self._budget = budget
        self._read: set[bytes] = set()
        self._most_read = budget.limit_bytes // 16 // _READ_BYTES
        self._lease = budget.force(0)

    def __len__(self) -> int:
        """The number of files, by path."""
        return len(self._paths)

    def hold(self, files: Sequence[StoredFile]) -> list[bool]:
        """Marks the files that are referenced. Look up many files in one call."""
        held = self._paths.find(file.key for file in files)
        held |= self._others.find(file.key for file in files)
        held |= self._others.find(file.identity or file.key for file in files)
        return [bool(each) for each in held]

    def name(self, files: Sequence[StoredFile]) -> list[bool]:
        """Marks the files that have the name of a referenced file in any folder.

        File names contain unique ids. A file with the same name is a copy, or the reference to it
        is written in a notation that `path_keys` does not understand.
        """
        is_named = self._others.find(plain_name(file.relative) for file in files)
        return [bool(each) for each in is_named]

    def hold_any_path(self, files: Sequence[StoredFile]) -> bool:
        """Whether any of the files is referenced by its path."""
        return bool(self._paths.find(file.key for file in files).any())

    def add(self, table: Table) -> None:
        """Add the current references of a table. Each manifest is read only once.

        Raises:
            CatalogError: If a metadata file can't be read.
            FileMissingError: If a metadata file is gone.
        """
        forget_links()
        self.add_named([table.metadata_location, *_named_in(table.metadata)])
        io = table_access(table)
        for snapshot in table.metadata.snapshots:
            if snapshot.manifest_list:
                self.add_list(io, snapshot.manifest_list, has_files=counts_files(snapshot))

    def add_named(self, locations: Iterable[str]) -> None:
        """Add files by their locations."""
        for location in locations:
            first, *others = all_keys(location)
            self._paths.add(first)
            self._others.add(plain_name(location))
            for key in others:
                self._others.add(key)

    def add_list(
        self,
        io: FileIO,
        manifest_list: str,
        *,
        has_files: bool,
        may_miss: Callable[[str], bool] = lambda path: False,
    ) -> None:
        """Add all files that a manifest list leads to.

        Args:
            io: The file access.
            manifest_list: The path of the list.
            has_files: Whether its snapshot has files.
            may_miss: Whether to skip a list or a manifest that is gone.

        Raises:
            CatalogError: If the list or a manifest can't be read.
            FileMissingError: If the list or a manifest is gone.
        """
        mark = _mark(manifest_list)
        if self._was_read(mark):
            return
        entries = ManifestEntries(io, self._budget)
        read: list[bytes] = [mark]
        try:
            unread = self._unread(entries.manifests(manifest_list, has_files=has_files), read)
            values = entries.values(unread, FILE_PATH, may_miss=may_miss)
            self.add_named(str(file[0]) for _, file in values)
        except FileMissingError as error:
            if not may_miss(error.path):
                raise
            return
        self._remember(read)  # only after everything was read

    def close(self) -> None:
        """Drop everything."""
        self._paths.close()
        self._others.close()
        self._read.clear()
        self._lease.release()

    def _unread(
        self, manifests: Iterable[ManifestFile], read: list[bytes]
    ) -> Iterator[ManifestFile]:
        """Manifests that were not read before."""
        for manifest in manifests:
            mark = _mark(manifest.manifest_path)
            if not self._was_read(mark):
                self.add_named([manifest.manifest_path])
                read.append(mark)
                yield manifest

    def _was_read(self, mark: bytes) -> bool:
        return mark in self._read or (self._beyond is not None and mark in self._beyond._read)

    def _remember(self, marks: Iterable[bytes]) -> None:
        for mark in marks:
            if len(self._read) < self._most_read:
                self._read.add(mark)
        self._lease.resize(len(self._read) * _READ_BYTES)


def _named_in(metadata: TableMetadata) -> Iterator[str]:
    """The files that the metadata file itself names."""
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots)
    yield from (file.statistics_path for file in metadata.statistics)
    yield from (file.statistics_path for file in metadata.partition_statistics)


def _mark(path: str) -> bytes:
    """A digest of a manifest's path, long enough that two paths never have the same one."""
    return hashlib.blake2b(path.encode(errors="surrogatepass"), digest_size=15).digest()
