"""Manifests read one entry at a time, so that a large one costs no more memory than its bytes."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
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


def live_files(io: FileIO, manifest: ManifestFile) -> Iterator[DataFile]:
    """The files that a manifest holds, without those that it says are removed.

    Raises:
        FileMissingError: If the manifest is gone.
        CatalogError: If it can't be read.
    """
    try:
        with AvroFile[ManifestEntry](
            io.new_input(manifest.manifest_path),
            MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as entries:
            for entry in entries:
                if entry.status != ManifestEntryStatus.DELETED:
                    file = entry.data_file
                    file.spec_id = manifest.partition_spec_id
                    yield file
    except Exception as error:
        raise _unreadable(manifest.manifest_path, error) from error


def _unreadable(path: str, error: Exception) -> CatalogError | FileMissingError:
    if isinstance(error, FileNotFoundError):
        return FileMissingError(
            f"{path}, which the table refers to, is gone: {error}. Was it removed by an expiry "
            "or clean-up? Load the table again",
            path=path,
        )
    return CatalogError(f"{path} can't be read: {type(error).__name__}: {error}")
