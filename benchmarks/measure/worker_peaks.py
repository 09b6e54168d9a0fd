"""Measures how much the memory of Spark's Python workers grows beyond their imports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from icestream.memory.machine import resident_bytes
from icestream.pipeline.engines.spark_watch import worker_pids


class WorkerMeter:
    """Measures the Spark workers on this machine, and the daemon that forks them.

    Args:
        imports: Runs a small job in which workers import everything.
    """

    def __init__(self, imports: Callable[[], object]) -> None:
        imports()
        self._base = max((resident_bytes(pid, "VmRSS") or 0 for pid in worker_pids()), default=0)

    def start(self) -> None:
        """Reset the peaks."""
        for pid in worker_pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # sets VmHWM to the current size

    def growth_bytes(self) -> int:
        """Return the largest growth of a worker beyond its imports, since `start`."""
        peaks = (resident_bytes(pid, "VmHWM") or 0 for pid in worker_pids())
        return max(0, max(peaks, default=0) - self._base)
