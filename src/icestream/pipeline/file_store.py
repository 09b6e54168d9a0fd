"""Files on disk and in object stores, through PyArrow's file systems."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs
from pyiceberg.io.pyarrow import PyArrowFileIO

from icestream.errors import SourceError
from icestream.redaction import redact, shown_cause

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
_MAGIC = re.compile(r"[*?\[]")
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_WITH_PATH_ONLY = ("hdfs", "viewfs")  # whose file systems are of one host


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A file as a listing tells of it.

    Attributes:
        path: Where it is, with its scheme; absolute if it is local.
        bytes: Its size.
        modified_ns: When it was changed last; None where the store does not say.
        base: The folder that was listed: that of the file itself if it was named.
    """

    path: str
    bytes: int
    modified_ns: int | None
    base: str = ""


@dataclass(frozen=True, slots=True)
class FileStore:
    """How files are opened: plain data, which may travel to executors.

    Attributes:
        properties: Access to object stores, as PyIceberg names them (`s3.endpoint`).
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def find(self, name: str, *, may_be_empty: bool = False) -> list[StoredSource]:
        """The files of a path, a glob (`**` goes through folders) or a folder, sorted by path.

        Of folders, files and folders whose names start with `_` or `.` are left out.

        Raises:
            SourceError: If there is none, or the store can't be asked.
        """
        try:
            found = self._find(name)
        except SourceError:
            raise
        except Exception as error:
            raise self._failed(name, error) from shown_cause(error, self.properties)
        if not found and not may_be_empty:
            raise SourceError(
                f"no file is at {redact(name)!r}: check the path, or quote a glob as '*.parquet'"
            )
        return sorted(found, key=lambda file: file.path)

    def open_file(self, path: str) -> pa.NativeFile:
        """A file that can be read anywhere.

        Raises:
            SourceError: If it can't be opened.
        """
        try:
            if not is_utf8(path):
                return _opened_by_python(path)
            system, inner = self._place(path)
            return system.open_input_file(inner)
        except Exception as error:
            raise self._failed(path, error) from shown_cause(error, self.properties)

    def open_stream(self, path: str) -> pa.NativeFile:
        """A file from its beginning, decompressed if its name says that it is compressed.

        Raises:
            SourceError: If it can't be opened.
        """
        try:
            if not is_utf8(path):
                codec = _CODECS.get(posixpath.splitext(path)[1].lower())
                opened = _opened_by_python(path)
                return pa.CompressedInputStream(opened, codec) if codec else opened
            system, inner = self._place(path)
            return system.open_input_stream(inner, compression="detect")
        except Exception as error:
            raise self._failed(path, error) from shown_cause(error, self.properties)

    def _find(self, name: str) -> list[StoredSource]:
        system, inner = self._place(name)
        prefix = _prefix(name, inner)
        magic = _MAGIC.search(inner)
        found = _file_at(system, prefix, inner)
        if found is not None:  # a name that exists is not a glob, whatever characters it has
            return [replace(found, base=posixpath.dirname(found.path))]
        if magic is None or (system.type_name == "local" and Path(inner).is_dir()):
            base = f"{prefix}{inner}"
            listed = _listed(system, prefix, inner, recursive=True)
            return [replace(each, base=base) for each in listed if _is_seen(each.path, base)]
        base = posixpath.dirname(inner[: magic.start()])
        rest = inner[len(base) :].lstrip("/")
        deep = "/" in rest or "**" in rest
        fits = _pattern(inner)
        listed = _listed(system, prefix, base, recursive=deep)
        found_there = [each for each in listed if fits.fullmatch(each.path.removeprefix(prefix))]
        return [replace(each, base=f"{prefix}{base}") for each in found_there]

    def _place(self, path: str) -> tuple[Any, str]:
        """The file system, and the path in it.

        PyIceberg cuts a location at `?` and `#`, which names of objects may have.
        """
        scheme = _SCHEME.match(path)
        if scheme is None or scheme[1] == "file":
            local = path.removeprefix("file://")
            return pafs.LocalFileSystem(), str(Path(local).absolute())
        io = PyArrowFileIO({key: str(value) for key, value in self.properties.items()})
        kind, whole = scheme[1].lower(), path[scheme.end() :]
        host, slash, rest = whole.partition("/")
        inner = f"{slash}{rest}" if kind in _WITH_PATH_ONLY else whole
        return io.fs_by_scheme(kind, host), inner

    def _failed(self, path: str, error: Exception) -> SourceError:
        text = redact(" ".join(str(error).split()), self.properties)
        return SourceError(
            f"{redact(path)!r} can't be opened: {text}. Check the path, and the options that give "
            "access (s3.endpoint, s3.access-key-id, ...)"
        )


def _prefix(name: str, inner: str) -> str:
    """What comes before a path of the file system in the name of a file."""
    scheme = _SCHEME.match(name)
    if scheme is None or scheme[1] == "file":
        return ""
    return name[: len(name) - len(inner)] if name.endswith(inner) else f"{scheme[1]}://"


def is_utf8(path: str) -> bool:
    """Whether a path is valid UTF-8: PyArrow takes no other."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown_path(path: str) -> str:
    """A path as text: bytes that are not valid UTF-8 become `\\xff`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _opened_by_python(path: str) -> pa.NativeFile:
    return pa.PythonFile(open(path.removeprefix("file://"), "rb"), mode="r")


def _file_at(system: Any, prefix: str, path: str) -> StoredSource | None:
    """The file of exactly that name, if there is one."""
    if system.type_name == "local":
        return _local_file(path) if Path(path).is_file() else None
    info = system.get_file_info(path)
    return _stored(prefix, info) if info.type == pafs.FileType.File else None


def _listed(system: Any, prefix: str, folder: str, *, recursive: bool) -> list[StoredSource]:
    """The files of a folder."""
    if not is_utf8(folder):
        return _local_files(folder, recursive=recursive)
    selector = pafs.FileSelector(folder, allow_not_found=True, recursive=recursive)
    try:
        found = system.get_file_info(selector)
        return [_stored(prefix, each) for each in found if each.type == pafs.FileType.File]
    except UnicodeDecodeError:  # of a name in the folder
        if system.type_name != "local":
            raise
        return _local_files(folder, recursive=recursive)


def _local_files(folder: str, *, recursive: bool) -> list[StoredSource]:
    """The files of a local folder, by Python, which takes every name that a disk has."""
    return list(_walked(folder, recursive, set()))


def _walked(folder: str, recursive: bool, seen: set[tuple[int, int]]) -> Iterator[StoredSource]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                yield _local_file(entry.path)
            elif recursive and entry.is_dir():
                told = entry.stat()
                place = (told.st_dev, told.st_ino)
                if place not in seen:
                    yield from _walked(entry.path, recursive, seen | {place})


def _local_file(path: str) -> StoredSource:
    told = os.stat(path)  # noqa: PTH116  # the path stays as the folder spells it
    return StoredSource(path, told.st_size, told.st_mtime_ns)


def _stored(prefix: str, info: pafs.FileInfo) -> StoredSource:
    return StoredSource(f"{prefix}{info.path}", info.size or 0, info.mtime_ns)


def _is_seen(path: str, folder: str) -> bool:
    """Whether no name is hidden; `_year=2025` is a column, as for Spark."""
    inside = path[len(folder.rstrip("/")) :].strip("/").split("/")
    return not any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) for part in inside
    )


def _pattern(glob: str) -> re.Pattern[str]:
    """A glob as a regular expression: `*` and `?` end at a slash, `**` does not."""
    out, position = "", 0
    while position < len(glob):
        character = glob[position]
        if glob.startswith("**/", position):
            out, position = f"{out}(?:.*/)?", position + 3
        elif glob.startswith("**", position):
            out, position = f"{out}.*", position + 2
        elif character == "[" and (end := glob.find("]", position + 2)) > 0:
            inside = glob[position + 1 : end].replace("\\", r"\\")
            inside = f"^{inside[1:]}" if inside.startswith("!") else inside
            out, position = f"{out}[{inside}]", end + 1
        else:
            out += {"*": "[^/]*", "?": "[^/]"}.get(character, re.escape(character))
            position += 1
    return re.compile(out, re.DOTALL)
