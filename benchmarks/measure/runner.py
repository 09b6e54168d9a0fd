"""Runs each case in a fresh process, in the environment of its engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.cases.engines import ENGINES
from benchmarks.data.tables import load_table, local_path
from benchmarks.measure.baseline import REPOSITORY, engine_label, source_folder
from benchmarks.measure.results import Result

PEERS_PYTHON = REPOSITORY / ".venv-peers" / "bin" / "python"
TIMEOUT_SECONDS = 1800


def warm(root: Path, table_name: str) -> None:
    """Read the files of a table, so that they are in the page cache for all engines."""
    for task in load_table(root, table_name).scan().plan_files():
        with local_path(task.file.file_path).open("rb", buffering=0) as file:
            while file.read(16 << 20):
                pass


class CaseError(Exception):
    """A case failed. The message says why."""


def run_module(
    module: str,
    case: Any,
    *,
    is_peer: bool,
    python: Path | None = None,
    join_group: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Run a module on a case in a fresh process, and return the figures that it prints last.

    Args:
        module: Name of the module.
        case: A dataclass, which the process gets as JSON. If it has a commit as its `baseline`,
            the process uses icestream at that commit.
        is_peer: Whether to run in the environment of the other tools.
        python: Python of another environment.
        join_group: Function that the new process calls first.

    Raises:
        CaseError: If the process fails, is killed or does not end in time.
    """
    environment = dict(os.environ)
    if not is_peer:
        baseline = getattr(case, "baseline", None)
        source = source_folder(baseline) if baseline else REPOSITORY / "src"
        search = [str(source), environment.get("PYTHONPATH")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, search))
    python = python or (PEERS_PYTHON if is_peer else Path(sys.executable))
    try:
        done = subprocess.run(
            [str(python), "-m", module, json.dumps(asdict(case))],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            preexec_fn=join_group,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CaseError(f"did not end after {TIMEOUT_SECONDS} s") from None
    if done.returncode < 0:
        raise CaseError(f"killed by signal {-done.returncode}")
    if done.returncode > 0:
        raise CaseError((done.stderr.strip().splitlines() or ["no message"])[-1][:100])
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def run_once(
    result: Result, expected_rows: int, join_group: Callable[[], None] | None = None
) -> None:
    """Run the case of a result, and add the figures or the error to the result."""
    if result.error:
        return
    is_peer = ENGINES[result.case.engine].is_peer
    try:
        figures = run_module(
            "benchmarks.cases.read_case", result.case, is_peer=is_peer, join_group=join_group
        )
    except CaseError as error:
        result.error = str(error)
        return
    result.runs.append(figures)
    if figures["rows"] != expected_rows:
        result.error = f"returned {figures['rows']:,} rows instead of {expected_rows:,}"


def run_all(results: Iterable[Result], expected_rows: int, repeat: int) -> None:
    """Run all cases of a data set `repeat` times.

    The cases alternate, so that a slow minute of the machine affects all of them.
    """
    results = list(results)
    for round_number in range(1, repeat + 1):
        for result in results:
            run_once(result, expected_rows)
            case = result.case
            print(
                f"  {case.dataset} {engine_label(case.engine, case.baseline)} {case.memory or ''} "
                f"{case.order} ({round_number}/{repeat}): {result.error or 'done'}",
                file=sys.stderr,
                flush=True,
            )
