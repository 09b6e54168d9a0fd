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

from icestream.cli.output.text import seconds, size
from icestream.report.counted import counted

if TYPE_CHECKING:
    from rich.progress import Progress as Live

    from icestream.memory.budget import MemoryBudget

LIVE_SECONDS = 0.2
PLAIN_SECONDS = 5.0
_BAR_WIDTH = 10


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
        self._live_lines: Live | None = None
        self._width = 80
        self._task: Any = None

    def __enter__(self) -> Progress:
        if not self._shown:
            return self
        self._started = time.monotonic()
        if self._live:
            self._start_live()
        self._thread = threading.Thread(target=self._run, name="icestream-progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._live_lines is not None:
            self._draw(self._live_lines)  # also if the work took less than one interval
            self._live_lines.stop()

    def line(self, width: int | None = None) -> str:
        """Format what is known about the progress as one line.

        Args:
            width: Maximum number of characters. The least important parts are left out.
        """
        counts, elapsed = self._counts(), time.monotonic() - self._started
        stage = f", {counts.stage}" if counts.stage not in (None, "loading") else ""
        head, parts = f"{self._what}{stage}", self._parts(counts, elapsed)
        while width is not None and parts and len(_joined(head, parts)) > width:
            parts.remove(max(parts))
        line = _joined(head, parts)
        return line if width is None or len(line) <= width else f"{line[: width - 1]}…"

    def _parts(self, counts: Counts, elapsed: float) -> list[tuple[int, int, str]]:
        """The parts of the line: how expendable each is, its place, and its text."""
        texts: list[tuple[int, str | None]] = [
            (3, _done(counts)),
            (2, counted(counts.rows, "row") if counts.rows else None),
            (6, f"{counts.rows / elapsed:,.0f}/s" if counts.rows and elapsed > 0 else None),
            (1, self._memory(counts)),
            (5, size(counts.bytes) if counts.bytes else None),
            (4, seconds(elapsed)),
        ]
        return [(rank, place, text) for place, (rank, text) in enumerate(texts) if text]

    def _memory(self, counts: Counts) -> str | None:
        if self._budget is not None:
            return f"holds {size(self._budget.held_bytes)} of {size(self._budget.limit_bytes)}"
        return None if counts.limit_bytes is None else _task_memory(counts)

    def _start_live(self) -> None:
        from rich.console import Console
        from rich.progress import Progress as Live
        from rich.progress import SpinnerColumn, TextColumn

        console = Console(stderr=True)
        # A spinner and a space precede the line, and the last column stays free.
        self._width = max(20, console.width - 3)
        self._live_lines = Live(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
            auto_refresh=False,
        )
        self._task = self._live_lines.add_task(self._what, total=None)
        self._live_lines.start()

    def _run(self) -> None:
        wait = LIVE_SECONDS if self._live else PLAIN_SECONDS
        while not self._ended.wait(wait):
            if self._live_lines is None:
                click.echo(f"icestream: {self.line()}", err=True)
            else:
                self._draw(self._live_lines)

    def _draw(self, live: Live) -> None:
        live.update(self._task, description=self.line(self._width))
        live.refresh()


def _joined(head: str, parts: list[tuple[int, int, str]]) -> str:
    return f"{head}: {', '.join(text for _, _, text in parts)}" if parts else head


def _done(counts: Counts) -> str | None:
    """What part of the work is done: as a bar and a number, if the whole is known."""
    if counts.tasks_total is not None:
        done = counts.tasks or 0
        bar = _bar(done, counts.tasks_total)
        return f"{bar}{done:,} of {counted(counts.tasks_total, 'task')}"
    if not counts.files:
        return None
    if not counts.files_total:
        return counted(counts.files, "file")
    # The file that was started last is not done.
    bar = _bar(counts.files - 1, counts.files_total)
    return f"{bar}file {counts.files:,} of {counts.files_total:,}"


def _bar(done: int, total: int) -> str:
    if total < 2:
        return ""  # it could only be empty or full
    full = min(_BAR_WIDTH, _BAR_WIDTH * done // total)
    return f"[{'=' * full}{' ' * (_BAR_WIDTH - full)}] "


def _task_memory(counts: Counts) -> str:
    limit = size(counts.limit_bytes or 0)
    if counts.held_bytes is not None:
        return f"holds {size(counts.held_bytes)} of {limit}"
    if counts.worker_bytes is None:
        return f"limit {limit} per task"
    base = f"{_megabytes(counts.worker_base_bytes)}" if counts.worker_base_bytes else "base"
    limit = _megabytes(counts.limit_bytes or 0)
    return f"worker {_megabytes(counts.worker_bytes)} of {base} + {limit} MB"


def _megabytes(count: int) -> str:
    return f"{count / 10**6:.3g}" if count < 10**8 else f"{count / 10**6:.0f}"
