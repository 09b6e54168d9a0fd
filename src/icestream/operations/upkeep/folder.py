"""Lists and deletes the files of a folder in storage.

PyIceberg's `FileIO` can't list files. Local folders are walked entry by entry. Other folders are
listed by PyArrow's file systems, created in the same way as PyIceberg creates them.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.io import FileIO

from icestream.catalogs.arrow_io import PyArrowFileIO
from icestream.catalogs.credentials import renewing
from icestream.errors import CatalogError, CredentialsExpiredError
from icestream.operations.upkeep.path_keys import folder_key, identity_key, local_path, path_key

T = TypeVar("T")

_DELETE_THREADS = 8
_AMBIGUOUS = re.compile(r"[?#;]")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in storage.

    Attributes:
        folder: The folder that was listed.
        relative: The path below that folder.
        key: The `path_key` of the path.
        size_bytes: The size.
        modified_ms: When the file was last written; None if the store does not report it.
        identity: A name that does not depend on the path; None if the file is not local.
    """

    folder: Folder = field(repr=False)
    relative: str
    key: str
    size_bytes: int
    modified_ms: int | None
    identity: str | None = None

    @property
    def path(self) -> str:
        """The path, in the notation of the folder's location."""
        return f"{self.folder.location}/{self.relative}"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.relative)

    def read(self, *, most_bytes: int) -> bytes:
        """The whole content; for small files.

        Raises:
            CredentialsExpiredError: If credentials have expired, and there are no new ones.
            OSError: If the file can't be read, or is gone.
            ValueError: If it is larger than `most_bytes`.
        """
        content = self.folder.renewing(lambda store: self._read(store, most_bytes + 1))
        if len(content) > most_bytes:
            raise ValueError(f"it has more than {most_bytes} bytes")
        return content

    def _read(self, store: FileSystem, count: int) -> bytes:
        with store.open_input_stream(self._at) as stream:
            return bytes(stream.read(count))

    def delete(self) -> bool:
        """Delete the file, and return whether it is gone. A local file that was replaced stays."""
        try:
            if self.folder.is_local:
                return self._delete_local()
            self.folder.renewing(lambda store: store.delete_file(self._at))
        except FileNotFoundError:
            return True
        except Exception as error:
            _log.debug("could not delete %s: %s", self.path, error)
            return False
        return True

    def _delete_local(self) -> bool:
        status = os.lstat(self._at)
        is_same = identity_key(status) == self.identity and _modified_ms(status) == self.modified_ms
        if not is_same or not stat.S_ISREG(status.st_mode):
            return False
        Path(self._at).unlink()
        return True

    @property
    def _at(self) -> str:
        return f"{self.folder.base}/{self.relative}"


