"""The examples run as they are, and print what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PRINTED = {
    "append_stream.py": [
        "rows appended: 100000",
        "files, one for each day: 5",
        "already committed: True",
        "snapshots: 1",
    ],
    "merge_changes.py": [
        "updated: 1",
        "inserted: 1",
        "deleted: 1",
        "order 1: shipped",
        "order 2: placed",
        "order 4: placed",
    ],
    "overwrite_partitions.py": [
        "first load: [100, 200, 300]",
        "2 January again: [100, 250, 300]",
        "high revenue again: [100, 250, 350]",
    ],
    "parallel_processes.py": ["splits: 4", "total price: 199980000"],
    "polars_and_duckdb.py": [
        "Polars: north 20000",
        "Polars: south 20000",
        "DuckDB: north 200000",
        "DuckDB: south 250000",
    ],
    "run_pipeline.py": [
        "2026-01-01 orders: done",
        "2026-01-01 daily: done",
        "2026-01-02 orders: done",
        "2026-01-02 daily: done",
        "2026-01-01 revenue: 30",
        "2026-01-02 revenue: 30",
    ],
    "scan_in_a_limit.py": [
        "total price: 18625000",
        "rows: 250000",
        "inside the limit: True",
    ],
    "table_upkeep.py": [
        "files before: 10, small: 10",
        "compacted: 10 files into 1",
        "files after: 1",
        "orphans deleted: ['left-behind.parquet']",
    ],
    "whole_results.py": [
        "rows: 1000",
        "first price: 0",
        "highest price: 999",
        "by region: {'north': 249500, 'south': 250000}",
        "average: 499.5",
        "rows in the north: 50000",
        "rows with the limit that the error names: 100000",
    ],
}
ON_SPARK = ["spark_read.py", "spark_sql.py"]


def _run(folder: Path, name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    printed = _run(tmp_path, name).splitlines()
    assert [line for line in printed if not line.startswith("advice: ")] == PRINTED[name]
    assert not list(tmp_path.iterdir())


@pytest.mark.soak  # a Spark of its own
def test_the_spark_example_totals_a_table(tmp_path: Path) -> None:
    shown = _run(tmp_path, "spark_read.py")
    assert [line.split()[0] for line in shown.splitlines()] == ["east", "north", "south", "west"]


@pytest.mark.soak  # a Spark of its own
def test_the_sql_example_changes_a_table(tmp_path: Path) -> None:
    assert _run(tmp_path, "spark_sql.py").splitlines() == [
        "inserted: 1000",
        "updated: 10, inserted: 10",
        "rows: 1010, highest price: 98.9",
        "rows: 1000, highest price: 99.9",
        "snapshots: 2",
    ]


def test_every_example_is_tested_and_in_the_list() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    assert scripts == {*PRINTED, *ON_SPARK}
    listed = re.findall(r"^\| \[([\w.]+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert set(listed) == scripts
