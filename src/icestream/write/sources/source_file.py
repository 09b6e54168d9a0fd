"""Files to load, and the parts in which tasks read them: plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import pyarrow as pa

from icestream.catalogs.redaction import redact
from icestream.errors import SourceError
from icestream.write.sources.file_store import FileStore, StoredSource, local_source
from icestream.write.sources.formats import (
    COMPRESSIONS,
    FILE_FORMATS,
    FileFormat,
    compression_of,
    format_of,
)
from icestream.write.sources.hive_partition import Values, partition_values


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, or a part of a text or Parquet file.

    A line belongs to the part in which it begins. A row group belongs to the part that holds its
    middle.

    Attributes:
        path: Its path, with the scheme of its store.
        format: Its format.
        bytes: Its size.
        modified_ns: When it was last modified; None if the store does not say.
        partitions: Columns and values in the names of its folders, if the source reads them.
        start: Where a part of the file begins.
        end: Where the part ends; None for the end of the file.
        file_bytes: The size of the whole file, if this is a part of it.
    """

    path: str
    format: FileFormat
    bytes: int
    modified_ns: int | None = None
    partitions: Values = ()
    start: int = 0
    end: int | None = None
    file_bytes: int | None = None

    def __repr__(self) -> str:
        part = f", {self.start} to {self.end}" if self.start or self.end is not None else ""
        return f"SourceFile({redact(self.path)!r}, {self.format}, {self.bytes} bytes{part})"

    @property
    def is_compressed(self) -> bool:
        """Whether its name has the suffix of a compressed file."""
        return compression_of(self.path) is not None

    def open(self, store: FileStore) -> pa.NativeFile:
        """Open the whole file for reading at any position.

        Raises:
            SourceError: If it can't be opened, or was changed since it was listed.
        """
        opened = store.open_file(self.path)
        try:
            self._check_size(opened.size())
            self.check_unchanged()
        except BaseException:
            opened.close()
            raise
        return opened

    def open_stream(self, store: FileStore) -> pa.NativeFile:
        """Open the whole file for reading from its beginning, decompressed.

        Raises:
            SourceError: If it can't be opened, or a local file was changed since it was listed.
        """
        opened = store.open_stream(self.path)
        try:
            self.check_unchanged()
        except BaseException:
            opened.close()
            raise
        return opened

    def check_unchanged(self) -> None:
        """Compare a local file with its listing. Files in other stores are not looked up.

        Raises:
            SourceError: If it was changed.
        """
        now = local_source(self.path)
        if now is None:
            return
        self._check_size(now.bytes)
        if _micros(self.modified_ns) not in (None, _micros(now.modified_ns)):
            raise self._changed()

    def _check_size(self, now_bytes: int) -> None:
        if now_bytes != (self.bytes if self.file_bytes is None else self.file_bytes):
            raise self._changed()

    def _changed(self) -> SourceError:
        return SourceError(f"{redact(self.path)!r} changed while it was being loaded: load again")


@dataclass(frozen=True, slots=True)
class FileSource:
    """All files of one source.

    Attributes:
        files: The files.
        store: Opens them.
        options: Options of the CSV reader.
    """

    files: tuple[SourceFile, ...]
    store: FileStore = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def bytes(self) -> int:
        """Their total size."""
        return sum(file.bytes for file in self.files)


class FileQuery(Protocol):
    """Which files to list: a load's source is one.

    Attributes:
        paths: Paths, globs or folders.
        format: The format of all files; None to go by their names.
        hive_partitions: Whether folder names such as `year=2025` become columns.
        options: Options of the reader; those with a dot in their name give access to a store.
    """

    @property
    def paths(self) -> tuple[str, ...]: ...

    @property
    def format(self) -> str | None: ...

    @property
    def hive_partitions(self) -> bool: ...

    @property
    def options(self) -> Mapping[str, Any]: ...


