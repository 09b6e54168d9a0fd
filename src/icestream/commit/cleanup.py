"""Deletes files that no snapshot refers to, and checks whether files still exist."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.io import FileIO

from icestream.catalogs.credentials import renewing
from icestream.read.decode.files import RetryPolicy, retrying

_log = logging.getLogger(__name__)
_THREADS = 8


def delete_files(io: FileIO, paths: Iterable[str]) -> list[str]:
    """Delete files one by one; return those that could not be deleted.

    A file that does not exist counts as deleted.
    """
    return _failed(lambda path: _delete(io, path), paths)


def missing_files(io: FileIO, paths: Iterable[str]) -> list[str]:
    """The files that do not exist.

    Raises:
        ReadError: If storage can't be accessed.
    """

    def exists(path: str) -> bool:
        return retrying(lambda: io.new_input(path).exists(), path=path, policy=RetryPolicy(), io=io)

    return _failed(exists, paths)


def _failed(test: Callable[[str], bool], paths: Iterable[str]) -> list[str]:
    """The paths for which the test is false, each tested once, several at a time."""
    wanted = list(dict.fromkeys(paths))
    if len(wanted) <= 1:
        return [path for path in wanted if not test(path)]
    with ThreadPoolExecutor(min(_THREADS, len(wanted))) as pool:
        passed = list(pool.map(test, wanted))
    return [path for path, good in zip(wanted, passed, strict=True) if not good]


def _delete(io: FileIO, path: str) -> bool:
    try:
        renewing(io, lambda: io.delete(path), path=path)
    except FileNotFoundError:
        return True
    except Exception as error:
        _log.debug("could not delete %s: %s", path, error)
        return False
    return True
