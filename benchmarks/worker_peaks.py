"""How much Spark's Python workers grow: peak resident memory beyond what their imports take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class WorkerMeter:
    """Measures the workers of a session on this machine; the daemon that forks them among them.

    Args:
        spark: A session whose JVM this process has started.
        imports: Runs a small job that has workers import everything.
    """

    def __init__(self, spark: Any, imports: Any) -> None:
        self._spark = spark
        imports()
        self._base = max((_bytes(pid, "VmRSS") for pid in _workers()), default=0)

    def start(self) -> None:
        """Forget the peaks so far."""
        for pid in _workers():
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # sets VmHWM back to the present size

    def growth_bytes(self) -> int:
        """What the worker that grew most has taken beyond its imports, since `start`."""
        peaks = (_bytes(pid, "VmHWM") for pid in _workers())
        return max(0, max(peaks, default=0) - self._base)


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _bytes(pid: int, name: str) -> int:
    try:
        return int(_status(pid).get(name, "0 kB").split()[0]) * 1024
    except OSError:  # it has just ended
        return 0


def _workers() -> Iterator[int]:
    """Spark's Python workers below this process."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(_status(int(folder.name))["PPid"])
            except (OSError, KeyError):
                continue
    for pid in parents:
        parent = pid
        while parent not in (0, os.getpid()):
            parent = parents.get(parent, 0)
        command = Path(f"/proc/{pid}/cmdline")
        if parent and command.exists() and b"pyspark.daemon" in command.read_bytes():
            yield pid
