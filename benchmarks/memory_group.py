"""A memory cgroup (version 1): a hard limit on a process, as a container has."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HIERARCHY = Path("/sys/fs/cgroup/memory")


class MemoryGroup:
    """A cgroup that a child process joins before it runs anything else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def join(self) -> None:
        """Move the calling process into the group; for `preexec_fn`."""
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak_bytes(self) -> int:
        """Return the most that the group used, the page cache of its reads included."""
        return int((self._folder / "memory.max_usage_in_bytes").read_text())


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """Make a group with a hard limit and remove it afterwards.

    Raises:
        OSError: No version 1 memory hierarchy is mounted, or the user may not write to it.
    """
    if not (_HIERARCHY / "memory.limit_in_bytes").exists():
        raise FileNotFoundError(f"no version 1 memory cgroup at {_HIERARCHY}")
    folder = _HIERARCHY / f"icestream-bench-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield MemoryGroup(folder)
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    # The kernel refuses while the last process is still being reaped.
    for _ in range(50):
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.1)
    folder.rmdir()
