"""Decides whether two locations are the same file, even if they are written differently.

A table may refer to a file by another path than the one in a listing: through a symbolic link,
`..`, another mount, or another spelling that the file system treats as equal. Code that deletes
files compares all of these names.
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
    """The name by which files are compared.

    `file:/a`, `file:///a` and `/a` have the same key, and so have `s3`, `s3a` and `s3n` paths,
    because scheme and bucket are left out. Files that differ only in these count as the same. The
    only effect is that a file is kept.
    """
    local = local_path(location)
    if local is not None:
        return _real_path(local)
    match = _URI.fullmatch(location)
    return posixpath.normpath(f"/{match[3].lstrip('/')}" if match else location)


def folder_key(location: str) -> str:
    """The key of a folder, with all symbolic links resolved."""
    return posixpath.dirname(path_key(f"{location.rstrip('/')}/any"))


def all_keys(location: str) -> Iterator[str]:
    """Every name of a file that a table refers to, beginning with the `path_key`.

    A local file also has an identity: device and inode stay the same behind symbolic links, in
    other mounts and with other spellings.
    """
    yield path_key(location)
    if _URI_END.search(location):  # PyIceberg drops the text after such a character.
        yield path_key(_URI_END.split(location, maxsplit=1)[0])
    path = local_path(location)
    if path is None:
        return
    match = _URI.fullmatch(location)
    if match is not None and match[2]:  # `file://host/path`, as other engines read it
        yield _real_path(f"/{match[3].lstrip('/')}")
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            yield os.path.realpath(path)
            status = Path(path).stat()
    except OSError:  # There is no file that could be deleted.
        return
    yield identity_key(status)


def identity_key(status: os.stat_result) -> str:
    """A name for a local file that does not depend on its path."""
    return f"inode:{status.st_dev}:{status.st_ino}"


def plain_name(path: str) -> str:
    """A file's name, normalized to be the same in all stores, engines and file systems."""
    name = unquote_plus(path.rpartition("/")[2])
    return f"name:{unicodedata.normalize('NFC', name).casefold()}"


def local_path(location: str) -> str | None:
    """The path that PyIceberg opens for a local file; None if the location is not local."""
    match = _URI.fullmatch(location)
    if match is None:
        return str(Path(location).absolute())
    if match[1].lower() != "file":
        return None
    path = match[3] if not match[2] else f"{match[2]}{match[3]}"
    return path if path.startswith("/") else str(Path(path).absolute())


def forget_links() -> None:
    """Clear the cache of symbolic links, which may have changed since an earlier search."""
    _real_folder.cache_clear()


def _real_path(path: str) -> str:
    """A path with the links of its folder resolved. A link at the end of the path is kept."""
    folder, name = posixpath.split(f"/{path.lstrip('/')}")
    if name in ("", ".", ".."):
        return os.path.realpath(path)
    return posixpath.join(_real_folder(folder), name)


@lru_cache(maxsize=4096)
def _real_folder(folder: str) -> str:
    """A local folder with symbolic links resolved."""
    return os.path.realpath(folder)
