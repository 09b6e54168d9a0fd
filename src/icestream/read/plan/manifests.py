"""Read a table's manifests block by block, with little memory even for large ones.

PyIceberg's readers decode the records. In contrast to PyIceberg's `AvroFile`, only a chunk of a
file is held at a time, transient errors are retried, and all bytes count towards the budget.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from pyiceberg.avro.file import SYNC_SIZE
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
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
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DoubleType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from icestream.catalogs._pyiceberg.manifests import exact_manifests
from icestream.errors import CorruptFileError, FileMissingError, IcestreamError
from icestream.memory.budget import Lease, MemoryBudget
from icestream.read.decode.avro_block import CHUNK_BYTES, AvroBlocks
from icestream.read.decode.files import FileStream, RetryPolicy, is_remote

# The properties in a snapshot's summary with the numbers of its files.
FILE_COUNTS = ("total-data-files", "total-delete-files")

_AHEAD = 8
_AHEAD_BYTES = 8 << 20
_PARTITION_ID = 102
_SHAPES = 32  # Partitions of the same type share a reader.


# Builds the reader of a record from the schema of an Avro file.
ReaderOf = Callable[[Schema], Reader]
_MANIFESTS: ReaderOf = partial(
    resolve_reader,
    read_schema=MANIFEST_LIST_FILE_SCHEMAS[2],
    read_types={-1: ManifestFile, 508: PartitionFieldSummary},
    read_enums={517: ManifestContent},
)
_ENTRIES = partial(
    resolve_reader,
    read_types={-1: ManifestEntry, 2: DataFile},
    read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
)
_FILES: ReaderOf = partial(_ENTRIES, read_schema=MANIFEST_ENTRY_SCHEMAS[2])
# Version 3 adds the data file of a deletion vector.
_DELETES: ReaderOf = partial(_ENTRIES, read_schema=MANIFEST_ENTRY_SCHEMAS[3])


@dataclass(frozen=True, slots=True)
class MetadataFiles:
    """Reads manifest lists and manifests of a table.

    Args:
        io: File access.
        table: The table's name, for messages.
        budget: The budget for the bytes that are held.
        policy: The policy for retries.
        stopped: Ends retries when it is set.
    """

    io: FileIO
    table: str
    budget: MemoryBudget
    policy: RetryPolicy
    stopped: threading.Event

    def fetch(self, path: str) -> Content:
        """Read a whole file that is small, such as a manifest list."""
        with closing(_Stream(self, path)) as stream:
            content = b"".join(iter(lambda: stream.read(CHUNK_BYTES), b""))
        return Content(path, content, self.budget.force(len(content)))

    def manifest_list(self, snapshot: Snapshot) -> Content:
        """The bytes of a snapshot's manifest list.

        Raises:
            FileMissingError: If the file does not exist.
            CorruptFileError: If the file is truncated after its header.
        """
        content = self.fetch(snapshot.manifest_list)
        if counts_files(snapshot) and is_cut_off(content.content):
            content.close()
            raise CorruptFileError(
                f"{content.path}, a metadata file of {self.table}, is truncated: it has no "
                f"complete block, but snapshot {snapshot.snapshot_id} has files. Restore it, or "
                "roll the table back to a snapshot that does not need it",
                path=content.path,
            )
        return content

    def manifests(self, content: Content) -> Iterator[ManifestFile]:
        """The manifests of a manifest list, one by one."""
        return self._records(content.path, content, _MANIFESTS)

    def manifests_of(self, snapshot: Snapshot) -> list[ManifestFile]:
        """All manifests of a snapshot.

        Memory: all of them.

        Raises:
            FileMissingError: If the manifest list does not exist.
            CorruptFileError: If it is damaged.
        """
        with closing(self.manifest_list(snapshot)) as content:
            return list(self.manifests(content))

    def entries(
        self,
        manifest: ManifestFile,
        source: Content | None = None,
        *,
        removed: bool = False,
    ) -> Iterator[ManifestEntry]:
        """The entries of a manifest.

        Args:
            manifest: The manifest.
            source: The content of the manifest, if it was fetched before.
            removed: Whether to include entries of removed files.

        Memory: a chunk of the file, and the block that is decoded.

        Raises:
            CorruptFileError: If the manifest is damaged, or shorter than recorded in its list.
        """
        reader_of = _DELETES if manifest.content == ManifestContent.DELETES else _FILES
        entries: Iterator[ManifestEntry] = self._records(
            manifest.manifest_path, source, reader_of, manifest.manifest_length
        )
        for entry in entries:
            if entry.status == ManifestEntryStatus.DELETED and not removed:
                continue
            inherits = manifest.sequence_number == 0 or entry.status == ManifestEntryStatus.ADDED
            if entry.sequence_number is None and inherits:
                entry.sequence_number = manifest.sequence_number
            if entry.file_sequence_number is None and inherits:
                entry.file_sequence_number = manifest.sequence_number
            if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
                entry.snapshot_id = manifest.added_snapshot_id
            entry.data_file.spec_id = manifest.partition_spec_id
            yield entry

    def entries_of(
        self, manifests: Iterable[ManifestFile], *, at_once: int
    ) -> Generator[ManifestEntry]:
        """The entries of several manifests, in order.

        On an object store, manifests are fetched ahead.

        Args:
            manifests: The manifests.
            at_once: Number of manifests to fetch at the start. It doubles each time, up to 8.
        """
        with closing(_Ahead(self, manifests, at_once)) as fetched:
            for manifest, content in fetched:
                try:
                    yield from self.entries(manifest, content)
                finally:
                    if content is not None:
                        content.close()

    def records_of(
        self,
        manifests: Iterable[ManifestFile],
        reader_of: ReaderOf,
        *,
        may_miss: Callable[[str], bool] = lambda path: False,
    ) -> Generator[tuple[ManifestFile, Any]]:
        """The entries of several manifests, as a reader of the caller decodes them.

        Args:
            manifests: The manifests.
            reader_of: Builds the reader of an entry from the schema of a manifest.
            may_miss: Whether to skip a manifest that does not exist, by its path.
        """
        with closing(_Ahead(self, manifests, _AHEAD)) as fetched:
            for manifest, content in fetched:
                path, length = manifest.manifest_path, manifest.manifest_length
                try:
                    for entry in self._records(path, content, reader_of, length):
                        yield manifest, entry
                except FileMissingError:
                    if not may_miss(path):
                        raise
                finally:
                    if content is not None:
                        content.close()

    def _records(
        self,
        path: str,
        source: Content | None,
        reader_of: ReaderOf,
        expected_bytes: int = 0,
    ) -> Iterator[Any]:
        with closing(_Stream(self, path)) as stream:
            read = source.reader() if source is not None else stream.read
            blocks = AvroBlocks(read, self.budget.force(0))
            try:
                yield from blocks.records(partial(_record_reader, reader_of))
                if blocks.bytes_read < expected_bytes:
                    # A file that was truncated between two blocks is a valid, shorter Avro file.
                    raise EOFError(
                        f"truncated: it has {blocks.bytes_read} bytes instead of {expected_bytes}"
                    )
            except IcestreamError:
                raise
            except Exception as error:
                raise CorruptFileError(
                    f"{path}, a metadata file of {self.table}, can't be decoded: "
                    f"{type(error).__name__}: {error}. Restore it, or roll the table back to a "
                    "snapshot that does not need it",
                    path=path,
                ) from error
            finally:
                blocks.lease.release()


def metadata_files(io: FileIO, *, table: str, budget: MemoryBudget | None = None) -> MetadataFiles:
    """A reader of manifests, which holds a chunk and a block at a time.

    Args:
        io: File access.
        table: The table's name, for messages.
        budget: The budget for these bytes. None uses a budget of its own.
    """
    return MetadataFiles(io, table, budget or MemoryBudget(), RetryPolicy(), threading.Event())


def added_entries(
    io: FileIO, snapshot: Snapshot, *, table: str, budget: MemoryBudget
) -> Generator[ManifestEntry]:
    """The data files that a snapshot added.

    Args:
        io: File access.
        snapshot: The snapshot.
        table: The table's name, for messages.
        budget: The budget for the bytes of manifests.

    Raises:
        FileMissingError: If a manifest does not exist.
    """
    files = metadata_files(io, table=table, budget=budget)
    with closing(files.manifest_list(snapshot)) as listed:
        manifests = (
            manifest
            for manifest in files.manifests(listed)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            and manifest.content == ManifestContent.DATA
        )
        for entry in files.entries_of(manifests, at_once=1):
            if entry.status == ManifestEntryStatus.ADDED:
                yield entry


def counts_files(snapshot: Snapshot) -> bool:
    """Whether a snapshot has files, according to its summary."""
    return has_count(snapshot.summary.additional_properties if snapshot.summary else {})


def has_count(summary: Mapping[str, Any]) -> bool:
    """Whether a summary counts any files. Not all engines count correctly."""
    totals = (str(summary.get(key, "")) for key in FILE_COUNTS)
    return any(total.isdecimal() and total.strip("0") for total in totals)


def is_cut_off(avro: bytes) -> bool:
    """Whether an Avro file consists of a header without any block.

    Such a file is valid and has no records. But PyIceberg and icestream never write one: if there
    are no records, they write an empty block.
    """
    # The bytes at the end of the header are also at the end of each block, and so of the file.
    return avro.find(avro[-SYNC_SIZE:]) == len(avro) - SYNC_SIZE


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file, with their lease."""

    path: str
    content: bytes
    lease: Lease

    def reader(self) -> Callable[[int], bytes]:
        """A function that returns all bytes at its first call."""
        parts = iter((self.content,))
        return lambda _: next(parts, b"")

    def close(self) -> None:
        """Release the lease."""
        self.lease.release()


