"""The past versions of a table, as its metadata files record them."""

from __future__ import annotations

import hashlib
import posixpath

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from icestream.catalogs.credentials import renewing, table_access
from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.manifest_entries import unreadable
from icestream.operations.upkeep.orphan_search.metadata_file import MetadataFile, read_metadata_file
from icestream.operations.upkeep.path_keys import path_key

_VERSION_BYTES = 128


class OwnVersions:
    """Distinguishes a table's metadata files from those of other tables and of its copies.

    Each metadata file names some earlier ones; the oldest of these names others that are earlier
    still. A file outside this chain was never a version of this table in this catalog: either its
    commit failed, or it belongs to a copy in another catalog.

    Memory: 128 bytes for each metadata file.

    Attributes:
        table_uuid: The table's id.
        folders: The keys of the folders that hold its metadata.
        locations: The locations of these folders, without those of manifest lists.
        manifest_lists: The keys of the manifest lists of the current version.

    Args:
        table: The table.
        budget: The budget that the names are charged to.
    """

    def __init__(self, table: Table, budget: MemoryBudget) -> None:
        self.table_uuid = str(table.metadata.table_uuid).lower()
        self.folders: set[str] = set()
        self.locations: set[str] = set()
        self.manifest_lists: set[str] = set()
        self._budget = budget
        self._lease = budget.force(0)
        self._versions: set[bytes] = set()

    def __contains__(self, location: str) -> bool:
        return _digest(location) in self._versions

    def add(self, table: Table) -> None:
        """Add the current version of the table, and the earlier ones."""
        metadata = table.metadata
        named = [table.metadata_location, *(e.metadata_file for e in metadata.metadata_log)]
        self.folders |= {posixpath.dirname(path_key(location)) for location in named}
        self.locations |= {location.rpartition("/")[0] for location in named}
        self.manifest_lists = {path_key(s.manifest_list) for s in metadata.snapshots}
        self.folders |= {posixpath.dirname(path) for path in self.manifest_lists}
        self._follow(table_access(table), named)
        self._lease.resize(len(self._versions) * _VERSION_BYTES)

    def is_lost_commit(self, io: FileIO, file: MetadataFile) -> bool:
        """Whether a metadata file belongs to a commit that failed and was cleaned up.

        Such a file follows one of this table's versions, and the manifest lists that it adds are
        gone, because its writer deleted them. Nobody can read the table at this version.
        """
        if file.parent is None or file.parent not in self:
            return False
        added = [path for path in file.heads if path_key(path) not in self.manifest_lists]
        return bool(added) and not any(_exists(io, path) for path in added)

    def _follow(self, io: FileIO, named: list[str]) -> None:
        """Follow the chain of metadata files back to the oldest one."""
        while named:
            is_new = len(named) > 1 and named[1] not in self
            self._versions.update(map(_digest, named))
            if not is_new:
                return
            try:
                oldest = read_metadata_file(io, named[1], self._budget)
            except (OSError, ValueError):
                return  # It is gone or damaged, so the files before it are not known.
            if oldest.table_uuid != self.table_uuid:
                return
            named = [named[1], *oldest.log]


def _exists(io: FileIO, path: str) -> bool:
    try:
        return renewing(io, lambda: io.new_input(path).exists(), path=path)
    except Exception as error:
        raise unreadable(path, error) from error


def _digest(location: str) -> bytes:
    key = path_key(location).encode(errors="surrogatepass")
    return hashlib.blake2b(key, digest_size=15).digest()
