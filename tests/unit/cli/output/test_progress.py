"""Progress: plain lines where there is no terminal, and nothing when quiet."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.table import Table

from icestream.cli.output import progress
from icestream.cli.output.progress import Counts, Progress
from icestream.memory.budget import MemoryBudget
from tests.unit.cli.conftest import Run


def test_a_line_says_rows_bytes_files_and_memory_against_the_limit() -> None:
    budget = MemoryBudget("64MB")
    lease = budget.force(41_000_000)
    shown = Progress("scan db.t", lambda: Counts(1200, 9_600_000, 3, 10, "reading"), budget)
    pattern = (
        r"scan db\.t, reading: \[==        \] file 3 of 10, 1,200 rows, [\d,]+/s, "
        r"holds 41 MB of 64 MB, 9\.6 MB, .*s"
    )
    assert re.fullmatch(pattern, shown.line())
    lease.release()


def test_a_line_says_only_what_is_known_and_draws_no_full_bar() -> None:
    def shown(**counts: Any) -> str:
        return re.sub(r"[:,] [\d.]+ m?s$", "", Progress("load", lambda: Counts(**counts)).line())

    assert shown(stage="starting Spark", rows=0) == "load, starting Spark"
    assert shown(rows=0, files=1, files_total=1) == "load: file 1 of 1"
    assert shown(files=2, files_total=2) == "load: [=====     ] file 2 of 2"
    assert shown(tasks=0, tasks_total=4) == "load: [          ] 0 of 4 tasks"


def test_the_memory_of_a_worker_is_shown_against_its_base_and_the_limit() -> None:
    counts = Counts(limit_bytes=256_000_000, worker_bytes=162_300_000)
    assert "worker 162 of base + 256 MB" in Progress("load", lambda: counts).line()
    known = replace(counts, worker_base_bytes=57_400_000)
    assert "worker 162 of 57.4 + 256 MB" in Progress("load", lambda: known).line()


@pytest.mark.parametrize("width", [200, 80, 60, 30])
def test_a_line_fits_the_terminal(width: int) -> None:
    counts = Counts(
        rows=123_456_789, bytes=5_000_000_000, tasks=3, tasks_total=40, limit_bytes=256_000_000,
        worker_bytes=162_300_000, worker_base_bytes=157_400_000,
    )  # fmt: skip
    line = Progress("load into shop.orders", lambda: counts).line(width)
    assert len(line) <= width
    assert line.startswith("load into shop.orders")
    if width >= 80:
        assert "123,456,789 rows, " in line
        assert "worker 162 of 157 + 256 MB" in line


def test_lines_come_again_and_again_until_the_work_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.001)
    calls = 0

    def counts() -> Counts:
        nonlocal calls
        calls += 1
        return Counts(rows=calls)

    with Progress("work", counts):
        while calls < 3:
            pass
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 3
    assert lines[0].startswith("icestream: work: 1 row,")


def test_nothing_is_shown_when_quiet(
    orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0001)
    shown = run("scan", "shop.orders", "-o", "out.parquet", "-q")
    assert shown.exit_code == 0
    assert shown.stderr == ""


def _wait_for_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands end only after their first line: they may be faster than the thread."""
    written = threading.Event()
    line, leave = progress.Progress.line, progress.Progress.__exit__

    def write(self: progress.Progress, width: int | None = None) -> str:
        written.set()
        return line(self, width)

    def wait(self: progress.Progress, *error: object) -> None:
        assert written.wait(60)
        leave(self, *error)

    monkeypatch.setattr(progress.Progress, "line", write)
    monkeypatch.setattr(progress.Progress, "__exit__", wait)


@pytest.mark.parametrize(
    "arguments",
    [
        ("scan", "shop.orders", "-o", "out.parquet"),
        ("merge", "changes.csv", "--into", "shop.orders", "--on", "id"),
        ("compact", "shop.orders"),
        ("delete", "shop.orders", "--where", "id < 5"),
        ("orphans", "shop.orders"),
    ],
)
def test_each_command_that_works_for_long_shows_how_far_it_is(
    orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0001)
    _wait_for_a_line(monkeypatch)
    shown = run(*arguments)
    assert shown.exit_code == 0, shown.stderr
    lines = [line for line in shown.stderr.splitlines() if "no catalog" not in line]
    assert lines[0].startswith(f"icestream: {arguments[0]}")
