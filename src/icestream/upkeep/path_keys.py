"""When two locations are the same file, however they are written.

A location that a table refers to may lead to a file by another name than the one that a listing
finds it under: through a symbolic link, through `..`, through another mount, or in other letters
on a file system that does not tell them apart. Whoever deletes files compares all of these names.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote_plus

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(.*)", re.DOTALL)
_URI_END = re.compile(r"[?#;]")


def path_key(location: str) -> str:
    """The name that a file is compared by.

    `file:/a`, `file:///a` and `/a` are one, so are `s3`, `s3a` and `s3n`: scheme and bucket are
    left out. Files that differ in these alone count as the same, which can only keep a file.
    """
    local = local_path(location)
    if local is not None:
        return _real_path(local)
    match = _URI.fullmatch(location)
    return posixpath.normpath(f"/{match[3].lstrip('/')}" if match else location)


def folder_key(location: str) -> str:
    """The same for a folder, which has no links left in it at all."""
    return posixpath.dirname(path_key(f"{location.rstrip('/')}/any"))


def all_keys(location: str) -> Iterator[str]:
    """Every name of a file that a table refers to, `path_key`'s first.

    A local file has its own identity beside its path: device and inode are the same behind
    symbolic links, in other mounts, and in other letters.
    """
    yield path_key(location)
    if _URI_END.search(location):  # PyIceberg leaves out what follows such a sign
        yield path_key(_URI_END.split(location, maxsplit=1)[0])
    path = local_path(location)
    if path is None:
        return
    match = _URI.fullmatch(location)
    if match is not None and match[2]:  # `file://host/path`, as other engines read it
        yield _real_path(f"/{match[3].lstrip('/')}")
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            yield os.path.realpath(path)
            found = Path(path).stat()
    except OSError:  # nothing is there, so nothing there can be deleted
        return
    yield identity_key(found)


def identity_key(found: os.stat_result) -> str:
    """A name for a local file that does not depend on its path."""
    return f"inode:{found.st_dev}:{found.st_ino}"


def plain_name(path: str) -> str:
    """A file's name without what stores, engines and file systems spell in different ways."""
    name = unquote_plus(path.rpartition("/")[2])
    return f"name:{unicodedata.normalize('NFC', name).casefold()}"


def local_path(location: str) -> str | None:
    """The path of a local file, as PyIceberg opens it; None if the location is not local."""
    match = _URI.fullmatch(location)
    if match is None:
        return str(Path(location).absolute())
    if match[1].lower() != "file":
        return None
    path = match[3] if not match[2] else f"{match[2]}{match[3]}"
    return path if path.startswith("/") else str(Path(path).absolute())


def forget_links() -> None:
    """Look at symbolic links anew: they may have changed since an earlier search."""
    _real_folder.cache_clear()


def _real_path(path: str) -> str:
    """A path with its folder's links resolved, and not its own: a link is a file of its own."""
    folder, name = posixpath.split(f"/{path.lstrip('/')}")
    if name in ("", ".", ".."):
        return os.path.realpath(path)
    return posixpath.join(_real_folder(folder), name)


@lru_cache(maxsize=4096)
def _real_folder(folder: str) -> str:
    """A local folder without symbolic links on the way."""
    return os.path.realpath(folder)
