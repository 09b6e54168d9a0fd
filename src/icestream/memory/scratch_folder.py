"""Temporary folders that a later process removes if their own process was killed.

A killed process (`kill -9`, out of memory) can't clean up. The kernel then
frees the lock of its folder. The next process that needs a folder removes all unlocked ones.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

_PREFIX = "icestream-"
_LOCK_NAME = ".owner"
_TRIES = 3


class ScratchFolder:
    """A private folder for temporary files, removed by `close` or after the process has ended.

    Args:
        purpose: A part of the folder's name that shows its purpose.
    """

    def __init__(self, purpose: str) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
            self._lock = _locked(self.path / _LOCK_NAME, create=True)
            # Another process may have removed the folder as abandoned before it was locked.
            if self._lock is not None and (self.path / _LOCK_NAME).exists():
                return
            self.close()
        # Locks do not work here. Without a lock file, no process treats the folder as abandoned.
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder. A second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(parent: Path) -> None:
    """Remove the folders of processes that have ended. Never raises."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and _is_mine(entry):
                lock = _locked(Path(entry.path) / _LOCK_NAME, create=False)
                if lock is not None:
                    shutil.rmtree(entry.path, ignore_errors=True)
                    os.close(lock)


def _is_mine(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is this user's folder. In a shared folder, others can use any name."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return stat.S_ISDIR(status.st_mode) and is_own


def _locked(path: Path, *, create: bool) -> int | None:
    """A descriptor that holds the lock of a folder; None if another process holds it.

    The lock belongs to the open file, not to a process id. So it works across containers that share
    a folder, and process ids can be reused.
    """
    if sys.platform == "win32":
        return None  # Windows has no such locks, so folders of killed processes remain.
    import fcntl

    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
