"""Spark benchmarks: `python -m benchmarks.spark [--quick] [--cases ...]`, or `make bench-spark`.

Each case runs its engines in one warm session on two cores. The engines alternate, and the first
round does not count. "ratio" is relative to the first engine of the case. "growth" is the largest
growth of a Python worker beyond its imports. If Iceberg's Java runtime is installed (`make java`),
merges run in its environment, so that both engines use the same PySpark.

The cases `load-*` load files with `icestream load` (`--load-bytes` of each format). With
`--baseline`, icestream at another commit loads them, too. It runs in a session of its own, so the
sessions of both commits alternate. Their facts have the CPU seconds of the JVM and all Python
processes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.cases.spark_case import CASES, SparkCase
from benchmarks.cases.spark_load_case import CASES as LOADS
from benchmarks.cases.spark_load_case import SparkLoadCase
from benchmarks.datasets import ensure, table_name
from benchmarks.measure.baseline import commits, engine_label
from benchmarks.measure.results import machine, number, print_table
from benchmarks.measure.runner import REPOSITORY, CaseError, run_module

JAVA_PYTHON = REPOSITORY / ".venv-interop" / "bin" / "python"
MEMORY = "256MB"
QUICK_SCALE = 0.01
LOAD_BYTES = 1_000_000_000
SESSIONS = 2
HEADER = "case engine s ratio growth-MB facts"


def main() -> None:
    """Run the chosen cases, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use 1%% of the rows")
    parser.add_argument(
        "--cases", type=lambda text: text.split(","), default=[*CASES, *LOADS], help="cases to run"
    )
    parser.add_argument("--baseline", help="also run loads with icestream at this commit")
    parser.add_argument("--load-bytes", type=int, default=LOAD_BYTES, help="size of files to load")
    parser.add_argument("--repeat", type=int, default=3, help="number of runs")
    parser.add_argument("--memory", default=MEMORY, help="memory limit")
    parser.add_argument(
        "--root", type=Path, default=REPOSITORY / ".bench", help="folder for data and results"
    )
    options = parser.parse_args()
    scale = QUICK_SCALE if options.quick else 1.0
    if not set(options.cases) <= set(LOADS):
        for name in ("a", "b"):
            ensure(options.root, name, scale)
    suffix = table_name("", scale)
    rows, all_figures = [], {}
    for name in options.cases:
        try:
            done = _load(name, options, scale) if name in LOADS else _run(name, options, suffix)
        except CaseError as error:
            rows.append([name, "-", "-", "-", "-", str(error)])
            continue
        all_figures[name] = done
        shown = _rows(name, done["figures"][name])
        rows.extend(shown)
        for row in shown:
            print(" ", *row, flush=True)
    print_table(HEADER.split(), rows)
    folder = options.root / "results"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    facts = {"machine": machine(), "scale": scale, "memory": options.memory, "cases": all_figures}
    (folder / f"spark-{stamp}.json").write_text(json.dumps(facts, indent=2))


def _run(name: str, options: argparse.Namespace, suffix: str) -> dict[str, Any]:
    """Run the engines of a case in one session."""
    case = SparkCase(str(options.root), [name], options.repeat, options.memory, suffix)
    python = JAVA_PYTHON if name == "merge" and JAVA_PYTHON.exists() else None
    return run_module("benchmarks.cases.spark_case", case, is_peer=False, python=python)


def _load(name: str, options: argparse.Namespace, scale: float) -> dict[str, Any]:
    """Run a load, with sessions of both commits alternating if there is a baseline."""
    engines: dict[str, dict[str, Any]] = {}
    for _ in range(SESSIONS if options.baseline else 1):
        for commit in commits("icestream", options.baseline):
            case = SparkLoadCase(
                str(options.root),
                name,
                options.repeat,
                options.memory,
                round(options.load_bytes * scale),
                commit,
            )
            done = run_module("benchmarks.cases.spark_load_case", case, is_peer=False)
            for each in done["figures"]:
                label = engine_label(each["engine"], commit)
                first = engines.setdefault(label, {**each, "engine": label, "growth_bytes": 0})
                if first["seconds"] is not each["seconds"]:
                    first["seconds"] += each["seconds"]
                    first["cpu_seconds"] += each["cpu_seconds"]
    for each in engines.values():
        cpu = round(statistics.median(each["cpu_seconds"]), 2)
        each["facts"] = {"cpu_s": cpu, **(each["facts"] or {})}
        each["growth_bytes"] = each["facts"].pop("growth_bytes", 0)
    return {"figures": {name: list(engines.values())}}


def _rows(name: str, engines: list[dict[str, Any]]) -> list[list[str]]:
    first = statistics.median(engines[0]["seconds"])
    return [
        [
            name,
            each["engine"],
            number(statistics.median(each["seconds"])),
            number(statistics.median(each["seconds"]) / first, ".3f"),
            number(each["growth_bytes"] / 1e6, ".0f"),
            json.dumps(each["facts"]) if isinstance(each["facts"], dict | int) else "",
        ]
        for each in engines
    ]


if __name__ == "__main__":
    main()
