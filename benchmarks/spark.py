"""Spark beside itself: `python -m benchmarks.spark [--quick] [--cases ...]`, or `make bench-spark`.

Every case runs its engines in turn in one warm session on two cores, after a turn that does not
count; "ratio" is to the first engine of the case. Growth is that of the Python worker which grew
most, beyond its imports. Merges run in the environment of Iceberg's Java runtime (`make java`), if
it is there, so that both run on the same PySpark.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.datasets import ensure, table_name
from benchmarks.results import machine, number, print_table
from benchmarks.runner import REPOSITORY, CaseError, run_module
from benchmarks.spark_case import CASES, SparkCase

JAVA_PYTHON = REPOSITORY / ".venv-interop" / "bin" / "python"
MEMORY = "256MB"
QUICK_SCALE = 0.01
HEADER = "case engine s ratio growth-MB facts"


def main() -> None:
    """Run the cases that were asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows")
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--memory", default=MEMORY)
    parser.add_argument("--root", type=Path, default=REPOSITORY / ".bench")
    options = parser.parse_args()
    scale = QUICK_SCALE if options.quick else 1.0
    for name in ("a", "b"):
        ensure(options.root, name, scale)
    suffix = table_name("", scale)
    rows, all_figures = [], {}
    for name in options.cases:
        case = SparkCase(str(options.root), [name], options.repeat, options.memory, suffix)
        python = JAVA_PYTHON if name == "merge" and JAVA_PYTHON.exists() else None
        try:
            done = run_module("benchmarks.spark_case", case, is_peer=False, python=python)
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
