"""A memory cgroup (version 1 or 2): a hard limit for processes, like a container's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VERSION_1 = Path("/sys/fs/cgroup/memory")
_VERSION_2 = Path("/sys/fs/cgroup")


class MemoryGroup:
    """A cgroup that a child process joins before it runs anything else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_first = folder.parent == _VERSION_1

    def join(self) -> None:
        """Move the calling process into the group. Pass it as `preexec_fn`."""
        (self._folder / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, limit_bytes: int) -> None:
        """Set the limit for memory and swap together."""
        if not self._is_first:
            (self._folder / "memory.max").write_text(str(limit_bytes))
            swap = self._folder / "memory.swap.max"
            if swap.exists():
                swap.write_text("0")
            return
        (self._folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        swap = self._folder / "memory.memsw.limit_in_bytes"
        if swap.exists():
            swap.write_text(str(limit_bytes))

    def processes(self) -> list[int]:
        """Return the ids of the processes in the group."""
        return [int(line) for line in (self._folder / "cgroup.procs").read_text().split()]

    def peak_bytes(self) -> int:
        """Return the peak of the group, including its page cache."""
        name = "memory.max_usage_in_bytes" if self._is_first else "memory.peak"
        return int((self._folder / name).read_text())

    def process_bytes(self) -> int:
        """Return the memory of the processes now, without the page cache."""
        return self._number("memory.stat", "rss" if self._is_first else "anon")

    def kills(self) -> int:
        """Return how many processes the kernel has killed at the limit."""
        return self._number("memory.oom_control" if self._is_first else "memory.events", "oom_kill")

    def _number(self, file: str, name: str) -> int:
        for line in (self._folder / file).read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
        return 0


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[MemoryGroup]:
    """Create a group with a hard limit, and remove it afterwards.

    Raises:
        OSError: If no memory cgroup is mounted, or the user may not create one.
    """
    folder = _hierarchy() / f"icestream-bench-{os.getpid()}"
    folder.mkdir()
    try:
        group = MemoryGroup(folder)
        group.limit(limit_bytes)
        yield group
    finally:
        _remove(folder)


def _hierarchy() -> Path:
    if (_VERSION_1 / "memory.limit_in_bytes").exists():
        return _VERSION_1
    controllers = _VERSION_2 / "cgroup.subtree_control"
    if controllers.exists() and "memory" in controllers.read_text().split():
        return _VERSION_2
    raise FileNotFoundError(f"no memory cgroup at {_VERSION_1} or {_VERSION_2}")


def _remove(folder: Path) -> None:
    # The kernel refuses until the last process is reaped.
    for _ in range(50):
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.1)
    folder.rmdir()
