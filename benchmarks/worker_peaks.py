"""How much Spark's Python workers grow: peak resident memory beyond what their imports take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from icestream.machine import resident_bytes
from icestream.pipeline.spark_workers import worker_pids


class WorkerMeter:
    """Measures the workers of a session on this machine; the daemon that forks them among them.

    Args:
        spark: A session whose JVM this process has started.
        imports: Runs a small job that has workers import everything.
    """

    def __init__(self, spark: Any, imports: Any) -> None:
        self._spark = spark
        imports()
        self._base = max((resident_bytes(pid, "VmRSS") or 0 for pid in worker_pids()), default=0)

    def start(self) -> None:
        """Forget the peaks so far."""
        for pid in worker_pids():
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # sets VmHWM back to the present size

    def growth_bytes(self) -> int:
        """What the worker that grew most has taken beyond its imports, since `start`."""
        peaks = (resident_bytes(pid, "VmHWM") or 0 for pid in worker_pids())
        return max(0, max(peaks, default=0) - self._base)
