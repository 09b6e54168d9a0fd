"""Spark benchmarks: `python -m benchmarks.spark [--quick] [--cases ...]`, or `make bench-spark`.

Each case runs its engines in one warm session on two cores. The engines alternate, and the first
round does not count. "ratio" and "cpu-ratio" are relative to the first engine of the case; CPU
seconds are those of the driver, the JVM and all Python workers. "growth" is the largest growth of a
Python worker beyond its imports.

If Iceberg's Java runtime is installed (`make java`), it is the first engine, and all engines run in
its environment, so that they use the same PySpark.

The cases `load-*` load files with `icestream load` (`--load-bytes` of each format). With
`--baseline`, icestream at another commit runs, too. It has sessions of its own, which alternate
with those of the current source.
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
from benchmarks.datasets import ensure
from benchmarks.measure.baseline import commits, engine_label
from benchmarks.measure.java import JAVA_PYTHON
from benchmarks.measure.results import machine, number, print_table
from benchmarks.measure.runner import REPOSITORY, CaseError, run_module

MEMORY = "256MB"
QUICK_SCALE = 0.01
LOAD_BYTES = 1_000_000_000
SESSIONS = 2
HEADER = "case engine s ratio cpu-s cpu-ratio growth-MB facts"


def main() -> None:
    """Run the chosen cases, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use 1%% of the rows")
    parser.add_argument(
        "--cases", type=lambda text: text.split(","), default=[*CASES, *LOADS], help="cases to run"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows of the tables")
    parser.add_argument("--baseline", help="also run icestream at this commit")
    parser.add_argument("--no-java", action="store_true", help="leave Iceberg's runtime out")
    parser.add_argument("--load-bytes", type=int, default=LOAD_BYTES, help="size of files to load")
    parser.add_argument("--repeat", type=int, default=3, help="number of runs")
    parser.add_argument("--memory", default=MEMORY, help="memory limit")
    parser.add_argument(
        "--root", type=Path, default=REPOSITORY / ".bench", help="folder for data and results"
    )
    options = parser.parse_args()
    scale = QUICK_SCALE if options.quick else options.scale
    if not set(options.cases) <= set(LOADS):
        ensure(options.root, "a", scale)
    if "one-row-group" in options.cases:
        ensure(options.root, "b", scale)
    python = JAVA_PYTHON if JAVA_PYTHON.exists() and not options.no_java else None
    rows, all_figures = [], {}
    for name in options.cases:
        try:
            done = _run(name, options, scale, python)
        except CaseError as error:
            rows.append([name, *["-"] * 6, str(error)])
            print(" ", *rows[-1], flush=True)
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


def _run(
    name: str, options: argparse.Namespace, scale: float, python: Path | None
) -> dict[str, Any]:
    """Run the engines of a case. With a baseline, sessions of both commits alternate."""
    engines: dict[str, dict[str, Any]] = {}
    for _ in range(SESSIONS if options.baseline else 1):
        for commit in commits("icestream", options.baseline):
            module, case = _case(name, options, scale, commit)
            done = run_module(module, case, is_peer=False, python=python)
            figures = (
                done["figures"][name] if isinstance(done["figures"], dict) else done["figures"]
            )
            for each in figures:
                ours = not each["engine"].startswith(("iceberg-java", "spark-"))
                label = engine_label(each["engine"], commit) if ours else each["engine"]
                first = engines.setdefault(label, {**each, "engine": label})
                if first["seconds"] is not each["seconds"]:
                    first["seconds"] += each["seconds"]
                    first["cpu_seconds"] += each["cpu_seconds"]
    return {"figures": {name: list(engines.values())}}


def _case(
    name: str, options: argparse.Namespace, scale: float, commit: str | None
) -> tuple[str, SparkCase | SparkLoadCase]:
    root, repeat, memory = str(options.root), options.repeat, options.memory
    if name in LOADS:
        size = round(options.load_bytes * scale)
        case = SparkLoadCase(root, name, repeat, memory, size, commit)
        return "benchmarks.cases.spark_load_case", case
    return "benchmarks.cases.spark_case", SparkCase(root, [name], repeat, memory, scale, commit)


def _rows(name: str, engines: list[dict[str, Any]]) -> list[list[str]]:
    first = [statistics.median(engines[0][key]) for key in ("seconds", "cpu_seconds")]
    return [
        [
            name,
            each["engine"],
            *_relative(each["seconds"], first[0]),
            *_relative(each["cpu_seconds"], first[1]),
            number(each["growth_bytes"] / 1e6, ".0f"),
            json.dumps(each["facts"]) if isinstance(each["facts"], dict | int) else "",
        ]
        for each in engines
    ]


def _relative(values: list[float], first: float) -> tuple[str, str]:
    median = statistics.median(values)
    return number(median), number(median / first, ".3f")


if __name__ == "__main__":
    main()
