"""The examples run as they are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _run(folder: Path, name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_reads_every_row_inside_its_limit_beside_pyiceberg(tmp_path: Path) -> None:
    shown = _run(tmp_path, "demo.py", "--rows", "1000000", "--without-spark")
    peaks = dict(re.findall(r"(icestream|pyiceberg) +peak memory (\d+) MB", shown))
    assert int(peaks["icestream"]) <= 64
    assert int(peaks["icestream"]) < int(peaks["pyiceberg"])


def test_the_spark_example_totals_a_table(tmp_path: Path) -> None:
    shown = _run(tmp_path, "spark_read.py")
    assert [line.split()[0] for line in shown.splitlines()] == ["east", "north", "south", "west"]


@pytest.mark.slow
def test_the_whole_demo_ends_with_a_spark_aggregate(tmp_path: Path) -> None:
    assert "10 countries, 1,000,000 orders" in _run(tmp_path, "demo.py", "--rows", "1000000")
