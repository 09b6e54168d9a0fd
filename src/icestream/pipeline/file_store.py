"""Files on disk and in object stores, through PyArrow's file systems."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs
from pyiceberg.io.pyarrow import PyArrowFileIO

from icestream.errors import SourceError
from icestream.redaction import redact, shown_cause

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class StoredSource:
    """A file as a listing tells of it.

    Attributes:
        path: Where it is, with its scheme; absolute if it is local.
        bytes: Its size.
        modified_ns: When it was changed last; None where the store does not say.
    """

    path: str
    bytes: int
    modified_ns: int | None


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
            system, inner = self._place(path)
            return system.open_input_stream(inner, compression="detect")
        except Exception as error:
            raise self._failed(path, error) from shown_cause(error, self.properties)

    def _find(self, name: str) -> list[StoredSource]:
        system, inner = self._place(name)
        prefix = _prefix(name, inner)
        if not _MAGIC.search(inner):
            info = system.get_file_info(inner)
            if info.type == pafs.FileType.File:
                return [_stored(prefix, info)]
            selector = pafs.FileSelector(inner, allow_not_found=True, recursive=True)
            listed = [each for each in system.get_file_info(selector) if _is_seen(each.path, inner)]
            return [_stored(prefix, each) for each in listed if each.type == pafs.FileType.File]
        if system.type_name == "local" and Path(inner).exists():  # a name with brackets in it
            return [_stored(prefix, system.get_file_info(inner))]
        base = posixpath.dirname(inner[: _MAGIC.search(inner).start()])  # type: ignore[union-attr]
        rest = inner[len(base) :].lstrip("/")
        deep = "/" in rest or "**" in rest
        selector = pafs.FileSelector(base, allow_not_found=True, recursive=deep)
        fits = _pattern(inner)
        return [
            _stored(prefix, each)
            for each in system.get_file_info(selector)
            if each.type == pafs.FileType.File and fits.fullmatch(each.path)
        ]

    def _place(self, path: str) -> tuple[Any, str]:
        """The file system, and the path in it."""
        scheme = _SCHEME.match(path)
        if scheme is None or scheme[1] == "file":
            local = path.removeprefix("file://")
            return pafs.LocalFileSystem(), str(Path(local).absolute())
        io = PyArrowFileIO({key: str(value) for key, value in self.properties.items()})
        kind, netloc, inner = io.parse_location(path, io.properties)
        return io.fs_by_scheme(kind, netloc), inner

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


def _stored(prefix: str, info: pafs.FileInfo) -> StoredSource:
    return StoredSource(f"{prefix}{info.path}", info.size or 0, info.mtime_ns)


def _is_seen(path: str, folder: str) -> bool:
    inside = path[len(folder.rstrip("/")) :].strip("/")
    return not any(part.startswith(("_", ".")) for part in inside.split("/"))


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
    return re.compile(out)
