"""Deleting files that no snapshot refers to, and looking for files that may have been deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.io import FileIO

from icestream.credentials import renewing

_log = logging.getLogger(__name__)
_THREADS = 8


def delete_files(io: FileIO, paths: Iterable[str]) -> list[str]:
    """Delete files, each on its own; return those that could not be deleted.

    A file that does not exist counts as deleted.
    """
    return _failed(lambda path: _delete(io, path), paths)


def missing_files(io: FileIO, paths: Iterable[str]) -> list[str]:
    """The files that do not exist."""
    return _failed(lambda path: io.new_input(path).exists(), paths)


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
