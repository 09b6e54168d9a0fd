"""Spark's Python workers on this machine, and how much memory they take."""

from __future__ import annotations

import os
from pathlib import Path

_PROCESSES = Path("/proc")


def worker_pids() -> list[int]:
    """The workers below this process, the daemon that forks them too; none without a /proc."""
    children: dict[int, list[int]] = {}
    for entry in _PROCESSES.iterdir() if _PROCESSES.is_dir() else ():
        if not entry.name.isdigit():
            continue
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # it has just ended
            continue
        children.setdefault(int(parent), []).append(int(entry.name))
    below = list(children.get(os.getpid(), ()))
    for pid in below:
        below += children.get(pid, ())
    return [pid for pid in below if _is_worker(pid)]


def _is_worker(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in (_PROCESSES / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False
