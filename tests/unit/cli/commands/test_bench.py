"""`icestream bench`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from unittest import mock

from tests.unit.cli.conftest import Run


def test_bench_runs_a_suite_of_the_repository(run: Run, folder: Path) -> None:
    done = subprocess.CompletedProcess([], 0)
    with mock.patch("icestream.cli.commands.bench.subprocess.run", return_value=done) as called:
        shown = run("bench", "merge", "--quick")
    assert shown.exit_code == 0, shown.stderr
    assert called.call_args.args[0][1:] == ["-m", "benchmarks.merge", "--quick"]
    assert (called.call_args.kwargs["cwd"] / "benchmarks" / "merge.py").exists()
    assert shown.stdout.startswith("bench merge took ")


def test_bench_fails_as_the_suite_does_and_its_json_says_so(run: Run, folder: Path) -> None:
    done = subprocess.CompletedProcess([], 3)
    with mock.patch("icestream.cli.commands.bench.subprocess.run", return_value=done):
        shown = run("bench", "read", "--quick", "--json")
    assert shown.exit_code == 3
    assert '"exit_code": 3' in shown.stdout


def test_bench_says_where_benchmarks_are_when_they_are_not_here(run: Run, folder: Path) -> None:
    with mock.patch("icestream.cli.commands.bench.__file__", str(folder / "a/b/c/d/e.py")):
        shown = run("bench", "read")
    assert shown.exit_code == 9
    assert "Clone it" in shown.stderr
