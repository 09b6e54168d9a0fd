"""Progress: plain lines where there is no terminal, and nothing when quiet."""

from __future__ import annotations

import re

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
        r"scan db\.t, reading: 1,200 rows \([\d,]+/s\), holds 41 MB of 64 MB, "
        r"3 of 10 files, 9\.6 MB, .*s"
    )
    assert re.fullmatch(pattern, shown.line())
    lease.release()


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
    assert lines[0].startswith("icestream: work: 1 rows")


def test_nothing_is_shown_when_quiet(
    orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0001)
    shown = run("scan", "shop.orders", "-o", "out.parquet", "-q")
    assert shown.exit_code == 0
    assert shown.stderr == ""


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
    shown = run(*arguments)
    assert shown.exit_code == 0, shown.stderr
    lines = [line for line in shown.stderr.splitlines() if "no catalog" not in line]
    assert lines[0].startswith(f"icestream: {arguments[0]}")
