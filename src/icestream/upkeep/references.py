"""Everything that a table refers to, as a set of paths."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from icestream.upkeep.folder import path_key
from icestream.upkeep.manifest_entries import live_files, manifests_of

_DIGEST_BYTES = 15  # with Python's own 33 bytes this fills an allocation of 48


class References:
    """Which files a table refers to, in any snapshot, branch or tag.

    Paths are remembered by a digest. Two of them could only be mistaken for each other such that a
    file is kept.

    Memory: about 100 bytes for each file, whatever the lengths of paths and the width of the table,
    and what reading manifests takes.
    """

    def __init__(self) -> None:
        self._digests: set[bytes] = set()
        self._read: set[str] = set()

    def __len__(self) -> int:
        return len(self._digests)

    def __contains__(self, key: str) -> bool:
        """Whether a path, as `path_key` has it, is referred to."""
        return _digest(key) in self._digests

    @property
    def manifests_read(self) -> int:
        """How many manifests and manifest lists were read."""
        return len(self._read)

    def add(self, table: Table) -> None:
        """Take in what the table refers to now; manifests that were read before are not again.

        Raises:
            CatalogError: If something of it can't be read.
        """
        metadata, io = table.metadata, table.io
        self._take(_named_in(metadata))
        self._take([table.metadata_location])
        manifests: dict[str, ManifestFile] = {}
        for snapshot in metadata.snapshots:
            if snapshot.manifest_list not in self._read:
                for manifest in manifests_of(io, snapshot.manifest_list):
                    if manifest.manifest_path not in self._read:
                        manifests[manifest.manifest_path] = manifest
        self._take(manifests)
        self._take(file.file_path for _, file in live_files(io, manifests.values()))
        self._read |= {snapshot.manifest_list for snapshot in metadata.snapshots}
        self._read |= manifests.keys()

    def _take(self, locations: Iterable[str]) -> None:
        self._digests.update(_digest(path_key(location)) for location in locations)


def _named_in(metadata: TableMetadata) -> Iterable[str]:
    """What the metadata file itself names."""
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (snapshot.manifest_list for snapshot in metadata.snapshots)
    yield from (file.statistics_path for file in metadata.statistics)
    yield from (file.statistics_path for file in metadata.partition_statistics)


def _digest(key: str) -> bytes:
    content = key.encode(errors="surrogatepass")
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
