"""Files on disk and in object stores, through PyArrow's file systems."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs

from icestream.catalogs.arrow_io import PyArrowFileIO
from icestream.catalogs.redaction import redact, shown_cause
from icestream.errors import SourceError
from icestream.write.sources.formats import compression_of

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
_MAGIC = re.compile(r"[*?\[]")
_WITH_PATH_ONLY = ("hdfs", "viewfs")  # their file systems belong to one host


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A file in a listing.

    Attributes:
        path: Its path, with its scheme; absolute if it is local.
        bytes: Its size.
        modified_ns: When it was last modified; None if the store does not say.
        base: The folder that was listed, or the file's folder if the file itself was named.
    """

    path: str
    bytes: int
    modified_ns: int | None
    base: str = ""

    def __repr__(self) -> str:
        return f"StoredSource({redact(self.path)!r}, {self.bytes} bytes)"


@dataclass(frozen=True, slots=True)
class FileStore:
    """Finds and opens files: plain data, so executors can use it.

    Attributes:
        properties: Access to object stores, by PyIceberg's names (`s3.endpoint`).
    """

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def find(self, name: str, *, may_be_empty: bool = False) -> list[StoredSource]:
        """List the files of a path, a glob (`**` matches folders) or a folder, sorted by path.

        A folder's listing skips files and folders whose names start with `_` or `.`.

        Raises:
            SourceError: If there are no files, or the store fails.
        """
        with self._errors(name):
            files = self._find(name)
        if not files and not may_be_empty:
            raise no_files(redact(name))
        return sorted(files, key=lambda file: file.path)

    def open_file(self, path: str) -> pa.NativeFile:
        """Open a file for reading at any position.

        Raises:
            SourceError: If it can't be opened.
        """
        with self._errors(path):
            if not is_utf8(path):
                return _opened_by_python(path)
            system, inner = self._place(path)
            return system.open_input_file(inner)

    def open_stream(self, path: str) -> pa.NativeFile:
        """Open a file for reading from its beginning, and decompress it if its name says so.

        Raises:
            SourceError: If it can't be opened.
        """
        with self._errors(path):
            if not is_utf8(path):
                codec = compression_of(path)
                opened = _opened_by_python(path)
                return pa.CompressedInputStream(opened, codec) if codec else opened
            system, inner = self._place(path)
            return system.open_input_stream(inner, compression="detect")

    def _find(self, name: str) -> list[StoredSource]:
        system, inner = self._place(name)
        prefix = _prefix(name, inner)
        magic = _MAGIC.search(inner)
        file = _file_at(system, prefix, inner)
        if file is not None:  # a name that exists is not a glob, whatever characters it has
            return [replace(file, base=posixpath.dirname(file.path))]
        if magic is None or (system.type_name == "local" and Path(inner).is_dir()):
            base = f"{prefix}{inner}"
            listed = _listed(system, prefix, inner, recursive=True)
            inside = ((each, each.path[len(base.rstrip("/")) :]) for each in listed)
            return [
                replace(each, base=base)
                for each, path in inside
                if not is_hidden(path.strip("/").split("/"))
            ]
        base = posixpath.dirname(inner[: magic.start()])
        rest = inner[len(base) :].lstrip("/")
        deep = "/" in rest or "**" in rest
        fits = _pattern(inner)
        listed = _listed(system, prefix, base, recursive=deep)
        matching = [each for each in listed if fits.fullmatch(each.path.removeprefix(prefix))]
        return [replace(each, base=f"{prefix}{base}") for each in matching]

    def _place(self, path: str) -> tuple[Any, str]:
        """The file system, and the path in it.

        PyIceberg cuts a location at `?` and `#`, but object names may contain both.
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

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """Add the path to the errors of the store."""
        try:
            yield
        except Exception as error:
            text = redact(" ".join(str(error).split()), self.properties)
            raise SourceError(
                f"{redact(path)!r} can't be opened: {text}. {_advice(path, error)}"
            ) from shown_cause(error, self.properties)


def _advice(path: str, error: Exception) -> str:
    """What to do about a path that can't be opened."""
    if "Unrecognized filesystem type" in str(error):
        return (
            "Give a local path, or an address of s3, gs, hdfs or abfs; download other files first"
        )
    if not is_local_path(path):
        return (
            "Check the path, and the options that give access (s3.endpoint, s3.access-key-id, ...)"
        )
    if isinstance(error, PermissionError):
        return "Give this user the right to read it"
    return "Check the path"


def is_local_path(path: str) -> bool:
    """Whether a path is on a disk of this machine."""
    scheme = _SCHEME.match(path)
    return scheme is None or scheme[1] == "file"


def no_files(name: str) -> SourceError:
    """The error for a path, a glob or a folder without files."""
    if is_local_path(name) and Path(name.removeprefix("file://")).is_dir():
        return SourceError(
            f"the folder {name!r} has no files, apart from names that begin with _ or .: check the "
            "path"
        )
    return SourceError(f"no file is at {name!r}: check the path, or quote a glob as '*.parquet'")


def is_hidden(names: Iterable[str]) -> bool:
    """Whether a file or a folder of a path is hidden; `_year=2025` is a column, as in Spark."""
    return any(name.startswith(".") or (name.startswith("_") and "=" not in name) for name in names)


def _prefix(name: str, inner: str) -> str:
    """The part of a file's name before its path in the file system."""
    scheme = _SCHEME.match(name)
    if scheme is None or scheme[1] == "file":
        return ""
    return name[: len(name) - len(inner)] if name.endswith(inner) else f"{scheme[1]}://"


def is_utf8(path: str) -> bool:
    """Whether a path is valid UTF-8: PyArrow accepts no others."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown_path(path: str) -> str:
    """A path as text; bytes that are not valid UTF-8 are escaped as in `\\xff`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _opened_by_python(path: str) -> pa.NativeFile:
    return pa.PythonFile(open(path.removeprefix("file://"), "rb"), mode="r")


def _file_at(system: Any, prefix: str, path: str) -> StoredSource | None:
    """The file of exactly that name, if it exists."""
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
        entries = system.get_file_info(selector)
        return [_stored(prefix, each) for each in entries if each.type == pafs.FileType.File]
    except UnicodeDecodeError:  # a name in the folder is not valid UTF-8
        if system.type_name != "local":
            raise
        return _local_files(folder, recursive=recursive)


def _local_files(folder: str, *, recursive: bool) -> list[StoredSource]:
    """The files of a local folder, listed by Python, which handles every name on a disk."""
    return list(_walked(folder, recursive, set()))


def _walked(folder: str, recursive: bool, seen: set[tuple[int, int]]) -> Iterator[StoredSource]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                yield _local_file(entry.path)
            elif recursive and entry.is_dir():
                status = entry.stat()
                place = (status.st_dev, status.st_ino)
                if place not in seen:
                    yield from _walked(entry.path, recursive, seen | {place})


def local_source(path: str) -> StoredSource | None:
    """A local file as it is now; None if it is gone, or the path is not local."""
    if not is_local_path(path):
        return None
    try:
        return _local_file(path.removeprefix("file://"))
    except FileNotFoundError:
        return None


def _local_file(path: str) -> StoredSource:
    status = os.stat(path)  # noqa: PTH116  # the path stays as the folder spells it
    return StoredSource(path, status.st_size, status.st_mtime_ns)


def _stored(prefix: str, info: pafs.FileInfo) -> StoredSource:
    return StoredSource(f"{prefix}{info.path}", info.size or 0, info.mtime_ns)


def _pattern(glob: str) -> re.Pattern[str]:
    """A glob as a regular expression: only `**` matches slashes."""
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
