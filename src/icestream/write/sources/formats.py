"""The registry of file formats: their names, their suffixes and what reads them.

Every option, check and reader that names a format goes by `FORMATS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, cast

FileFormat = Literal["parquet", "csv", "json", "arrow", "orc"]
"""Formats that this process reads."""

SourceFormat = Literal[FileFormat, "avro"]
"""Formats of a load's files: Spark reads those that this process does not."""

OutputFormat = Literal["parquet", "csv", "json", "arrow", "text"]
"""Formats that a scan writes."""

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""Suffixes of compressed text files, and PyArrow's names of their codecs."""


@dataclass(frozen=True, slots=True)
class Format:
    """A file format.

    Attributes:
        name: Its name in options and pipeline files.
        suffixes: Suffixes of files that are read as this format, in lower case.
        output_suffixes: Suffixes of files that are written in this format.
        is_text: Whether a file consists of lines of text.
        needs_spark: Whether only Spark reads it.
    """

    name: str
    suffixes: tuple[str, ...] = ()
    output_suffixes: tuple[str, ...] = ()
    is_text: bool = False
    needs_spark: bool = False


_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")

FORMATS = {
    each.name: each
    for each in (
        Format("parquet", (".parquet", ".pq"), (".parquet", ".pq")),
        Format("csv", (".csv", ".tsv"), (".csv",), is_text=True),
        Format("json", _JSON_SUFFIXES, _JSON_SUFFIXES, is_text=True),
        Format("arrow", (".arrow", ".arrows", ".feather", ".ipc"), (".arrow", ".feather")),
        Format("orc", (".orc",)),
        Format("avro", needs_spark=True),
        Format("text", output_suffixes=(".txt",), is_text=True),
    )
}
SOURCE_FORMATS = tuple(each.name for each in FORMATS.values() if each.suffixes or each.needs_spark)
FILE_FORMATS = tuple(name for name in SOURCE_FORMATS if not FORMATS[name].needs_spark)
OUTPUT_FORMATS = tuple(each.name for each in FORMATS.values() if each.output_suffixes)
TEXT_FORMATS = tuple(each.name for each in FORMATS.values() if each.is_text)
BINARY_FORMATS = tuple(each.name for each in FORMATS.values() if not each.is_text)

_READ = {suffix: each.name for each in FORMATS.values() for suffix in each.suffixes}
_WRITTEN = {suffix: each.name for each in FORMATS.values() for suffix in each.output_suffixes}


def format_of(path: str) -> FileFormat | None:
    """The format that a file's name shows, compressed or not; None if it shows none."""
    name = path.lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return cast("FileFormat | None", _READ.get(PurePosixPath(name).suffix))


def output_format_of(path: str) -> OutputFormat | None:
    """The format in which a file of that name is written; None if its name shows none."""
    return cast("OutputFormat | None", _WRITTEN.get(PurePosixPath(path.lower()).suffix))


def compression_of(path: str) -> str | None:
    """The codec that a file's name shows; None if the file is not compressed."""
    return COMPRESSIONS.get(PurePosixPath(path.lower()).suffix)


def needs_spark(name: str | None) -> bool:
    """Whether only Spark reads a format."""
    return name in FORMATS and FORMATS[name].needs_spark
