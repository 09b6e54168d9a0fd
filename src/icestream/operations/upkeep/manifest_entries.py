"""Reads the manifests of any snapshot, and raises `CatalogError` for those that can't be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache

from pyiceberg.avro.reader import DefaultReader, Reader, StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from icestream.errors import (
    CatalogError,
    CredentialsExpiredError,
    FileMissingError,
    IcestreamError,
    ReadError,
)
from icestream.memory.budget import MemoryBudget
from icestream.read.decode.files import RetryPolicy, retrying
from icestream.read.plan.manifests import ReaderOf, is_cut_off, metadata_files

# Ids of a data file's fields in a manifest.
CONTENT, FILE_PATH, PARTITION, RECORD_COUNT, FILE_SIZE = 134, 100, 102, 103, 104

_STATUS, _DATA_FILE = 0, 2
_READ_AHEAD = 8


class ManifestEntries:
    """Reads manifest lists and manifests one entry at a time.

    Memory: a manifest list as stored, up to 8 MB of manifests, and one decompressed block, charged
    to the budget.

    Args:
        io: The table's file access.
        budget: The budget that the bytes are charged to.
    """

    def __init__(self, io: FileIO, budget: MemoryBudget) -> None:
        self._files = metadata_files(io, table="the table", budget=budget)

    def manifests(self, manifest_list: str, *, has_files: bool) -> Iterator[ManifestFile]:
        """The manifests of a manifest list. Unlike `Snapshot.manifests`, it does not cache them.

        Args:
            manifest_list: The path of the list.
            has_files: Whether the summary of its snapshot counts any files.

        Raises:
            FileMissingError: If the list is gone.
            CatalogError: If it can't be read, or is truncated.
        """
        with _catalog_errors(), closing(self._files.fetch(manifest_list)) as content:
            if has_files and is_cut_off(content.content):
                raise CatalogError(
                    f"{manifest_list} is truncated: it has no complete block, but its snapshot has "
                    "files. Restore it, or expire the snapshot"
                )
            yield from self._files.manifests(content)

    def files(self, manifests: Iterable[ManifestFile]) -> Iterator[DataFile]:
        """The files in manifests, without removed ones.

        Raises:
            FileMissingError: If a manifest is gone.
            CatalogError: If a manifest can't be read, or is truncated.
        """
        with _catalog_errors():
            for entry in self._files.entries_of(manifests, at_once=_READ_AHEAD):
                yield entry.data_file

    def values(
        self,
        manifests: Iterable[ManifestFile],
        *fields: int,
        may_miss: Callable[[str], bool] = lambda path: False,
    ) -> Iterator[tuple[ManifestFile, Record]]:
        """Some fields of the files in manifests, without removed files.

        Other fields, such as statistics, are not decoded.

        Args:
            manifests: The manifests.
            *fields: The ids of the fields; fields that a manifest lacks are None.
            may_miss: Whether to skip a manifest that is gone.

        Raises:
            FileMissingError: If a manifest is gone.
            CatalogError: If a manifest can't be read, or is truncated.
        """
        reader_of = _fields_only(fields)
        with _catalog_errors():
            for manifest, entry in self._files.records_of(manifests, reader_of, may_miss=may_miss):
                if entry[0] != ManifestEntryStatus.DELETED.value:
                    yield manifest, entry[1]


@cache
def _fields_only(fields: tuple[int, ...]) -> ReaderOf:
    """Builds readers of the status and of some fields of the data file, which skip the rest."""

    def reader_of(written: Schema) -> Reader:
        entry = construct_reader(written)
        assert isinstance(entry, StructReader)
        readers = dict(zip((f.field_id for f in written.fields), entry.field_readers, strict=True))
        data_file = readers[_DATA_FILE][1]
        assert isinstance(data_file, StructReader)
        readers[_DATA_FILE] = None, _only(data_file, fields)
        struct = StructReader(tuple(readers.values()), Record, entry.struct)
        return _only(struct, (_STATUS, _DATA_FILE))

    return reader_of


def _only(struct: StructReader, fields: Sequence[int]) -> StructReader:
    """A reader of some fields of a struct, which skips the other fields."""
    ids = [field.field_id for field in struct.struct.fields]
    readers: list[tuple[int | None, Reader]] = [
        (fields.index(number) if number in fields else None, reader)
        for number, (_, reader) in zip(ids, struct.field_readers, strict=True)
    ]
    absent = [position for position, number in enumerate(fields) if number not in ids]
    readers += [(position, DefaultReader(None)) for position in absent]
    return StructReader(tuple(readers), Record, struct.struct)


@contextmanager
def _catalog_errors() -> Iterator[None]:
    try:
        yield
    except FileMissingError:
        raise
    except ReadError as error:
        raise unreadable(error.path, error) from error


def stored_bytes(io: FileIO, path: str) -> int:
    """The size of a file in storage."""
    return retrying(lambda: len(io.new_input(path)), path=path, policy=RetryPolicy(), io=io)


def unreadable(path: str, error: Exception) -> IcestreamError:
    """The error for a metadata file that can't be read."""
    if isinstance(error, (CatalogError, CredentialsExpiredError, FileMissingError)):
        return error
    if isinstance(error, FileNotFoundError):
        return FileMissingError(
            f"{path}, which the table refers to, is gone: {error}. An expiry or a clean-up may "
            "have removed it: load the table again",
            path=path,
        )
    reason = (isinstance(error, ReadError) and error.__cause__) or error
    return CatalogError(f"{path} can't be read: {type(reason).__name__}: {reason}")
