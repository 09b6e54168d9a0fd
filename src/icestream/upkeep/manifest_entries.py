"""Manifests read one entry at a time, so that a large one costs little more than its bytes."""

from __future__ import annotations

import io as streams
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
)

from icestream.errors import CatalogError, FileMissingError

_READ_AHEAD = 8
_READ_AHEAD_BYTES = 4 << 20


def manifests_of(io: FileIO, manifest_list: str) -> list[ManifestFile]:
    """The manifests that a list names. Unlike `Snapshot.manifests`, nothing is kept for later.

    Raises:
        FileMissingError: If the list is gone.
        CatalogError: If it can't be read.
    """
    try:
        return list(read_manifest_list(io.new_input(manifest_list)))
    except Exception as error:
        raise _unreadable(manifest_list, error) from error


def live_files(
    io: FileIO, manifests: Iterable[ManifestFile]
) -> Iterator[tuple[ManifestFile, DataFile]]:
    """The files that manifests hold, without those that they say are removed.

    Memory: one manifest as stored, and 4 MB of others that are read ahead.

    Raises:
        FileMissingError: If a manifest is gone.
        CatalogError: If it can't be read.
    """
    for manifest, content in _fetched(io, manifests):
        try:
            with AvroFile[ManifestEntry](
                _Content(manifest.manifest_path, content),
                MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION],
                read_types={-1: ManifestEntry, 2: DataFile},
                read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
            ) as entries:
                for entry in entries:
                    if entry.status != ManifestEntryStatus.DELETED:
                        file = entry.data_file
                        file.spec_id = manifest.partition_spec_id
                        yield manifest, file
        except Exception as error:
            raise _unreadable(manifest.manifest_path, error) from error


def _fetched(io: FileIO, manifests: Iterable[ManifestFile]) -> Iterator[tuple[ManifestFile, bytes]]:
    """Manifests with their bytes, some read ahead: object stores take their time."""
    coming: deque[tuple[ManifestFile, Future[bytes]]] = deque()
    ahead_bytes = 0
    with ThreadPoolExecutor(_READ_AHEAD) as pool:
        try:
            for manifest in manifests:
                while coming and (
                    len(coming) == _READ_AHEAD
                    or ahead_bytes + manifest.manifest_length > _READ_AHEAD_BYTES
                ):
                    first, content = coming.popleft()
                    ahead_bytes -= first.manifest_length
                    yield first, content.result()
                coming.append((manifest, pool.submit(_fetch, io, manifest.manifest_path)))
                ahead_bytes += manifest.manifest_length
            while coming:
                first, content = coming.popleft()
                yield first, content.result()
        finally:
            for _, unread in coming:
                unread.cancel()


def _fetch(io: FileIO, path: str) -> bytes:
    try:
        with io.new_input(path).open() as stream:
            return bytes(stream.read())
    except Exception as error:
        raise _unreadable(path, error) from error


class _Content(InputFile):
    """Bytes that were read already, as PyIceberg wants them."""

    def __init__(self, location: str, content: bytes) -> None:
        super().__init__(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return streams.BytesIO(self._content)


def _unreadable(path: str, error: Exception) -> CatalogError | FileMissingError:
    if isinstance(error, FileNotFoundError):
        return FileMissingError(
            f"{path}, which the table refers to, is gone: {error}. Was it removed by an expiry "
            "or clean-up? Load the table again",
            path=path,
        )
    return CatalogError(f"{path} can't be read: {type(error).__name__}: {error}")
