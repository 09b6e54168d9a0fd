"""Which delete files apply to which data files, by path, partition and sequence number.

| delete file | applies to |
|---|---|
| deletion vector, or position deletes of one file | that file |
| position deletes | files of the same spec and partition, if its bounds hold their path |
| equality deletes | the same, older files only; of an unpartitioned spec: all older files |

A data file is older if its sequence number is smaller; position deletes also apply to files of the
same sequence number.

The index is kept in memory up to a share of the limit. Beyond that it moves to a temporary SQLite
database, which the system deletes when the process ends, however it ends.
"""

from __future__ import annotations

import hashlib
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry
from pyiceberg.typedef import Record

from icestream.errors import MemoryBudgetError, UnsupportedFeatureError
from icestream.memory import Lease, MemoryBudget, format_bytes
from icestream.read.split import DeleteFile

_SHARE = 4  # of the limit, for the index, and for the delete files of one data file
_ENTRY_BYTES = 300  # of a record in memory, beside its own bytes
_FILE_BYTES = 400  # of a DeleteFile, with its path
_SPILLED_BYTES = 4 << 20  # SQLite's cache, and what it takes to sort
_ROWS_AT_ONCE = 1_000
_CACHED_FILES = 1_000

_PATH_FIELD_ID = 2147483546
_REFERENCED = 17  # `referenced_data_file` in a DataFile of format version 3
_FORMATS = (FileFormat.PARQUET, FileFormat.ORC, FileFormat.PUFFIN, FileFormat.AVRO)
_HEAD = struct.Struct("<qqqbbIII")  # see `_packed`
_EVERYWHERE = b"everywhere"


class DeleteIndex:
    """Takes all delete files of a snapshot in, then says which of them apply to a data file.

    Args:
        budget: Where the index is charged.

    Memory: a quarter of the limit at most, on the account.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._most_bytes = budget.limit_bytes // _SHARE
        self._lease: Lease = budget.force(0)
        self._held_bytes = 0
        self._records: dict[bytes, list[bytes]] = {}
        self._waiting: list[tuple[bytes, bytes]] = []
        self._database: sqlite3.Connection | None = None
        self._files: dict[bytes, DeleteFile] = {}
        self.count = 0

    def add(self, entry: ManifestEntry, spec_fields: int) -> None:
        """Take a delete file in.

        Args:
            entry: Its entry in a manifest.
            spec_fields: How many fields its partition spec has.
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
            else:  # in steps: the account has a lock
                self._lease.resize(min(self._held_bytes + (1 << 16), self._most_bytes))

    def seal(self) -> None:
        """All delete files are in."""
        if self._database is not None:
            self._write()
            self._database.execute("CREATE INDEX by_key ON deletes (key)")

    def of(self, file: DataFile, sequence_number: int) -> tuple[DeleteFile, ...]:
        """The delete files that apply to a data file, by path.

        Raises:
            UnsupportedFeatureError: If equality deletes are among them, or a format we don't read.
            MemoryBudgetError: If there are too many to hold.
        """
        if not self.count:
            return ()
        path = file.file_path.encode()
        keys = (_path_key(path), _partition_key(file.spec_id, file.partition), _EVERYWHERE)
        found: dict[str, DeleteFile] = {}
        equality: list[str] = []
        for key in keys:
            for record in self._stored(key):
                kind, delete = self._applying(record, path, sequence_number)
                if delete is None:
                    continue
                if kind == DataFileContent.EQUALITY_DELETES:
                    equality.append(delete.path)
                else:
                    found[delete.path] = replace(delete, of_one_file=key == keys[0])
                if _FILE_BYTES * (len(found) + len(equality)) > self._most_bytes:
                    raise self._too_many(file.file_path, len(found) + len(equality))
        if equality:
            raise _equality_error(sorted(equality))
        for delete in found.values():
            _check_format(delete)
        return tuple(found[path] for path in sorted(found))

    def close(self) -> None:
        """Drop the index, and give its bytes back."""
        self._records.clear()
        self._files.clear()
        self._lease.release()
        if self._database is not None:
            self._database.close()

    def _applying(
        self, record: bytes, path: bytes, data_sequence: int
    ) -> tuple[int, DeleteFile | None]:
        """A record's kind of deletes, and its file if it applies."""
        head = _HEAD.unpack_from(record)
        sequence, _, _, kind, _, lower_size, upper_size, _ = head
        if data_sequence > sequence - (kind == DataFileContent.EQUALITY_DELETES):
            return kind, None
        start = _HEAD.size
        if lower_size and path < record[start : start + lower_size]:
            return kind, None
        start += lower_size
        if upper_size and path > record[start : start + upper_size]:
            return kind, None
        known = self._files.get(record)
        if known is None:
            if len(self._files) == _CACHED_FILES:
                self._files.clear()
            known = self._files[record] = _delete_file(record, head)
        return kind, known

    def _stored(self, key: bytes) -> Iterable[bytes]:
        if self._database is None:
            return self._records.get(key, ())
        found: Iterator[tuple[bytes]] = self._database.execute(
            "SELECT record FROM deletes WHERE key = ?", (key,)
        )
        return (record for (record,) in found)

    def _spill(self) -> None:
        """Move the index to disk."""
        # One thread uses it at a time, but not always the same.
        database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database = database
        database.execute(f"PRAGMA cache_size = -{_SPILLED_BYTES >> 11}")  # half of it, in KiB
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
            raise MemoryBudgetError(
                f"the {self.count} delete files of this table need more than "
                f"{format_bytes(self._most_bytes)}, a quarter of the limit, and could not be "
                f"spilled to the temporary folder: {error}. Raise memory, free disk space, or "
                "compact the table",
                needed_bytes=_SHARE * (_ENTRY_BYTES + 200) * self.count,
                limit_bytes=self._budget.limit_bytes,
            ) from error
        self._waiting.clear()

    def _too_many(self, path: str, count: int) -> MemoryBudgetError:
        needed = 2 * _SHARE * _FILE_BYTES * count
        return MemoryBudgetError(
            f"{path} has {count} delete files or more, and what describes them takes more than a "
            f"quarter of the limit of {format_bytes(self._budget.limit_bytes)}: compact the table "
            f"where memory is larger, or raise memory to {format_bytes(needed)}",
            needed_bytes=needed,
            limit_bytes=self._budget.limit_bytes,
        )


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Which data files a position delete file is about, as far as metadata says."""

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
        """The only data file that it is about, if there is only one."""
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
    """A delete file as bytes: numbers, the bounds of its data files' paths, and its own path."""
    file = entry.data_file
    bounds, path = _Bounds.of(file), file.file_path.encode()
    if bounds.path is not None:  # That is the key.
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


def _delete_file(record: bytes, head: tuple[int, ...]) -> DeleteFile:
    _, size, records, _, file_format, _, _, path_size = head
    return DeleteFile(
        path=record[-path_size:].decode(),
        format=_FORMATS[file_format].value.lower(),
        bytes=size,
        records=records,
    )


def _check_format(delete: DeleteFile) -> None:
    if delete.format == "avro":
        raise UnsupportedFeatureError(
            f"{delete.path} is an {delete.format} delete file, which icestream does not read: "
            "rewrite the deletes as Parquet"
        )


def _equality_error(paths: list[str]) -> UnsupportedFeatureError:
    more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
    return UnsupportedFeatureError(
        f"the table has equality deletes, which icestream does not read: {paths[0]}{more}. "
        "Rewrite its data files with the engine that wrote them, then scan again"
    )
