"""Progress and timing of a running load."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from icestream.errors import InvalidArgumentError
from icestream.memory.budget import MemoryBudget


@dataclass(slots=True)
class LoadProgress:
    """Counts that a load updates while it runs. Other threads may read them.

    Attributes:
        stage: The current stage.
        rows: Rows read so far.
        bytes: Bytes of files read so far.
        files: Files started so far.
        files_total: Total number of files; None if unknown.
        tasks: Number of Spark tasks that have ended.
        tasks_total: Total number of Spark tasks.
        budget: The memory budget of a load in this process.
        limit_bytes: The memory limit; on Spark, the limit of each task.
        worker_bytes: Peak resident size of a Python worker of Spark; None if unknown.
        worker_base_bytes: Size of a worker before its work; known once a job has ended.
    """

    stage: str = "opening"
    rows: int = 0
    bytes: int = 0
    files: int = 0
    files_total: int | None = None
    tasks: int | None = None
    tasks_total: int | None = None
    budget: MemoryBudget | None = None
    limit_bytes: int | None = None
    worker_bytes: int | None = None
    worker_base_bytes: int | None = None

    @property
    def bytes_held(self) -> int | None:
        """Bytes that the load holds now; None if unknown."""
        return None if self.budget is None else self.budget.held_bytes

    def begin(self, files_total: int | None, *, budget: MemoryBudget | None) -> None:
        """Reset the counts when a load starts to read."""
        self.rows = self.bytes = self.files = 0
        self.tasks = self.tasks_total = None
        self.files_total = files_total
        self.budget = budget
        self.limit_bytes = budget.limit_bytes if budget is not None else self.limit_bytes
        self.stage = "loading"


def checked_progress(progress: object) -> LoadProgress:
    """The object that a load updates: the given one, or a new one.

    Raises:
        InvalidArgumentError: If it is something else, such as True.
    """
    if progress is not None and not isinstance(progress, LoadProgress):
        raise InvalidArgumentError(
            f"progress is {progress!r}: pass an icestream.LoadProgress(), or in a notebook "
            "icestream.integrations.notebook.NotebookProgress()"
        )
    return LoadProgress() if progress is None else progress


class Stages:
    """Seconds spent in each stage, in the order in which the stages started."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block. The times of blocks with the same name are added."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - began)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a stage."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @property
    def total(self) -> float:
        """Seconds since this object was created."""
        return time.monotonic() - self._began


def peak_process_bytes() -> int:
    """Peak resident size of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
