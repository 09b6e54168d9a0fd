"""Manifests read one entry at a time, so that a large one costs no more than a small one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from pyiceberg.avro.reader import DefaultReader, Reader, StructReader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from icestream.errors import CatalogError, FileMissingError
from icestream.upkeep.avro_records import AvroRecords

# Ids of a data file's fields in a manifest.
CONTENT, FILE_PATH, PARTITION, RECORD_COUNT, FILE_SIZE = 134, 100, 102, 103, 104

_STATUS, _DATA_FILE = 0, 2
_READ_AHEAD = 8
_READ_AHEAD_BYTES = 4 << 20


def manifests_of(io: FileIO, manifest_list: str) -> Iterator[ManifestFile]:
    """The manifests that a list names. Unlike `Snapshot.manifests`, nothing is kept for later.

    Memory: the list as stored.

    Raises:
        FileMissingError: If the list is gone.
        CatalogError: If it can't be read.
    """
    content = _fetch(io, manifest_list)
    try:
        yield from AvroRecords(
            content,
            len(content),
            lambda written: resolve_reader(
                written,
                MANIFEST_LIST_FILE_SCHEMAS[DEFAULT_READ_VERSION],
                {-1: ManifestFile, 508: PartitionFieldSummary},
                {517: ManifestContent},
            ),
        )
    except Exception as error:
        raise unreadable(manifest_list, error) from error


def live_files(
    io: FileIO, manifests: Iterable[ManifestFile]
) -> Iterator[tuple[ManifestFile, DataFile]]:
    """The files that manifests hold, without those that they say are removed.

    Memory: 4 MB of manifests.

    Raises:
        FileMissingError: If a manifest is gone.
        CatalogError: If it can't be read, or is cut off.
    """
    read = _Entries(
        lambda written: resolve_reader(
            written,
            MANIFEST_ENTRY_SCHEMAS[DEFAULT_READ_VERSION],
            {-1: ManifestEntry, 2: DataFile},
            {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        )
    )
    for manifest, entry in read.of(io, manifests):
        if entry.status != ManifestEntryStatus.DELETED:
            file = entry.data_file
            file.spec_id = manifest.partition_spec_id
            yield manifest, file


def live_values(
    io: FileIO,
    manifests: Iterable[ManifestFile],
    *fields: int,
    may_miss: Callable[[str], bool] = lambda path: False,
) -> Iterator[tuple[ManifestFile, Record]]:
    """Some fields of the files that manifests hold, without those that they say are removed.

    Nothing else is decoded: a table's statistics cost no memory here.

    Args:
        io: The table's file access.
        manifests: The manifests.
        *fields: Ids of fields; those that a manifest does not have are None.
        may_miss: Whether a manifest may be gone; then it is passed over.

    Memory: 4 MB of manifests.

    Raises:
        FileMissingError: If a manifest is gone.
        CatalogError: If it can't be read, or is cut off.
    """
    read = _Entries(lambda written: _only(written, fields), may_miss)
    for manifest, entry in read.of(io, manifests):
        if entry[0] != ManifestEntryStatus.DELETED.value:
            yield manifest, entry[1]


def _only(written: Schema, fields: Sequence[int]) -> Reader:
    """A reader of the status and of some fields of the data file; the rest is passed over."""
    whole = construct_reader(written)
    assert isinstance(whole, StructReader)
    readers: list[tuple[int | None, Reader]] = []
    for field, (_, reader) in zip(written.fields, whole.field_readers, strict=True):
        if field.field_id == _STATUS:
            readers.append((0, reader))
        elif field.field_id == _DATA_FILE:
            assert isinstance(reader, StructReader)
            readers.append((1, _some_of(reader, fields)))
        else:
            readers.append((None, reader))
    return StructReader(tuple(readers), Record, whole.struct)


def _some_of(data_file: StructReader, fields: Sequence[int]) -> Reader:
    there = [field.field_id for field in data_file.struct.fields]
    readers: list[tuple[int | None, Reader]] = [
        (fields.index(number) if number in fields else None, reader)
        for number, (_, reader) in zip(there, data_file.field_readers, strict=True)
    ]
    absent = [position for position, number in enumerate(fields) if number not in there]
    readers += [(position, DefaultReader(None)) for position in absent]
    return StructReader(tuple(readers), Record, data_file.struct)


class _Entries:
    """Reads the entries of manifests, several manifests ahead: object stores take their time."""

    def __init__(
        self,
        reader: Callable[[Schema], Reader],
        may_miss: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self._reader = reader
        self._may_miss = may_miss

    def of(
        self, io: FileIO, manifests: Iterable[ManifestFile]
    ) -> Iterator[tuple[ManifestFile, Any]]:
        for manifest, content in _fetched(io, manifests):
            path = manifest.manifest_path
            with ExitStack() as stack:
                try:
                    source = _source(io, manifest, content, stack)
                    for entry in AvroRecords(*source, self._reader):
                        yield manifest, entry
                except Exception as error:
                    failure = unreadable(path, error)
                    if not isinstance(failure, FileMissingError) or not self._may_miss(path):
                        raise failure from error


def _source(
    io: FileIO, manifest: ManifestFile, content: Future[bytes] | None, stack: ExitStack
) -> tuple[Any, int]:
    """A manifest's bytes, or a stream if it is large, and its length."""
    file = io.new_input(manifest.manifest_path)
    fetched = content.result() if content is not None else None
    size = len(fetched) if fetched is not None else len(file)
    if size < manifest.manifest_length:
        raise EOFError(f"it is cut off, {size} bytes are left of {manifest.manifest_length}")
    if fetched is not None:
        return fetched, size
    return stack.enter_context(file.open(seekable=False)), size


def _fetched(
    io: FileIO, manifests: Iterable[ManifestFile]
) -> Iterator[tuple[ManifestFile, Future[bytes] | None]]:
    """Manifests with their bytes, some read ahead; None for one that is to be streamed."""
    coming: deque[tuple[ManifestFile, Future[bytes] | None]] = deque()
    ahead_bytes = 0
    with ThreadPoolExecutor(_READ_AHEAD) as pool:
        try:
            for manifest in manifests:
                length = manifest.manifest_length
                while coming and (
                    len(coming) == _READ_AHEAD or ahead_bytes + length > _READ_AHEAD_BYTES
                ):
                    if coming[0][1] is not None:
                        ahead_bytes -= coming[0][0].manifest_length
                    yield coming.popleft()
                if length > _READ_AHEAD_BYTES:
                    coming.append((manifest, None))
                else:
                    coming.append((manifest, pool.submit(_fetch, io, manifest.manifest_path)))
                    ahead_bytes += length
            while coming:
                yield coming.popleft()
        finally:
            for _, unread in coming:
                if unread is not None:
                    unread.cancel()


def _fetch(io: FileIO, path: str) -> bytes:
    try:
        with io.new_input(path).open() as stream:
            return bytes(stream.read())
    except Exception as error:
        raise unreadable(path, error) from error


def unreadable(path: str, error: Exception) -> CatalogError | FileMissingError:
    """The error for a metadata file that can't be read."""
    if isinstance(error, (CatalogError, FileMissingError)):
        return error
    if isinstance(error, FileNotFoundError):
        return FileMissingError(
            f"{path}, which the table refers to, is gone: {error}. Was it removed by an expiry "
            "or clean-up? Load the table again",
            path=path,
        )
    return CatalogError(f"{path} can't be read: {type(error).__name__}: {error}")
