"""Runs cases, each in a fresh process of the right environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.baseline import REPOSITORY, engine_label, source_folder
from benchmarks.engines import ENGINES
from benchmarks.results import Result
from benchmarks.tables import load_table, local_path

PEERS_PYTHON = REPOSITORY / ".venv-peers" / "bin" / "python"
TIMEOUT_SECONDS = 1800


def warm(root: Path, table_name: str) -> None:
    """Read a table's files once, so that no engine pays for a cold page cache."""
    for task in load_table(root, table_name).scan().plan_files():
        with local_path(task.file.file_path).open("rb", buffering=0) as file:
            while file.read(16 << 20):
                pass


class CaseError(Exception):
    """A case that came to nothing; the message says how."""


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
        module: As in `python -m`.
        case: A dataclass; the process gets it as JSON. If it names a commit as its
            `baseline`, icestream is taken from there.
        is_peer: Whether it runs in the peers' environment.
        python: Another Python than this one, with packages of its own.
        join_group: Called in the new process before anything else.

    Raises:
        CaseError: If it fails, is killed or does not end.
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
        raise CaseError(f"no end after {TIMEOUT_SECONDS} s") from None
    if done.returncode < 0:
        raise CaseError(f"killed by signal {-done.returncode}")
    if done.returncode > 0:
        raise CaseError((done.stderr.strip().splitlines() or ["no message"])[-1][:100])
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def run_once(
    result: Result, expected_rows: int, join_group: Callable[[], None] | None = None
) -> None:
    """Run a result's case once more and add the figures, or the error, to the result."""
    if result.error:
        return
    is_peer = ENGINES[result.case.engine].is_peer
    try:
        figures = run_module("benchmarks.case", result.case, is_peer=is_peer, join_group=join_group)
    except CaseError as error:
        result.error = str(error)
        return
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
                f"  {case.dataset} {engine_label(case.engine, case.baseline)} {case.memory or ''} "
                f"{case.order} ({round_number}/{repeat}): {result.error or 'done'}",
                file=sys.stderr,
                flush=True,
            )