class _Stream:
    """A metadata file that is read from its start to its end."""

    def __init__(self, files: MetadataFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._stream = FileStream(files.io, path, files.policy, files.stopped)

    def read(self, count: int) -> bytes:
        """The next bytes, at most `count`; none at the end."""
        try:
            return self._stream.read(count)
        except FileMissingError as error:
            raise FileMissingError(
                f"a metadata file of {self._files.table} does not exist: {self._path}. Snapshot "
                "expiry or clean-up may have removed it since the table was loaded. Load the table "
                "again",
                path=self._path,
            ) from error

    def close(self) -> None:
        """Close the file, if it is open."""
        self._stream.close()


class _Ahead:
    """Manifests, with their content if it was fetched ahead."""

    def __init__(
        self, files: MetadataFiles, manifests: Iterable[ManifestFile], at_once: int
    ) -> None:
        self._files = files
        self._manifests = iter(manifests)
        self._wanted = at_once
        self._coming: deque[tuple[ManifestFile, Future[Content] | None]] = deque()
        self._ahead_bytes = 0
        self._most_bytes = max(1, min(_AHEAD_BYTES, files.budget.limit_bytes // 8))
        self._pool = ThreadPoolExecutor(_AHEAD, thread_name_prefix="icestream-manifest")

    def __iter__(self) -> Iterator[tuple[ManifestFile, Content | None]]:
        while self._fill():
            manifest, content = self._coming.popleft()
            if content is None:
                yield manifest, None
                continue
            self._ahead_bytes -= manifest.manifest_length
            try:
                fetched = content.result()
            except FileMissingError:
                fetched = None  # Reading the manifest raises the error again.
            yield manifest, fetched
            self._wanted = min(2 * self._wanted, _AHEAD)

    def close(self) -> None:
        """Stop fetching, and drop what has been fetched."""
        for _, content in self._coming:
            if content is not None and not content.cancel() and content.exception() is None:
                content.result().close()
        self._coming.clear()
        self._pool.shutdown()

    def _fill(self) -> bool:
        while len(self._coming) < self._wanted and self._ahead_bytes < self._most_bytes:
            manifest = next(self._manifests, None)
            if manifest is None:
                break
            size, path = manifest.manifest_length, manifest.manifest_path
            if not is_remote(path) or self._ahead_bytes + size > self._most_bytes:
                self._coming.append((manifest, None))
                break
            self._coming.append((manifest, self._pool.submit(self._files.fetch, path)))
            self._ahead_bytes += size
        return bool(self._coming)


@lru_cache(maxsize=_SHAPES)
def _record_reader(reader_of: ReaderOf, written_schema: str) -> Callable[[Any], Any]:
    """A function that reads a record. Cached, because building it takes long."""
    written = AvroSchemaConversion().avro_to_iceberg(json.loads(written_schema))
    read: Callable[[Any], Any] = reader_of(written).read
    if not _has_double_partition(written):
        return read

    def read_exactly(decoder: Any) -> Any:
        with exact_manifests():
            return read(decoder)

    return read_exactly


def _has_double_partition(written: Schema) -> bool:
    try:
        partition = written.find_type(_PARTITION_ID)
    except ValueError:
        return False  # It is a manifest list.
    return isinstance(partition, StructType) and any(
        isinstance(field.field_type, DoubleType) for field in partition.fields
    )