class Folder:
    """A folder, with everything below it.

    Args:
        io: The table's file access from `table_access`, which renews expired credentials. Its
            properties describe how to access the store.
        location: The location of the folder.

    Raises:
        CatalogError: If PyArrow has no file system for the location.
    """

    def __init__(self, io: FileIO, location: str) -> None:
        self._io = io
        self._arrow_io = io if isinstance(io, PyArrowFileIO) else PyArrowFileIO(io.properties)
        self.location = location.rstrip("/")
        self.key = folder_key(self.location)
        local = local_path(self.location)
        self.is_local = local is not None
        try:
            self._scheme, self._netloc, path = PyArrowFileIO.parse_location(location, io.properties)
            self._file_system()
        except Exception as error:
            raise self._not_listed(error) from error
        if local is None and _AMBIGUOUS.search(location):
            raise self._not_listed(ValueError("engines read '?', '#' and ';' in it differently"))
        self.base = (local if local is not None else path).rstrip("/")

    def renewing(self, action: Callable[[FileSystem], T]) -> T:
        """Run an action on the store, and again with new credentials if they have expired.

        Raises:
            CredentialsExpiredError: If there are no new credentials.
        """
        return renewing(self._io, lambda: action(self._file_system()), path=self.location)

    def _file_system(self) -> FileSystem:
        """The store, with the current credentials."""
        if self._arrow_io is not self._io and self._arrow_io.properties is not self._io.properties:
            self._arrow_io = PyArrowFileIO(self._io.properties)
        return self._arrow_io.fs_by_scheme(self._scheme, self._netloc)

    def holds(self, key: str) -> bool:
        """Whether a path, given by its `path_key`, is below the folder."""
        return key.startswith(f"{self.key.rstrip('/')}/")

    def key_of(self, relative: str) -> str:
        """The key of a file in this folder. Listed local files are never behind links."""
        if self.is_local:
            return posixpath.join(self.key, relative)
        return path_key(f"{self.location}/{relative}")

    def files(self, *, recursive: bool = True, below: str = "") -> Iterator[StoredFile]:
        """The regular files. Symbolic links are skipped and not followed.

        Args:
            recursive: Whether to list folders below.
            below: List only this folder below, given by its relative path.

        Memory: constant for a local folder. For others, PyArrow lists all files at once, which
        takes about 400 bytes per file.

        Raises:
            CatalogError: If the folder can't be listed.
            CredentialsExpiredError: If credentials have expired, and there are no new ones.
        """
        if self.is_local:
            yield from self._walk(below, recursive)
            return
        listed = self._listed(below, recursive)
        while listed:
            info = listed.pop()
            if info.type == FileType.File:
                relative = info.path[len(self.base) :].lstrip("/")
                modified_ms = info.mtime_ns // 1_000_000 if info.mtime_ns is not None else None
                yield StoredFile(self, relative, self.key_of(relative), info.size or 0, modified_ms)

    def folders(self, below: str = "") -> list[str]:
        """The relative paths of the folders directly below a folder. Links are not followed.

        Raises:
            CatalogError: If the folder can't be listed.
            CredentialsExpiredError: If credentials have expired, and there are no new ones.
        """
        if not self.is_local:
            infos = (i for i in self._listed(below, False) if i.type == FileType.Directory)
            return sorted(info.path[len(self.base) :].strip("/") for info in infos)
        try:
            with os.scandir(posixpath.join(self.base or "/", below)) as entries:
                names = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._not_listed(error) from error
        return sorted(posixpath.join(below, name) for name in names)

    def _listed(self, below: str, recursive: bool) -> list[FileInfo]:
        try:
            selector = FileSelector(
                posixpath.join(self.base, below).rstrip("/"),
                allow_not_found=True,
                recursive=recursive,
            )
            return self.renewing(lambda store: store.get_file_info(selector))
        except CredentialsExpiredError:
            raise
        except Exception as error:
            raise self._not_listed(error) from error

    def _walk(self, top: str, recursive: bool) -> Iterator[StoredFile]:
        """Local files, entry by entry, without following links."""
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
            except FileNotFoundError:  # It never existed, or was deleted meanwhile.
                continue
            except OSError as error:
                raise self._not_listed(error) from error

    def _local_file(self, entry: os.DirEntry[str], relative: str) -> StoredFile | None:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        key, modified_ms = self.key_of(relative), _modified_ms(status)
        return StoredFile(self, relative, key, status.st_size, modified_ms, identity_key(status))

    def _not_listed(self, error: Exception) -> CatalogError:
        return CatalogError(
            f"{self.location} can't be listed: {type(error).__name__}: {error}. Check that PyArrow "
            "supports the file system, and that you have the permission to list files"
        )


class Storage:
    """Lists folders and deletes files, in this process."""

    def files(self, folder: Folder) -> Iterator[StoredFile]:
        """All files below a folder."""
        return folder.files()

    def delete(self, files: Sequence[StoredFile]) -> list[StoredFile]:
        """Delete files; return those that could not be deleted."""
        return delete_stored(files)


def delete_stored(files: Iterable[StoredFile]) -> list[StoredFile]:
    """Delete files one by one; return those that could not be deleted."""
    wanted = list(files)
    with ThreadPoolExecutor(_DELETE_THREADS) as pool:
        gone = list(pool.map(StoredFile.delete, wanted))
    return [file for file, deleted in zip(wanted, gone, strict=True) if not deleted]


def is_hidden(relative: str, partition_names: Container[str]) -> bool:
    """Whether a path below a folder is hidden, such as checkpoints and checksums.

    A path is hidden if a part of it starts with `_` or `.`, unless that part is a partition of a
    column with such a name.
    """
    return any(
        part.startswith(("_", ".")) and part.partition("=")[0] not in partition_names
        for part in relative.split("/")
    )


def _modified_ms(status: os.stat_result) -> int:
    return status.st_mtime_ns // 1_000_000
