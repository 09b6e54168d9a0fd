"""The versions that a table has gone through, as far as its metadata files tell."""

from __future__ import annotations

import hashlib
import posixpath

from pyiceberg.io import FileIO
from pyiceberg.table import Table

from icestream.memory import MemoryBudget
from icestream.upkeep.manifest_entries import unreadable
from icestream.upkeep.path_keys import path_key
from icestream.upkeep.search.metadata_file import MetadataFile, read_metadata_file

_VERSION_BYTES = 128


class OwnVersions:
    """Knows a table's metadata files from those of other tables, and of its copies.

    Each metadata file names some that came before it; the oldest of these names others that came
    before. A file that no such chain leads to was never the version of this table in this catalog:
    its commit was lost, or it is of a copy that another catalog has.

    Memory: 128 bytes for each metadata file, on lease.

    Attributes:
        table_uuid: The table's id.
        folders: Folders that its metadata lies in, by key.
        locations: The same as they are written, without those of manifest lists.
        manifest_lists: Those of the current version, by key.

    Args:
        table: The table.
        budget: What the names are on lease from.
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
        """Take in the table as it is now, and what came before."""
        metadata = table.metadata
        named = [table.metadata_location, *(e.metadata_file for e in metadata.metadata_log)]
        self.folders |= {posixpath.dirname(path_key(location)) for location in named}
        self.locations |= {location.rpartition("/")[0] for location in named}
        self.manifest_lists = {path_key(s.manifest_list) for s in metadata.snapshots}
        self.folders |= {posixpath.dirname(path) for path in self.manifest_lists}
        self._follow(table.io, named)
        self._lease.resize(len(self._versions) * _VERSION_BYTES)

    def is_lost_commit(self, io: FileIO, file: MetadataFile) -> bool:
        """Whether a metadata file is of a commit that failed and was cleaned up after.

        It was to follow one of this table's versions, and all that it would have added is gone:
        whoever wrote it deleted its manifest lists. Nobody can read the table at this version.
        """
        if file.parent is None or file.parent not in self:
            return False
        added = [path for path in file.heads if path_key(path) not in self.manifest_lists]
        return bool(added) and not any(_exists(io, path) for path in added)

    def _follow(self, io: FileIO, named: list[str]) -> None:
        """Go back from the oldest of some metadata files as far as there are any."""
        while named:
            is_new = len(named) > 1 and named[1] not in self
            self._versions.update(map(_digest, named))
            if not is_new:
                return
            try:
                oldest = read_metadata_file(io, named[1], self._budget)
            except (OSError, ValueError):
                return  # gone, or damaged: what came before it is not known to be the table's
            if oldest.table_uuid != self.table_uuid:
                return
            named = [named[1], *oldest.log]


def _exists(io: FileIO, path: str) -> bool:
    try:
        return io.new_input(path).exists()
    except Exception as error:
        raise unreadable(path, error) from error


def _digest(location: str) -> bytes:
    key = path_key(location).encode(errors="surrogatepass")
    return hashlib.blake2b(key, digest_size=15).digest()
