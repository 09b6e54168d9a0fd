"""Temporary folders that do not outlive a killed process for long.

A process that is killed (`kill -9`, out of memory) can't clean up. Its folder holds a lock that the
kernel takes back, and the next process that needs a folder removes those whose lock is free.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from types import TracebackType

_PREFIX = "icestream-"
_LOCK_NAME = ".owner"
_TRIES = 3


class ScratchFolder:
    """A private folder for temporary files, which goes with `close`, or after the process.

    Args:
        purpose: Part of its name, for people who look into the folder of temporary files.
    """

    def __init__(self, purpose: str) -> None:
        remove_abandoned(Path(tempfile.gettempdir()))
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
            self._lock = _locked(self.path / _LOCK_NAME, create=True)
            # Another process may have taken the folder for an abandoned one before it was locked.
            if self._lock is not None and (self.path / _LOCK_NAME).exists():
                return
            self.close()
        # There are no locks here. Without the file nobody takes the folder for an abandoned one.
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder. A second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(parent: Path) -> None:
    """Remove folders whose processes have ended. Never raises."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and _is_mine(entry):
                _remove_if_abandoned(Path(entry.path))


def _is_mine(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder of this user: others can make any name in a shared folder."""
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    is_own = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return stat.S_ISDIR(found.st_mode) and is_own


def _remove_if_abandoned(folder: Path) -> None:
    lock = _locked(folder / _LOCK_NAME, create=False)
    if lock is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(path: Path, *, create: bool) -> int | None:
    """A descriptor that holds the lock of a folder; None if another process does.

    The lock is of the open file, not of a process number: it works across containers that share a
    folder, and a number that is used again means nothing.
    """
    if sys.platform == "win32":
        return None  # such locks are not to be had, so folders of killed processes stay
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
