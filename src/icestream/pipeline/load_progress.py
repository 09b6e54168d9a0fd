"""How far a load is: kept up to date by it, and looked at by whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass

from icestream.memory import MemoryBudget


@dataclass(slots=True)
class LoadProgress:
    """Counts of a load that runs. Other threads may read them.

    Attributes:
        stage: What is being done.
        rows: Rows read so far.
        bytes: Bytes of the files read so far.
        files: Files begun so far.
        files_total: Files that there are; None where not known.
        tasks: Tasks of Spark that have ended.
        tasks_total: Tasks that there are.
        budget: What the load draws from, in this process.
        limit_bytes: The limit; on Spark it is each task's.
        worker_bytes: The largest resident size of a Python worker of Spark; None if not known.
        worker_base_bytes: What a worker takes before its work; known once a job has ended.
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
        """What the load holds of its limit now; None where that is not known."""
        return None if self.budget is None else self.budget.held_bytes

    def begin(self, files_total: int | None, *, budget: MemoryBudget | None) -> None:
        """A load begins to read."""
        self.rows = self.bytes = self.files = 0
        self.tasks = self.tasks_total = None
        self.files_total = files_total
        self.budget = budget
        self.limit_bytes = budget.limit_bytes if budget is not None else self.limit_bytes
        self.stage = "loading"
