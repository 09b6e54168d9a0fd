"""Progress on stderr: a live line on a terminal, plain lines otherwise.

A thread prints the progress, so that the work does not wait for a terminal. It reads the memory
that the budget has given out, and calls a function of the command for `Counts`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.output.text import seconds, size, worker_text

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from icestream.memory.budget import MemoryBudget

LIVE_SECONDS = 0.2
PLAIN_SECONDS = 5.0
_MIN_WIDTH_FOR_BAR = 110


@dataclass(frozen=True, slots=True)
class Counts:
    """The progress of the work. None if a count is not known.

    Attributes:
        rows: Rows read or written.
        bytes: Their size in Arrow, or the size of their files.
        files: Files started.
        files_total: All files.
        stage: The current stage.
        tasks: Spark tasks that have ended.
        tasks_total: Spark tasks that are known so far.
        held_bytes: Bytes held of the limit, if there is no budget.
        limit_bytes: The limit. On Spark, the limit of each task.
        worker_bytes: Largest resident size of a Spark worker.
        worker_base_bytes: The part of it that a worker takes before its task starts.
    """

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    files_total: int | None = None
    stage: str | None = None
    tasks: int | None = None
    tasks_total: int | None = None
    held_bytes: int | None = None
    limit_bytes: int | None = None
    worker_bytes: int | None = None
    worker_base_bytes: int | None = None


class Progress:
    """Shows counts until the block ends.

    Args:
        what: Name of the work, such as `"scan db.t"`.
        counts: Returns the current counts. Another thread calls it repeatedly.
        budget: The budget of the work.
        shown: Whether to show anything.
    """

    def __init__(
        self,
        what: str,
        counts: Callable[[], Counts],
        budget: MemoryBudget | None = None,
        *,
        shown: bool = True,
    ) -> None:
        self._what = what
        self._counts = counts
        self._budget = budget
        self._shown = shown
        self._live = shown and sys.stderr.isatty()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._started = time.monotonic()
        self._bar: Bar | None = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if not self._shown:
            return self
        self._started = time.monotonic()
        if self._live:
            self._start_bar()
        self._thread = threading.Thread(target=self._run, name="icestream-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            self._draw(self._bar)  # also if the work took less than one interval
            self._bar.stop()

    def line(self) -> str:
        """Format the progress as one line. A narrow terminal cuts off its end."""
        counts, elapsed = self._counts(), time.monotonic() - self._started
        parts = []
        if counts.rows is not None:
            rate = counts.rows / elapsed if elapsed > 0 else 0
            parts.append(f"{counts.rows:,} rows ({rate:,.0f}/s)")
        if self._budget is not None:
            held, limit = self._budget.held_bytes, self._budget.limit_bytes
            parts.append(f"holds {size(held)} of {size(limit)}")
        elif counts.limit_bytes is not None:
            parts.append(_memory(counts))
        if counts.files is not None:
            total = "" if counts.files_total is None else f" of {counts.files_total:,}"
            parts.append(f"{counts.files:,}{total} files")
        if counts.tasks_total is not None:
            parts.append(f"{counts.tasks or 0:,} of {counts.tasks_total:,} tasks")
        if counts.bytes is not None:
            parts.append(size(counts.bytes))
        parts.append(seconds(elapsed))
        stage = f", {counts.stage}" if counts.stage else ""
        return f"{self._what}{stage}: {', '.join(parts)}"

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        self._bar = Bar(
            SpinnerColumn(),
            *([BarColumn(bar_width=20)] if console.width >= _MIN_WIDTH_FOR_BAR else []),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            auto_refresh=False,
        )
        self._task = self._bar.add_task(self._what, total=None)
        self._bar.start()

    def _run(self) -> None:
        wait = LIVE_SECONDS if self._live else PLAIN_SECONDS
        while not self._ended.wait(wait):
            if self._bar is None:
                click.echo(f"icestream: {self.line()}", err=True)
            else:
                self._draw(self._bar)

    def _draw(self, bar: Bar) -> None:
        counts = self._counts()
        bar.update(
            self._task,
            description=self.line(),
            completed=(counts.files if counts.tasks_total is None else counts.tasks) or 0,
            total=counts.files_total if counts.tasks_total is None else counts.tasks_total,
        )
        bar.refresh()


def _memory(counts: Counts) -> str:
    limit = size(counts.limit_bytes or 0)
    if counts.held_bytes is not None:
        return f"holds {size(counts.held_bytes)} of {limit}"
    if counts.worker_bytes is not None:
        return f"{limit} per task, " + worker_text(
            counts.worker_bytes, counts.worker_base_bytes, counts.limit_bytes or 0
        )
    return f"{limit} per task"
