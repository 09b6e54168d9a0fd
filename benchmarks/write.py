"""Write benchmarks: `python -m benchmarks.write [--quick] [--cases ...] [--engines ...]`.

Each case runs in a fresh process and writes a new table. Times are compared with PyIceberg's of the
same run. Peaks of resident memory are from the worst run.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cases.write_case import ENGINES, WriteCase
from benchmarks.measure.baseline import commits, engine_label
from benchmarks.measure.results import number, print_table, save_results
from benchmarks.measure.runner import PEERS_PYTHON, REPOSITORY, CaseError, run_module

QUICK_SCALE = 0.01
PEERS = ("polars", "daft", "deltalake")
MEMORY = {"random1000": "128MB", "random10000": "128MB", "sorted1000": "128MB"}
# The engines of each case.
CASES = {
    "narrow": tuple(ENGINES),
    "narrow10": ("icestream",),
    "wide": tuple(ENGINES),
    "random1000": ("pyiceberg", "icestream", "daft", "deltalake"),
    "random10000": ("pyiceberg", "icestream"),
    "sorted1000": ("pyiceberg", "icestream"),
    "batches2750": ("icestream",),
    "batches5500": ("icestream",),
}
HEADER = "case engine limit s x-pyiceberg cpu-s rss-MB spilled-MB files off-target snapshots error"


@dataclass(slots=True)
class WriteResult:
    """All runs of one case."""

    case: WriteCase
    runs: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""

    def seconds(self) -> float | None:
        """Return the median time."""
        return self._median("seconds")

    def row(self, base: WriteResult | None) -> list[str]:
        """Return a line of the printed table."""
        theirs = base.seconds() if base else None
        mine = self.seconds()
        last = self.runs[-1] if self.runs else {}
        off = last.get("off_target")
        return [
            self.case.stream,
            engine_label(self.case.engine, self.case.baseline),
            self.case.memory if self.case.engine == "icestream" else "-",
            number(mine),
            number(mine / theirs if mine and theirs else None),
            number(self._median("cpu_seconds")),
            number(max((r["rss_growth_bytes"] / 1e6 for r in self.runs), default=None), ".0f"),
            number(last["spilled_bytes"] / 1e6 if "spilled_bytes" in last else None, ".0f"),
            number(last.get("files"), ",d"),
            number(off * 100 if off is not None else None, ".0f", "%"),
            number(last.get("snapshots"), "d"),
            self.error,
        ]

    def _median(self, key: str) -> float | None:
        return statistics.median(run[key] for run in self.runs) if self.runs else None


def run_once(result: WriteResult) -> None:
    """Run a case in a fresh process, in a folder that is removed afterwards."""
    case = result.case
    shutil.rmtree(case.folder, ignore_errors=True)
    try:
        figures = run_module("benchmarks.cases.write_case", case, is_peer=case.engine in PEERS)
    except CaseError as error:
        result.error = str(error)
        return
    finally:
        shutil.rmtree(case.folder, ignore_errors=True)
    result.runs.append(figures)
    if figures.get("rows", figures["rows_written"]) != figures["rows_written"]:
        result.error = f"{figures['rows']:,} rows instead of {figures['rows_written']:,}"


def main() -> None:
    """Run the chosen cases, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use 1%% of the rows")
    parser.add_argument("--scale", type=float, help="fraction of the rows")
    parser.add_argument(
        "--cases", type=lambda text: text.split(","), default=list(CASES), help="cases to run"
    )
    parser.add_argument(
        "--engines", type=lambda text: text.split(","), default=list(ENGINES), help="engines to run"
    )
    parser.add_argument("--repeat", type=int, default=1, help="number of runs")
    parser.add_argument(
        "--root", type=Path, default=REPOSITORY / ".bench", help="folder for data and results"
    )
    parser.add_argument("--baseline", help="also measure icestream at this commit, alternating")
    options = parser.parse_args()
    options.root.mkdir(parents=True, exist_ok=True)
    rows, results = [], []
    with tempfile.TemporaryDirectory(dir=options.root) as folder:
        for name in options.cases:
            group = [
                WriteResult(
                    WriteCase(
                        folder=f"{folder}/{name}-{engine}-{'before' if baseline else 'now'}",
                        stream=name,
                        engine=engine,
                        memory=MEMORY.get(name, "256MB"),
                        scale=options.scale or (QUICK_SCALE if options.quick else 1.0),
                        baseline=baseline,
                    )
                )
                for engine in CASES[name]
                for baseline in commits(engine, options.baseline)
                if engine in options.engines and (engine not in PEERS or PEERS_PYTHON.exists())
            ]
            for number_of_run in range(options.repeat):
                for result in group:
                    run_once(result)
                    engine = engine_label(result.case.engine, result.case.baseline)
                    progress = f"  {name} {engine} ({number_of_run + 1}/{options.repeat})"
                    print(progress, result.error or "done", file=sys.stderr, flush=True)
            base = next((r for r in group if r.case.engine == "pyiceberg"), None)
            rows += [result.row(base) for result in group]
            results += group
    save_results(options.root / "results", "write", results)
    print_table(HEADER.split(), rows)
    if any(r.error for r in results if r.case.engine == "icestream"):
        sys.exit(1)


if __name__ == "__main__":
    main()
