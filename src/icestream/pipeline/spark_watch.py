"""What a load on Spark looks like while it runs: tasks that have ended, and workers' memory."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from icestream.machine import resident_bytes
from icestream.pipeline.load_progress import LoadProgress
from icestream.pipeline.spark_workers import worker_pids
from icestream.spark.installed import is_classic

_SECONDS = 0.25


class SparkWatch:
    """Looks at a session from a thread, until the block ends.

    Args:
        spark: The session.
        progress: Kept up to date.
        counts: The accumulator of rows, where there is one.
        native_rows: How many rows Spark reads by itself, without our tasks.

    Attributes:
        peak_worker_bytes: The largest resident size of a Python worker on this machine; None if
            workers are elsewhere, or the system does not tell.
    """

    def __init__(
        self, spark: Any, progress: LoadProgress, counts: Any, native_rows: int = 0
    ) -> None:
        self._context = getattr(spark, "sparkContext", None) if is_classic(spark) else None
        self._progress = progress
        self._counts = counts
        self._native_rows = native_rows
        self._stages: dict[int, int] = {}  # rows by the stage's number
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
        with contextlib.suppress(Exception):  # it is no reason to fail if Spark does not tell
            self._look()

    def _native(self, numbers: Iterable[int]) -> int:
        """How many rows Spark says that all stages so far have read."""
        assert self._context is not None
        store = self._context._jsc.sc().statusStore()
        asked, self._active = {*numbers, *self._active}, set(numbers)  # those that have just ended
        for number in asked:
            stage = store.lastStageAttempt(number)
            # A stage that reads no bytes has made its rows.
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
