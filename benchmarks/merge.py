"""Merge benchmarks: `python -m benchmarks.merge [--quick] [--cases ...] [--engines ...]`.

Each case runs in a fresh process, and starts with the same table of 10 million rows in 100 files,
ordered by key (wide: 1 million rows of 400 columns in 20 files). The table has nine of ten keys of
the input, and all matching rows change. Times are compared with those of the first engine of the
case in the same run. Peaks of resident memory are from the worst run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.cases.merge_case import MergeCase
from benchmarks.data.merge_tables import Prepared
from benchmarks.measure.baseline import commits, engine_label
from benchmarks.measure.results import number, print_table, save_results
from benchmarks.measure.runner import PEERS_PYTHON, REPOSITORY, CaseError, run_module

QUICK_SCALE = 0.01
BOTH = ("icestream", "icestream-mor")
# Rows, table, limit, whether keys are clustered, and engines. The first engine is the reference.
CASES: dict[str, tuple[int, str, str, bool, tuple[str, ...]]] = {
    "10k": (10_000, "narrow", "256MB", False, ("pyiceberg", *BOTH, "deltalake")),
    "100k": (100_000, "narrow", "256MB", False, ("icestream-compact", *BOTH, "deltalake")),
    "1m": (1_000_000, "narrow", "256MB", False, ("icestream-compact", *BOTH, "deltalake")),
    "100k-clustered": (100_000, "narrow", "256MB", True, BOTH),
    "wide-10k": (10_000, "wide", "512MB", False, BOTH),
    "texts-1m": (1_000_000, "texts", "256MB", False, BOTH),
    "10m": (10_000_000, "narrow", "128MB", False, BOTH),
}
HEADER = (
    "case engine limit s ratio cpu-s rss-MB spilled-MB updated inserted rewritten snapshots error"
)


@dataclass(slots=True)
class MergeResult:
    """All runs of one case."""

    case: MergeCase
    runs: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""

    def seconds(self) -> float | None:
        """Return the median time."""
        return statistics.median(r["seconds"] for r in self.runs) if self.runs else None

    def row(self, base: MergeResult) -> list[str]:
        """Return a line of the printed table."""
        mine, theirs = self.seconds(), base.seconds()
        last = self.runs[-1] if self.runs else {}
        spilled = last.get("spilled_bytes")
        return [
            self.case.name,
            engine_label(self.case.engine, self.case.baseline),
            self.case.memory if "icestream" in self.case.engine else "-",
            number(mine),
            number(mine / theirs if mine and theirs else None, ".3f"),
            number(last.get("cpu_seconds")),
            number(max((r["rss_growth_bytes"] / 1e6 for r in self.runs), default=None), ".0f"),
            number(spilled / 1e6 if spilled is not None else None, ".0f"),
            number(last.get("updated"), ",d"),
            number(last.get("inserted"), ",d"),
            number(last.get("files_removed"), ",d"),
            number(last.get("snapshots"), "d"),
            self.error,
        ]


def run_once(result: MergeResult) -> None:
    """Restore the table, and run a case in a fresh process."""
    case = result.case
    is_peer = case.engine == "deltalake"
    if not is_peer:
        Prepared(Path(case.root), case.scaled_target()).restore()
    try:
        result.runs.append(run_module("benchmarks.cases.merge_case", case, is_peer=is_peer))
    except CaseError as error:
        result.error = str(error)


def main() -> None:
    """Run the chosen cases, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use 1%% of the rows")
    parser.add_argument("--scale", type=float, help="fraction of the rows")
    parser.add_argument(
        "--cases", type=lambda text: text.split(","), default=list(CASES), help="cases to run"
    )
    parser.add_argument("--engines", type=lambda text: text.split(","), help="engines to run")
    parser.add_argument("--repeat", type=int, default=1, help="number of runs")
    parser.add_argument(
        "--root", type=Path, default=REPOSITORY / ".bench", help="folder for data and results"
    )
    parser.add_argument("--baseline", help="also measure icestream at this commit, alternating")
    options = parser.parse_args()
    rows, results = [], []
    for name in options.cases:
        count, target, memory, clustered, engines = CASES[name]
        case = MergeCase(
            root=str(options.root),
            name=name,
            engine="",
            target=target,
            rows=count,
            memory=memory,
            clustered=clustered,
            scale=options.scale or (QUICK_SCALE if options.quick else 1.0),
        )
        group = [
            MergeResult(replace(case, engine=engine, baseline=baseline))
            for engine in engines
            for baseline in commits(engine, options.baseline)
            if (options.engines is None or engine in options.engines)
            and (engine != "deltalake" or PEERS_PYTHON.exists())
        ]
        for number_of_run in range(options.repeat):
            for result in group:
                run_once(result)
                engine = engine_label(result.case.engine, result.case.baseline)
                progress = f"  {name} {engine} ({number_of_run + 1}/{options.repeat})"
                print(progress, result.error or "done", file=sys.stderr, flush=True)
        rows += [result.row(group[0]) for result in group]
        results += group
    save_results(options.root / "results", "merge", results)
    print_table(HEADER.split(), rows)
    if any(r.error for r in results if "icestream" in r.case.engine):
        sys.exit(1)


if __name__ == "__main__":
    main()
