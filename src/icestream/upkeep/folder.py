"""A folder in storage: its files listed, told apart by their paths, deleted.

PyIceberg's file access can't list, so PyArrow's file systems do, made as PyIceberg makes them.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import stat
from collections.abc import Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from icestream.errors import CatalogError

_DELETE_THREADS = 8
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(.*)", re.DOTALL)
_log = logging.getLogger(__name__)


def path_key(location: str) -> str:
    """What is the same for every way to write a file's location.

    `file:/a`, `file:///a` and `/a` are one, so are `s3`, `s3a` and `s3n`: scheme and bucket are
    left out. Files that differ in these alone count as the same, which can only keep a file.
    """
    match = _URI.fullmatch(location)
    if match is not None and match[1].lower() != "file":
        return posixpath.normpath(f"/{match[3].lstrip('/')}")
    path = match[3] if match else str(Path(location).absolute())
    folder, name = posixpath.split(posixpath.normpath(f"/{path.lstrip('/')}"))
    return posixpath.join(_real_folder(folder), name)


@lru_cache(maxsize=4096)
def _real_folder(folder: str) -> str:
    """A local folder without symbolic links on the way."""
    return os.path.realpath(folder)


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:  # gone by now, or not to be touched
        return True


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in storage.

    Attributes:
        folder: Where it was found.
        relative: Its path below that folder.
        key: Its path as `path_key` has it.
        size_bytes: Its size.
        modified_ms: When it was last written; None if the store does not say.
    """

    folder: Folder = field(repr=False)
    relative: str
    key: str
    size_bytes: int
    modified_ms: int | None

    @property
    def path(self) -> str:
        """Where it is, written as the folder's location is."""
        return f"{self.folder.location}/{self.relative}"

    @property
    def name(self) -> str:
        """The last part of its path."""
        return posixpath.basename(self.relative)

    def read(self) -> bytes:
        """The whole content; for small files."""
        with self.folder.file_system.open_input_stream(self._at) as stream:
            return bytes(stream.read())

    def delete(self) -> bool:
        """Delete it; say whether it is gone."""
        try:
            self.folder.file_system.delete_file(self._at)
        except FileNotFoundError:
            return True
        except Exception as error:
            _log.debug("could not delete %s: %s", self.path, error)
            return False
        return True

    @property
    def _at(self) -> str:
        return f"{self.folder.base}/{self.relative}"


class Folder:
    """A folder, with all that lies below it.

    Args:
        io: The table's file access; its properties say how to get at the store.
        location: The folder.

    Raises:
        CatalogError: If PyArrow has no file system for it.
    """

    def __init__(self, io: FileIO, location: str) -> None:
        arrow_io = io if isinstance(io, PyArrowFileIO) else PyArrowFileIO(io.properties)
        self.location = location.rstrip("/")
        self.key = posixpath.dirname(path_key(f"{self.location}/any"))
        try:
            scheme, netloc, path = arrow_io.parse_location(location, arrow_io.properties)
            self.file_system = arrow_io.fs_by_scheme(scheme, netloc)
        except Exception as error:
            raise self._not_listed(error) from error
        self.base = path.rstrip("/")
        self._is_local = scheme == "file"

    def holds(self, key: str) -> bool:
        """Whether a path, as `path_key` has it, lies in the folder or below."""
        return key.startswith(f"{self.key.rstrip('/')}/")

    def files(self, *, recursive: bool = True) -> Iterator[StoredFile]:
        """Its regular files. Symbolic links are left alone, and so is what lies behind them.

        Memory: PyArrow lists a whole folder at once.

        Raises:
            CatalogError: If the folder can't be listed.
        """
        try:
            selector = FileSelector(self.base, allow_not_found=True, recursive=recursive)
            listed: list[FileInfo] = self.file_system.get_file_info(selector)
        except Exception as error:
            raise self._not_listed(error) from error
        while listed:
            info = listed.pop()
            if info.type == FileType.File and (file := self._file(info)) is not None:
                yield file

    def _file(self, info: FileInfo) -> StoredFile | None:
        relative = info.path[len(self.base) :].lstrip("/")
        key = path_key(f"{self.location}/{relative}")
        if self._is_local:
            behind_link = key != posixpath.join(self.key, relative)
            if behind_link or _is_link(info.path):
                return None
        modified_ms = info.mtime_ns // 1_000_000 if info.mtime_ns is not None else None
        return StoredFile(self, relative, key, info.size or 0, modified_ms)

    def _not_listed(self, error: Exception) -> CatalogError:
        return CatalogError(
            f"{self.location} can't be listed: {type(error).__name__}: {error}. It takes a file "
            "system that PyArrow knows, and the right to list"
        )


def delete_stored(files: Iterable[StoredFile]) -> list[StoredFile]:
    """Delete files, each on its own; return those that could not be deleted."""
    wanted = list(files)
    with ThreadPoolExecutor(_DELETE_THREADS) as pool:
        gone = list(pool.map(StoredFile.delete, wanted))
    return [file for file, deleted in zip(wanted, gone, strict=True) if not deleted]


def is_hidden(relative: str, partition_names: Container[str]) -> bool:
    """Whether a path below a folder is one that engines keep to themselves.

    Names that start with `_` or `.` are, such as checkpoints and checksums, but for partitions of
    such a column.
    """
    return any(
        part.startswith(("_", ".")) and part.partition("=")[0] not in partition_names
        for part in relative.split("/")
    )
