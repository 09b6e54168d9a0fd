"""The examples run as they are."""

from __future__ import annotations

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


@pytest.mark.slow  # a Spark of its own
def test_the_spark_example_totals_a_table(tmp_path: Path) -> None:
    shown = _run(tmp_path, "spark_read.py")
    assert [line.split()[0] for line in shown.splitlines()] == ["east", "north", "south", "west"]
