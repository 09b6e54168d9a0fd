"""Everything that tables refer to."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from icestream.errors import FileMissingError
from icestream.memory import MemoryBudget
from icestream.upkeep.folder import StoredFile
from icestream.upkeep.manifest_entries import FILE_PATH, live_values, manifests_of
from icestream.upkeep.path_keys import all_keys, forget_links, plain_name
from icestream.upkeep.search.name_set import NameSet

_READ_BYTES = 128  # of a manifest that is remembered as read


class References:
    """Which files a table refers to, in any snapshot, branch or tag.

    Files are remembered by every name that they are known under (`path_keys`), each as a hash. Two
    names with one hash could only keep a file.

    Memory: 24 bytes for each file, whatever the lengths of paths and the width of the table; beyond
    an eighth of the budget they go to disk. 128 bytes for each manifest; beyond a sixteenth of the
    budget manifests are read again instead. And what reading manifests takes.

    Args:
        budget: What the names are on lease from.
        beyond: What is referred to anyway: manifests that were read for it are not read again.
    """

    def __init__(self, budget: MemoryBudget, *, beyond: References | None = None) -> None:
        self._paths = NameSet(budget, budget.limit_bytes // 16)
        self._others = NameSet(budget, budget.limit_bytes // 16)
        self._beyond = beyond
        self._read: set[bytes] = set()
        self._most_read = budget.limit_bytes // 16 // _READ_BYTES
        self._lease = budget.force(0)

    def __len__(self) -> int:
        """How many files: each counts once, by its path."""
        return len(self._paths)

    @property
    def manifests_read(self) -> int:
        """How many manifests and manifest lists were read and are remembered."""
        return len(self._read)

    @property
    def spilled_bytes(self) -> int:
        """What is on disk."""
        return self._paths.spilled_bytes + self._others.spilled_bytes

    def hold(self, files: Sequence[StoredFile]) -> list[bool]:
        """Which of some files are referred to; ask for many at once."""
        held = self._paths.find(file.key for file in files)
        held |= self._others.find(file.key for file in files)
        held |= self._others.find(file.identity or file.key for file in files)
        return [bool(each) for each in held]

    def name(self, files: Sequence[StoredFile]) -> list[bool]:
        """Which of some files have the name of one that is referred to, wherever that is.

        Names of files carry ids that no other file has. A file with such a name is a copy, or the
        location that leads to it is written in a way that nobody here understands.
        """
        found = self._others.find(plain_name(file.relative) for file in files)
        return [bool(each) for each in found]

    def hold_any_path(self, files: Sequence[StoredFile]) -> bool:
        """Whether one of some files is referred to by its very path."""
        return bool(self._paths.find(file.key for file in files).any())

    def add(self, table: Table) -> None:
        """Take in what the table refers to now; manifests that were read before are not again.

        Raises:
            CatalogError: If something of it can't be read.
            FileMissingError: If something of it is gone.
        """
        forget_links()
        self.add_named([table.metadata_location, *_named_in(table.metadata)])
        for snapshot in table.metadata.snapshots:
            if snapshot.manifest_list:
                self.add_list(table.io, snapshot.manifest_list)

    def add_named(self, locations: Iterable[str]) -> None:
        """Take in files by their locations."""
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
        may_miss: Callable[[str], bool] = lambda path: False,
    ) -> None:
        """Take in all that a manifest list leads to.

        Args:
            io: How files are read.
            manifest_list: The list.
            may_miss: Whether a list or a manifest may be gone; then it is passed over.

        Raises:
            CatalogError: If something of it can't be read.
            FileMissingError: If something of it is gone.
        """
        mark = _mark(manifest_list)
        if self._was_read(mark):
            return
        read: list[bytes] = [mark]
        try:
            unread = self._unread(manifests_of(io, manifest_list), read)
            values = live_values(io, unread, FILE_PATH, may_miss=may_miss)
            self.add_named(str(file[0]) for _, file in values)
        except FileMissingError as error:
            if not may_miss(error.path):
                raise
            return
        self._remember(read)  # not before all of it was read

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
    """What the metadata file itself names."""
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots)
    yield from (file.statistics_path for file in metadata.statistics)
    yield from (file.statistics_path for file in metadata.partition_statistics)


def _mark(path: str) -> bytes:
    """A manifest that was read, by a digest: two must not be taken for the same here."""
    return hashlib.blake2b(path.encode(errors="surrogatepass"), digest_size=15).digest()