def find_files(
    source: FileQuery, access: Mapping[str, str], *, may_be_empty: bool = False
) -> FileSource:
    """List the files of a source.

    Args:
        source: Which files.
        access: The catalog's properties. Options of the source take precedence.
        may_be_empty: Whether an empty list is allowed.

    Raises:
        SourceError: If there are no files, or a file's name does not show its format.
    """
    own = {key: str(value) for key, value in source.options.items() if "." in str(key)}
    store = FileStore({**access, **own})
    files: dict[str, SourceFile] = {}
    for name in source.paths:
        listed = store.find(name, may_be_empty=may_be_empty)
        if len(listed) > 1 and source.format is None:  # from a folder or a glob
            known = [each for each in listed if format_of(each.path)]
            if not known:
                raise unknown_format(listed[0].path, others=len(listed) - 1)
            listed = known
        for each in listed:
            files.setdefault(each.path, _file(each, source))
    options = {key: value for key, value in source.options.items() if "." not in str(key)}
    return FileSource(tuple(files.values()), store, options)


def cut_files(
    files: Iterable[SourceFile], *, target_bytes: int, cuts_csv: bool
) -> list[SourceFile]:
    """Cut large text and Parquet files into parts; all other files stay whole.

    Nothing is read: a Parquet file is cut by its size, and the reader of a part finds the row
    groups in it. A part may have none.

    Args:
        files: The files.
        target_bytes: The approximate size of a part.
        cuts_csv: Whether each line of a CSV file is a record.
    """
    parts: list[SourceFile] = []
    for file in files:
        cuttable = file.format in ("json", "parquet") or (file.format == "csv" and cuts_csv)
        if not cuttable or file.is_compressed or file.bytes < 2 * target_bytes:
            parts.append(file)
            continue
        count = file.bytes // target_bytes
        edges = [file.bytes * number // count for number in range(count)]
        for start, end in zip(edges, [*edges[1:], None], strict=True):
            size = file.bytes // count
            parts.append(replace(file, bytes=size, start=start, end=end, file_bytes=file.bytes))
    return parts


def _micros(modified_ns: int | None) -> int | None:
    """Microseconds: a listing on macOS has no shorter times."""
    return None if modified_ns is None else modified_ns // 1000


def _file(stored: StoredSource, source: FileQuery) -> SourceFile:
    format_ = cast("FileFormat | None", source.format) or format_of(stored.path)
    if format_ is None:
        raise unknown_format(stored.path)
    partitions = partition_values(stored.path, stored.base) if source.hive_partitions else ()
    return SourceFile(stored.path, format_, stored.bytes, stored.modified_ns, partitions)


# What to do with files of other formats, by the ends of their names.
_OTHERS = (
    ((".xlsx", ".xlsm", ".xls", ".ods"), "a workbook, which icestream does not read: save the "
     "sheet as CSV"),
    ((".xml", ".html", ".htm"), "XML or HTML, which icestream does not read: convert it to CSV or "
     "JSON lines"),
    ((".avro",), "Avro, which only Spark reads: give format='avro' and engine='spark'"),
    ((".sqlite", ".sqlite3", ".db3"), "a database: load it as 'sqlite:///{path}?table=NAME'"),
    ((".duckdb", ".ddb"), "a database: load it as 'duckdb:///{path}?table=NAME'"),
    ((".db",), "a database: load it as 'sqlite:///{path}?table=NAME', or 'duckdb:///{path}"
     "?table=NAME'"),
    ((".zip", ".tar", ".tgz", ".tar.gz", ".7z", ".rar"), "an archive: unpack it, and load the "
     "files in it"),
    ((".txt", ".dat", ".log"), "text: give format='csv' or format='json'"),
    (tuple(COMPRESSIONS), "compressed, and its name does not show what it contains: give "
     "format='csv' or format='json'"),
)  # fmt: skip


def unknown_format(path: str, others: int = 0) -> SourceError:
    """The error for a file whose name does not show its format.

    Args:
        path: The file.
        others: Number of other such files in its folder.
    """
    shown = redact(path)
    more = f" (and {others} other files of unknown formats)" if others else ""
    for ends, what in _OTHERS:
        if path.lower().endswith(ends):
            return SourceError(f"{shown!r}{more} is {what.format(path=shown)}")
    return SourceError(
        f"the name of {shown!r}{more} does not show its format: give format='csv', or another of "
        f"{', '.join(FILE_FORMATS)}"
    )
