"""Find the delete files of a data file, by path, partition and sequence number.

| delete file | applies to |
|---|---|
| deletion vector, or position deletes of one file | that file |
| position deletes | files of the same spec and partition whose path is within the bounds |
| equality deletes | older files of the same spec and partition; all older files if unpartitioned |

A data file is older if its sequence number is smaller. Position deletes also apply to files of the
same sequence number.

The index is in memory up to a quarter of the limit. A larger index moves to a temporary SQLite
database, which the system deletes when the process ends for any reason.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.typedef import Record

from icestream.errors import MemoryBudgetError, UnsupportedFeatureError
from icestream.memory.budget import Lease, MemoryBudget, over_limit
from icestream.read.split import DeleteFile

_SHARE = 4  # A quarter of the limit each: for the index, and for one data file's delete files.
_ENTRY_BYTES = 300  # Overhead of a record in memory.
_FILE_BYTES = 400  # A DeleteFile with its path.
_SPILLED_BYTES = 4 << 20  # SQLite's cache and its memory for sorting.
_ROWS_AT_ONCE = 1_000
_CACHED_FILES = 1_000

_PATH_FIELD_ID = 2147483546
_REFERENCED = 17  # `referenced_data_file` in a DataFile of format version 3
_FORMATS = (FileFormat.PARQUET, FileFormat.ORC, FileFormat.PUFFIN, FileFormat.AVRO)
_HEAD = struct.Struct("<qqqbbIII")  # see `_packed`
_EVERYWHERE = b"everywhere"


class DeleteIndex:
    """An index of all delete files of a snapshot, by the data files that they apply to.

    Args:
        budget: The budget for the bytes of the index.

    Memory: at most a quarter of the limit, leased from the budget.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._most_bytes = budget.limit_bytes // _SHARE
        self._lease: Lease = budget.force(0)
        self._held_bytes = 0
        self._records: dict[bytes, list[bytes]] = {}
        self._waiting: list[tuple[bytes, bytes]] = []
        self._database: sqlite3.Connection | None = None
        self._delete_file = lru_cache(_CACHED_FILES)(_delete_file)
        self.count = 0

    def add(self, entry: ManifestEntry, spec_fields: int) -> None:
        """Add a delete file.

        Args:
            entry: The entry of the delete file in its manifest.
            spec_fields: Number of fields in its partition spec.
        """
        key, record = _key_of(entry.data_file, spec_fields), _packed(entry)
        self.count += 1
        if self._database is not None:
            self._waiting.append((key, record))
            if len(self._waiting) == _ROWS_AT_ONCE:
                self._write()
            return
        self._records.setdefault(key, []).append(record)
        self._held_bytes += _ENTRY_BYTES + len(record)
        if self._held_bytes > self._lease.held_bytes:
            if self._held_bytes > self._most_bytes:
                self._spill()
            else:  # In steps, because each change takes the budget's lock.
                self._lease.resize(min(self._held_bytes + (1 << 16), self._most_bytes))

    def seal(self) -> None:
        """Finish the index after the last delete file."""
        if self._database is not None:
            self._write()
            self._database.execute("CREATE INDEX by_key ON deletes (key)")

    def of(self, file: DataFile, sequence_number: int) -> tuple[DeleteFile, ...]:
        """The delete files that apply to a data file, by path.

        Raises:
            UnsupportedFeatureError: If equality deletes or an unsupported format are among them.
            MemoryBudgetError: If there are too many to hold in memory.
        """
        if not self.count:
            return ()
        path = file.file_path.encode()
        keys = (_path_key(path), _partition_key(file.spec_id, file.partition), _EVERYWHERE)
        deletes: dict[str, DeleteFile] = {}
        equality: list[str] = []
        for key in keys:
            for record in self._stored(key):
                kind, delete = self._applying(record, path, sequence_number)
                if delete is None:
                    continue
                if kind == DataFileContent.EQUALITY_DELETES:
                    equality.append(delete.path)
                else:
                    deletes[delete.path] = replace(delete, of_one_file=key == keys[0])
                count = len(deletes) + len(equality)
                if _FILE_BYTES * count > self._most_bytes:
                    raise self._too_many(file.file_path, count)
        if equality:
            raise equality_error(sorted(equality))
        for delete in deletes.values():
            check_format(delete)
        return tuple(deletes[path] for path in sorted(deletes))

    def close(self) -> None:
        """Drop the index, and release its bytes."""
        self._records.clear()
        self._delete_file.cache_clear()
        self._lease.release()
        if self._database is not None:
            self._database.close()

    def _applying(
        self, record: bytes, path: bytes, data_sequence: int
    ) -> tuple[int, DeleteFile | None]:
        """The kind of a record's deletes, and its delete file if it applies."""
        sequence, _, _, kind, _, lower_size, upper_size, _ = _HEAD.unpack_from(record)
        if data_sequence > sequence - (kind == DataFileContent.EQUALITY_DELETES):
            return kind, None
        start = _HEAD.size
        if lower_size and path < record[start : start + lower_size]:
            return kind, None
        start += lower_size
        if upper_size and path > record[start : start + upper_size]:
            return kind, None
        return kind, self._delete_file(record)

    def _stored(self, key: bytes) -> Iterable[bytes]:
        if self._database is None:
            return self._records.get(key, ())
        rows: Iterator[tuple[bytes]] = self._database.execute(
            "SELECT record FROM deletes WHERE key = ?", (key,)
        )
        return (record for (record,) in rows)

    def _spill(self) -> None:
        """Move the index to disk."""
        # Different threads use it, but only one at a time.
        database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database = database
        # Half of the bytes, in KiB.
        database.execute(f"PRAGMA cache_size = -{_SPILLED_BYTES >> 11}")
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("CREATE TABLE deletes (key BLOB, record BLOB)")
        for key, records in self._records.items():
            self._waiting += ((key, record) for record in records)
            if len(self._waiting) >= _ROWS_AT_ONCE:
                self._write()
        self._records = {}
        self._lease.resize(min(_SPILLED_BYTES, self._most_bytes))

    def _write(self) -> None:
        assert self._database is not None
        try:
            self._database.execute("BEGIN")
            self._database.executemany("INSERT INTO deletes VALUES (?, ?)", self._waiting)
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            raise over_limit(
                f"the {self.count} delete files of this table need more than a quarter of memory "
                f"and could not be spilled to the temporary folder ({error})",
                needed_bytes=_SHARE * (_ENTRY_BYTES + 200) * self.count,
                limit_bytes=self._budget.limit_bytes,
                otherwise="free disk space or compact the table",
            ) from error
        self._waiting.clear()

    def _too_many(self, path: str, count: int) -> MemoryBudgetError:
        return over_limit(
            f"{path} has {count} or more delete files, whose descriptions need more than a quarter "
            "of the limit",
            needed_bytes=2 * _SHARE * _FILE_BYTES * count,
            limit_bytes=self._budget.limit_bytes,
            otherwise="compact the table with a larger limit",
        )


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The range of data file paths in a position delete file, according to its metadata."""

    lower: bytes
    upper: bytes

    @classmethod
    def of(cls, file: DataFile) -> _Bounds:
        referenced = file[_REFERENCED] if len(file) > _REFERENCED else None
        if referenced:
            return cls(referenced.encode(), referenced.encode())
        if file.content == DataFileContent.EQUALITY_DELETES:
            return cls(b"", b"")
        lower = (file.lower_bounds or {}).get(_PATH_FIELD_ID) or b""
        upper = (file.upper_bounds or {}).get(_PATH_FIELD_ID) or b""
        return cls(lower, upper)

    @property
    def path(self) -> bytes | None:
        """The path of the data file, if there is only one."""
        return self.lower if self.lower and self.lower == self.upper else None


def _key_of(file: DataFile, spec_fields: int) -> bytes:
    path = _Bounds.of(file).path
    if path is not None:
        return _path_key(path)
    if file.content == DataFileContent.EQUALITY_DELETES and not spec_fields:
        return _EVERYWHERE
    return _partition_key(file.spec_id, file.partition)


def _path_key(path: bytes) -> bytes:
    return hashlib.blake2b(path, digest_size=16).digest()


def _partition_key(spec_id: int, partition: Record) -> bytes:
    values = [partition[n] for n in range(len(partition))]
    return hashlib.blake2b(repr((spec_id, values)).encode(), digest_size=15).digest()


def _packed(entry: ManifestEntry) -> bytes:
    """A delete file as bytes: numbers, the bounds of data file paths, and its own path."""
    file = entry.data_file
    bounds, path = _Bounds.of(file), file.file_path.encode()
    if bounds.path is not None:  # The path is the key.
        bounds = _Bounds(b"", b"")
    head = _HEAD.pack(
        entry.sequence_number or 0,
        file.file_size_in_bytes,
        file.record_count,
        file.content,
        _FORMATS.index(file.file_format),
        len(bounds.lower),
        len(bounds.upper),
        len(path),
    )
    return b"".join((head, bounds.lower, bounds.upper, path))


def _delete_file(record: bytes) -> DeleteFile:
    _, size, records, _, file_format, _, _, path_size = _HEAD.unpack_from(record)
    return DeleteFile(
        path=record[-path_size:].decode(),
        format=_FORMATS[file_format].value.lower(),
        bytes=size,
        records=records,
    )


def check_format(delete: DeleteFile) -> None:
    """Refuse a delete file in a format that can't be read."""
    if delete.format == "avro":
        raise UnsupportedFeatureError(
            f"{delete.path} is an AVRO delete file, which icestream does not read: rewrite the "
            "deletes as Parquet"
        )


def equality_error(paths: list[str]) -> UnsupportedFeatureError:
    """The error for a table with these equality delete files."""
    more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
    return UnsupportedFeatureError(
        f"the table has equality deletes, which icestream does not read: {paths[0]}{more}. "
        "Rewrite its data files with the engine that wrote them, then scan again"
    )
