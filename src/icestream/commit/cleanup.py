"""Deleting files that no snapshot refers to."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.io import FileIO

_log = logging.getLogger(__name__)
_THREADS = 8


def delete_files(io: FileIO, paths: Iterable[str]) -> list[str]:
    """Delete files, each on its own; return those that could not be deleted.

    A file that does not exist counts as deleted.
    """
    wanted = list(dict.fromkeys(paths))
    if len(wanted) <= 1:
        return [path for path in wanted if not _delete(io, path)]
    with ThreadPoolExecutor(min(_THREADS, len(wanted))) as pool:
        deleted = list(pool.map(lambda path: _delete(io, path), wanted))
    return [path for path, gone in zip(wanted, deleted, strict=True) if not gone]


def _delete(io: FileIO, path: str) -> bool:
    try:
        io.delete(path)
    except FileNotFoundError:
        return True
    except Exception as error:
        _log.debug("could not delete %s: %s", path, error)
        return False
    return True
