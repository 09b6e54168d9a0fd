"""A folder in storage: its files listed and deleted.

PyIceberg's file access can't list. Local folders are walked entry by entry; for others PyArrow's
file systems list, made as PyIceberg makes them.
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
from pathlib import Path

from pyarrow.fs import FileInfo, FileSelector, FileType
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from icestream.errors import CatalogError
from icestream.upkeep.path_keys import folder_key, identity_key, local_path, path_key

_DELETE_THREADS = 8
_AMBIGUOUS = re.compile(r"[?#;]")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in storage.

    Attributes:
        folder: Where it was found.
        relative: Its path below that folder.
        key: Its path as `path_key` has it.
        size_bytes: Its size.
        modified_ms: When it was last written; None if the store does not say.
        identity: Its name that does not depend on its path; None if the file is not local.
    """

    folder: Folder = field(repr=False)
    relative: str
    key: str
    size_bytes: int
    modified_ms: int | None
    identity: str | None = None

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
        """Delete it; say whether it is gone. A local file that is another one by now stays."""
        try:
            if self.folder.is_local:
                return self._delete_local()
            self.folder.file_system.delete_file(self._at)
        except FileNotFoundError:
            return True
        except Exception as error:
            _log.debug("could not delete %s: %s", self.path, error)
            return False
        return True

    def _delete_local(self) -> bool:
        found = os.lstat(self._at)
        is_same = identity_key(found) == self.identity and _modified_ms(found) == self.modified_ms
        if not is_same or not stat.S_ISREG(found.st_mode):
            return False
        Path(self._at).unlink()
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
        self.key = folder_key(self.location)
        local = local_path(self.location)
        self.is_local = local is not None
        try:
            scheme, netloc, path = arrow_io.parse_location(location, arrow_io.properties)
            self.file_system = arrow_io.fs_by_scheme(scheme, netloc)
        except Exception as error:
            raise self._not_listed(error) from error
        if local is None and _AMBIGUOUS.search(location):
            raise self._not_listed(ValueError("engines don't agree on '?', '#' and ';' in it"))
        self.base = (local if local is not None else path).rstrip("/")

    def holds(self, key: str) -> bool:
        """Whether a path, as `path_key` has it, lies in the folder or below."""
        return key.startswith(f"{self.key.rstrip('/')}/")

    def key_of(self, relative: str) -> str:
        """The key of a file that was listed in it: local ones are never behind links."""
        if self.is_local:
            return posixpath.join(self.key, relative)
        return path_key(f"{self.location}/{relative}")

    def files(self, *, recursive: bool = True) -> Iterator[StoredFile]:
        """Its regular files. Symbolic links are left alone, and so is what lies behind them.

        Memory: nothing for a local folder; elsewhere PyArrow lists all of it at once, which takes
        about 400 bytes a file.

        Raises:
            CatalogError: If the folder can't be listed.
        """
        if self.is_local:
            yield from self._walk("", recursive)
            return
        try:
            selector = FileSelector(self.base, allow_not_found=True, recursive=recursive)
            listed: list[FileInfo] = self.file_system.get_file_info(selector)
        except Exception as error:
            raise self._not_listed(error) from error
        while listed:
            info = listed.pop()
            if info.type == FileType.File:
                relative = info.path[len(self.base) :].lstrip("/")
                modified_ms = info.mtime_ns // 1_000_000 if info.mtime_ns is not None else None
                yield StoredFile(self, relative, self.key_of(relative), info.size or 0, modified_ms)

    def _walk(self, top: str, recursive: bool) -> Iterator[StoredFile]:
        """Local files, entry by entry; links are not followed."""
        waiting = [top]
        while waiting:
            below = waiting.pop()
            try:
                with os.scandir(posixpath.join(self.base or "/", below)) as entries:
                    for entry in entries:
                        relative = posixpath.join(below, entry.name)
                        if entry.is_dir(follow_symlinks=False):
                            if recursive:
                                waiting.append(relative)
                        elif (file := self._local_file(entry, relative)) is not None:
                            yield file
            except FileNotFoundError:  # never there, or gone by now
                continue
            except OSError as error:
                raise self._not_listed(error) from error

    def _local_file(self, entry: os.DirEntry[str], relative: str) -> StoredFile | None:
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        key, modified_ms = self.key_of(relative), _modified_ms(found)
        return StoredFile(self, relative, key, found.st_size, modified_ms, identity_key(found))

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


def _modified_ms(found: os.stat_result) -> int:
    return found.st_mtime_ns // 1_000_000
