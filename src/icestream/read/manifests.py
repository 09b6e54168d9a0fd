"""A table's manifests, read block by block, so that a large one costs a few of its bytes.

Avro is decoded by PyIceberg's readers. What is different from its `AvroFile`: a file is not held as
a whole but for a chunk of it, transient errors are tried again, and every byte is on the account.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeVar

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.io import FileIO, InputStream
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

from icestream._pyiceberg import exact_manifests
from icestream.errors import CorruptFileError, FileMissingError, IcestreamError
from icestream.memory import Lease, MemoryBudget
from icestream.read.files import RetryPolicy, is_remote, retrying

T = TypeVar("T")

_CHUNK_BYTES = 1 << 20
_AHEAD = 8
_AHEAD_BYTES = 8 << 20
_PARTITION_ID = 102
_DATA_FILE_ID = 2
_SHAPES = 32  # Partitions of one shape have one reader.


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """A kind of record: what is read of it, and the classes it is made of."""

    schema: Schema
    types: dict[int, Any]
    enums: dict[int, Any]


_MANIFESTS = _Kind(
    MANIFEST_LIST_FILE_SCHEMAS[2],
    {-1: ManifestFile, 508: PartitionFieldSummary},
    {517: ManifestContent},
)
_ENTRY_TYPES: dict[int, Any] = {-1: ManifestEntry, _DATA_FILE_ID: DataFile}
_ENTRY_ENUMS = {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent}
_FILES = _Kind(MANIFEST_ENTRY_SCHEMAS[2], _ENTRY_TYPES, _ENTRY_ENUMS)
# Version 3 is a superset, in which a deletion vector names its data file.
_DELETES = _Kind(MANIFEST_ENTRY_SCHEMAS[3], _ENTRY_TYPES, _ENTRY_ENUMS)


@dataclass(frozen=True, slots=True)
class MetadataFiles:
    """Reads manifest lists and manifests of a table.

    Args:
        io: How files are opened.
        table: The table's name, for messages.
        budget: Where the bytes held are charged.
        policy: Retries.
        stopped: Ends retries when it is set.
    """

    io: FileIO
    table: str
    budget: MemoryBudget
    policy: RetryPolicy
    stopped: threading.Event

    def fetch(self, path: str) -> Content:
        """The whole of a file that is small, such as a manifest list."""
        with closing(_Stream(self, path)) as stream:
            content = b"".join(iter(lambda: stream.read(_CHUNK_BYTES), b""))
        return Content(path, content, self.budget.force(len(content)))

    def manifests(self, content: Content) -> Iterator[ManifestFile]:
        """The manifests that a list names, one by one."""
        return self._records(content.path, content, _MANIFESTS)

    def entries(
        self,
        manifest: ManifestFile,
        source: Content | None = None,
        *,
        removed: bool = False,
    ) -> Iterator[ManifestEntry]:
        """The files that a manifest holds.

        Args:
            manifest: The manifest.
            source: What is in it, if that was read before.
            removed: Whether entries of files that were removed are wanted, too.

        Memory: a chunk of the file, and the block that is decoded.

        Raises:
            CorruptFileError: If the manifest is damaged, or shorter than its list says.
        """
        kind = _DELETES if manifest.content == ManifestContent.DELETES else _FILES
        entries: Iterator[ManifestEntry] = self._records(
            manifest.manifest_path, source, kind, manifest.manifest_length
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
        """The entries of several manifests, in their order.

        On an object store, manifests are fetched ahead.

        Args:
            manifests: The manifests.
            at_once: How many are fetched at the start; twice as many each time, up to 8.
        """
        with closing(_Ahead(self, manifests, at_once)) as fetched:
            for manifest, content in fetched:
                try:
                    yield from self.entries(manifest, content)
                finally:
                    if content is not None:
                        content.close()

    def _records(
        self,
        path: str,
        source: Content | None,
        kind: _Kind,
        expected_bytes: int = 0,
    ) -> Iterator[Any]:
        with closing(_Stream(self, path)) as stream:
            read = source.reader() if source is not None else stream.read
            blocks = _Blocks(read, self.budget.force(0))
            try:
                yield from _decoded(blocks, kind)
                if blocks.bytes_read < expected_bytes:
                    # A file that was cut off between two blocks is a valid, shorter Avro file.
                    raise EOFError(f"it has {blocks.bytes_read} bytes instead of {expected_bytes}")
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


def metadata_files(io: FileIO, *, table: str) -> MetadataFiles:
    """A reader of manifests for work that has no account: it holds a chunk and a block at a time.

    Args:
        io: How files are opened.
        table: The table's name, for messages.
    """
    return MetadataFiles(io, table, MemoryBudget(), RetryPolicy(), threading.Event())


def added_entries(io: FileIO, snapshot: Snapshot, *, table: str) -> Iterator[ManifestEntry]:
    """The data files that a snapshot itself added.

    Args:
        io: How files are opened.
        snapshot: The snapshot.
        table: The table's name, for messages.

    Raises:
        FileMissingError: If a manifest is gone.
    """
    files = metadata_files(io, table=table)
    with closing(files.fetch(snapshot.manifest_list)) as listed:
        manifests = (
            manifest
            for manifest in files.manifests(listed)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            and manifest.content == ManifestContent.DATA
        )
        for entry in files.entries_of(manifests, at_once=1):
            if entry.status == ManifestEntryStatus.ADDED:
                yield entry


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file, on lease."""

    path: str
    content: bytes
    lease: Lease

    def reader(self) -> Callable[[int], bytes]:
        """A function that gives all of it once."""
        parts = iter((self.content,))
        return lambda _: next(parts, b"")

    def close(self) -> None:
        """Give the bytes back."""
        self.lease.release()


