"""Progress of a load on Spark: tasks that have ended, rows read, and the memory of workers."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from icestream.memory.machine import resident_bytes
from icestream.pipeline.reports.load_progress import LoadProgress
from icestream.spark.setup.installed import is_classic, pyspark_module

_SECONDS = 0.25
_PROCESSES = Path("/proc")


@dataclass(frozen=True, slots=True)
class CountRows:
    """Reports the number of rows of a part of a source, in a task.

    Attributes:
        counts: The accumulator of `make_counts`.
        source: The number of the source.
    """

    counts: Any
    source: int

    def __call__(self, part: int, rows: int) -> None:
        """Report a part that was read."""
        self.counts.add({(self.source, part): rows})


def make_counts(spark: Any) -> Any:
    """An accumulator that counts each part once, even if it is read twice. None on Connect."""
    if not is_classic(spark):
        return None
    base: Any = pyspark_module("pyspark.accumulators").AccumulatorParam

    class _Union(base):  # type: ignore[misc]
        def zero(self, value: dict[Any, int]) -> dict[Any, int]:
            return {}

        def addInPlace(self, one: dict[Any, int], other: dict[Any, int]) -> dict[Any, int]:  # noqa: N802
            one.update(other)
            return one

    return spark.sparkContext.accumulator({}, _Union())


class SparkWatch:
    """Watches a session from a thread, until the block ends.

    Args:
        spark: The session.
        progress: Updated by the thread.
        counts: The accumulator of row counts, if there is one.
        native_rows: Number of rows that Spark's own readers read.

    Attributes:
        peak_worker_bytes: Peak resident size of a Python worker on this machine; None if unknown,
            or if the workers run on other machines.
    """

    def __init__(
        self, spark: Any, progress: LoadProgress, counts: Any, native_rows: int = 0
    ) -> None:
        self._context = getattr(spark, "sparkContext", None) if is_classic(spark) else None
        self._progress = progress
        self._counts = counts
        self._native_rows = native_rows
        self._stages: dict[int, int] = {}  # rows by stage number
        self._active: set[int] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="icestream-spark-watch", daemon=True)
        self._is_local = self._context is not None and str(self._context.master).startswith("local")
        self.peak_worker_bytes: int | None = None

    def __enter__(self) -> SparkWatch:
        if self._context is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._context is not None:
            self._thread.join()
            if error is None:
                self._try_to_look()

    def _run(self) -> None:
        while not self._ended.wait(_SECONDS):
            self._try_to_look()

    def _try_to_look(self) -> None:
        with contextlib.suppress(Exception):  # the load must not fail if Spark does not answer
            self._look()

    def _native(self, numbers: Iterable[int]) -> int:
        """The number of rows that Spark's stages have read so far."""
        assert self._context is not None
        store = self._context._jsc.sc().statusStore()
        watched, self._active = {*numbers, *self._active}, set(numbers)  # also those just ended
        for number in watched:
            stage = store.lastStageAttempt(number)
            # A stage that reads no bytes generates its rows.
            self._stages[number] = stage.inputRecords() if stage.inputBytes() else 0
        return sum(self._stages.values())

    def _look(self) -> None:
        assert self._context is not None
        tracker = self._context.statusTracker()
        numbers = tracker.getActiveStageIds()
        stages = [tracker.getStageInfo(number) for number in numbers]
        running = [stage for stage in stages if stage is not None]
        if running:
            self._progress.tasks = sum(stage.numCompletedTasks for stage in running)
            self._progress.tasks_total = sum(stage.numTasks for stage in running)
        rows = sum(self._counts.value.values()) if self._counts is not None else 0
        if self._native_rows:
            rows += min(self._native(numbers), self._native_rows)
        self._progress.rows = rows
        if self._is_local:
            peaks = [size for pid in worker_pids() if (size := resident_bytes(pid, "VmHWM"))]
            if peaks:
                self.peak_worker_bytes = max(*peaks, self.peak_worker_bytes or 0)
                self._progress.worker_bytes = self.peak_worker_bytes


def worker_pids() -> list[int]:
    """The Python workers of Spark below this process and the daemon that forks them, from /proc."""
    children: dict[int, list[int]] = {}
    for entry in _PROCESSES.iterdir() if _PROCESSES.is_dir() else ():
        if not entry.name.isdigit():
            continue
        try:
            parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # the process has just ended
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
