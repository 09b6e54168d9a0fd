"""Runs cases, each in a fresh process of the right environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from benchmarks.engines import ENGINES
from benchmarks.results import Result
from benchmarks.tables import load_table, local_path

REPOSITORY = Path(__file__).resolve().parent.parent
PEERS_PYTHON = REPOSITORY / ".venv-peers" / "bin" / "python"
TIMEOUT_SECONDS = 1800


def warm(root: Path, table_name: str) -> None:
    """Read a table's files once, so that no engine pays for a cold page cache."""
    for task in load_table(root, table_name).scan().plan_files():
        with local_path(task.file.file_path).open("rb", buffering=0) as file:
            while file.read(16 << 20):
                pass


def run_once(
    result: Result, expected_rows: int, join_group: Callable[[], None] | None = None
) -> None:
    """Run a result's case once more and add the figures, or the error, to the result."""
    if result.error:
        return
    case = result.case
    is_peer = ENGINES[case.engine].is_peer
    environment = dict(os.environ)
    if not is_peer:
        search = [str(REPOSITORY / "src"), environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, search))
    command = [
        str(PEERS_PYTHON if is_peer else sys.executable),
        "-m",
        "benchmarks.case",
        json.dumps(asdict(case)),
    ]
    try:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            preexec_fn=join_group,
            check=False,
        )
    except subprocess.TimeoutExpired:
        result.error = f"no end after {TIMEOUT_SECONDS} s"
        return
    if done.returncode < 0:
        result.error = f"killed by signal {-done.returncode}"
    elif done.returncode > 0:
        result.error = (done.stderr.strip().splitlines() or ["no message"])[-1]
    else:
        figures = json.loads(done.stdout.strip().splitlines()[-1])
        result.runs.append(figures)
        if figures["rows"] != expected_rows:
            result.error = f"gave {figures['rows']:,} rows instead of {expected_rows:,}"


def run_all(results: Iterable[Result], expected_rows: int, repeat: int) -> None:
    """Run all cases of one data set, one after the other, `repeat` times over.

    The repeats of a case are spread out, so that a slow minute of the machine hits all alike.
    """
    results = list(results)
    for round_number in range(1, repeat + 1):
        for result in results:
            run_once(result, expected_rows)
            case = result.case
            print(
                f"  {case.dataset} {case.engine} {case.memory or ''} {case.order} "
                f"({round_number}/{repeat}): {result.error or 'done'}",
                file=sys.stderr,
                flush=True,
            )