class _Stream:
    """A file that is read from its start to its end; opened again where an error interrupts it."""

    def __init__(self, files: MetadataFiles, path: str) -> None:
        self._files = files
        self._path = path
        self._position = 0
        self._handle: InputStream | None = None

    def read(self, count: int) -> bytes:
        """The next bytes, no more than `count`; none at the end."""
        try:
            content = retrying(
                lambda: self._read(count),
                path=self._path,
                policy=self._files.policy,
                stopped=self._files.stopped,
                io=self._files.io,
            )
        except FileMissingError as error:
            raise FileMissingError(
                f"a metadata file of {self._files.table} is gone: {self._path}. Was it removed by "
                "an expiry or clean-up while this table object was kept? Load the table again",
                path=self._path,
            ) from error
        self._position += len(content)
        return content

    def close(self) -> None:
        """Close the file, if it is open."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            handle.close()

    def _read(self, count: int) -> bytes:
        if self._handle is None:
            self._handle = self._files.io.new_input(self._path).open()
            if self._position:
                self._handle.seek(self._position)
        try:
            return bytes(self._handle.read(count))
        except BaseException:
            self.close()
            raise


class _Ahead:
    """Manifests with their content where it was fetched before it was asked for."""

    def __init__(
        self, files: MetadataFiles, manifests: Iterable[ManifestFile], at_once: int
    ) -> None:
        self._files = files
        self._manifests = iter(manifests)
        self._wanted = at_once
        self._coming: deque[tuple[ManifestFile, Future[Content] | None]] = deque()
        self._ahead_bytes = 0
        self._most_bytes = min(_AHEAD_BYTES, files.budget.limit_bytes // 8)
        self._pool: ThreadPoolExecutor | None = None

    def __iter__(self) -> Iterator[tuple[ManifestFile, Content | None]]:
        while self._fill():
            manifest, content = self._coming.popleft()
            if content is None:
                yield manifest, None
                continue
            self._ahead_bytes -= manifest.manifest_length
            yield manifest, content.result()
            self._wanted = min(2 * self._wanted, _AHEAD)

    def close(self) -> None:
        """Fetch no more; what has been fetched is dropped."""
        for _, content in self._coming:
            if content is not None and not content.cancel() and content.exception() is None:
                content.result().close()
        self._coming.clear()
        if self._pool is not None:
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
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_AHEAD, thread_name_prefix="icestream-manifest")
            self._coming.append((manifest, self._pool.submit(self._files.fetch, path)))
            self._ahead_bytes += size
        return bool(self._coming)


class _Blocks:
    """The parts of an Avro file, cut out of the chunks that it is read in."""

    def __init__(self, read: Callable[[int], bytes], lease: Lease) -> None:
        self.lease = lease
        self.bytes_read = 0
        self._read = read
        self._buffer = b""
        self._at = 0

    def header(self) -> AvroFileHeader:
        """What the file says of itself."""
        while self._fill():
            decoder = new_decoder(self._buffer)
            try:
                header: AvroFileHeader = _header_reader().read(decoder)
            except EOFError:
                continue  # It is longer than what has been read of it.
            self._at = decoder.tell()
            return header
        raise EOFError("the file ends in its header")

    def at_end(self) -> bool:
        """Whether there is nothing left."""
        return self._at == len(self._buffer) and not self._fill()

    def number(self) -> int:
        """The next number, in Avro's zigzag form."""
        shift = value = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if count < 0:
            raise ValueError(f"a block of {count} bytes")
        while len(self._buffer) - self._at < count:
            if not self._fill():
                raise EOFError("the file ends in the middle of a block")
        start, self._at = self._at, self._at + count
        return self._buffer[start : self._at]

    def _fill(self) -> bool:
        more = self._read(_CHUNK_BYTES)
        self.bytes_read += len(more)
        self._buffer = self._buffer[self._at :] + more
        self._at = 0
        self.lease.resize(len(self._buffer))
        return bool(more)


@cache
def _header_reader() -> Reader:
    return construct_reader(META_SCHEMA, {-1: AvroFileHeader})


@lru_cache(maxsize=_SHAPES)
def _record_reader(kind: _Kind, written_schema: str) -> Callable[[Any], Any]:
    """How to read a record. Making it takes longer than reading a small manifest."""
    written = AvroSchemaConversion().avro_to_iceberg(json.loads(written_schema))
    read: Callable[[Any], Any] = resolve_reader(written, kind.schema, kind.types, kind.enums).read
    return _exactly(read) if _has_double_partition(written) else read


def _decoded(blocks: _Blocks, kind: _Kind) -> Iterator[Any]:
    header = blocks.header()
    codec = header.compression_codec()
    read = _record_reader(kind, header.meta["avro.schema"])
    while not blocks.at_end():
        count, content = blocks.number(), blocks.take(blocks.number())
        decoder = new_decoder(codec.decompress(content) if codec else content)
        if blocks.take(SYNC_SIZE) != header.sync:
            raise ValueError("a block does not end with the file's own marker")
        for _ in range(count):
            yield read(decoder)


def _has_double_partition(written: Schema) -> bool:
    try:
        partition = written.find_type(_PARTITION_ID)
    except ValueError:
        return False  # a manifest list
    return isinstance(partition, StructType) and any(
        isinstance(field.field_type, DoubleType) for field in partition.fields
    )


def _exactly(read: Callable[[Any], T]) -> Callable[[Any], T]:
    def read_exactly(decoder: Any) -> T:
        with exact_manifests():
            return read(decoder)

    return read_exactly
