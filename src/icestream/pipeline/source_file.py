"""Files that are to be loaded, and the parts in which tasks read them: plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, cast, get_args

from icestream.errors import SourceError
from icestream.pipeline.file_store import FileStore, StoredSource
from icestream.pipeline.source_spec import SourceSpec
from icestream.write.hive_partition import Values, partition_values
from icestream.write.source_files import COMPRESSED_SUFFIXES, FILE_SUFFIXES, FileFormat

TEXT_FORMATS = ("csv", "json")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file.

    Attributes:
        path: Where it is.
        format: What it is.
        bytes: Its size.
        modified_ns: When it was changed last; None where the store does not say.
        partitions: What its folders say of its rows, unless the source leaves that out.
        start: Of text that is cut: where the part begins.
        end: Where it ends; None: at the end of the file.
    """

    path: str
    format: FileFormat
    bytes: int
    modified_ns: int | None = None
    partitions: Values = ()
    start: int = 0
    end: int | None = None

    @property
    def is_compressed(self) -> bool:
        """Whether its name says so."""
        return self.path.lower().endswith(COMPRESSED_SUFFIXES)


@dataclass(frozen=True, slots=True)
class FileSource:
    """All files of one source.

    Attributes:
        files: The files.
        store: How they are opened.
        options: Of the reader of CSV.
    """

    files: tuple[SourceFile, ...]
    store: FileStore = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Their size together."""
        return sum(file.bytes for file in self.files)


def find_files(
    source: SourceSpec, access: Mapping[str, str], *, may_be_empty: bool = False
) -> FileSource:
    """List the files of a source.

    Args:
        source: Of kind `"files"`.
        access: The catalog's properties; options of the source win over them.
        may_be_empty: Whether it is fine if there is none.

    Raises:
        SourceError: If there is none, or a name does not say what the file is.
    """
    own = {key: str(value) for key, value in source.options.items() if "." in str(key)}
    store = FileStore({**access, **own})
    found: dict[str, SourceFile] = {}
    for name in source.paths:
        listed = store.find(name, may_be_empty=may_be_empty)
        if len(listed) > 1 and source.format is None:  # of a folder or a glob
            known = [each for each in listed if _suffix(each.path) in FILE_SUFFIXES]
            listed = known or listed
        for each in listed:
            found.setdefault(each.path, _file(each, source))
    options = {key: value for key, value in source.options.items() if "." not in str(key)}
    return FileSource(tuple(found.values()), store, options)


def cut_files(
    files: Iterable[SourceFile], *, target_bytes: int, cuts_csv: bool
) -> list[SourceFile]:
    """Cut large files of text into parts; all others stay whole.

    Args:
        files: The files.
        target_bytes: About how large a part is.
        cuts_csv: Whether each line of a CSV file is a record.
    """
    parts: list[SourceFile] = []
    for file in files:
        cuttable = file.format == "json" or (file.format == "csv" and cuts_csv)
        if not cuttable or file.is_compressed or file.bytes < 2 * target_bytes:
            parts.append(file)
            continue
        count = file.bytes // target_bytes
        edges = [file.bytes * number // count for number in range(count)]
        for start, end in zip(edges, [*edges[1:], None], strict=True):
            parts.append(replace(file, bytes=file.bytes // count, start=start, end=end))
    return parts


def _file(stored: StoredSource, source: SourceSpec) -> SourceFile:
    format_ = source.format
    if format_ is None:
        format_ = FILE_SUFFIXES.get(_suffix(stored.path))
    if format_ is None:
        raise SourceError(
            f"the name of {stored.path!r} does not say what it is: tell with format= one of "
            f"{', '.join(get_args(FileFormat))}"
        )
    partitions = partition_values(stored.path, stored.base) if source.hive_partitions else ()
    return SourceFile(
        stored.path, cast(FileFormat, format_), stored.bytes, stored.modified_ns, partitions
    )


def _suffix(path: str) -> str:
    name = path.lower()
    for compressed in COMPRESSED_SUFFIXES:
        name = name.removesuffix(compressed)
    return PurePosixPath(name).suffix


def formats_of(files: Sequence[SourceFile]) -> set[str]:
    """The formats that there are."""
    return {file.format for file in files}
