"""Merges beside the peers: `python -m benchmarks.merge [--quick] [--cases ...] [--engines ...]`.

Every case runs in a fresh process on a table that is as it was made. The table has 10 million rows
in 100 files by key (wide: 1 million rows of 400 columns in 20); nine of ten keys of a stream are in
it, and all their rows have other values. Seconds are compared with those of the first engine of the
case in the same run; peaks of resident memory are the worst of the repeats.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.baseline import commits, engine_label
from benchmarks.merge_case import MergeCase
from benchmarks.merge_tables import Prepared
from benchmarks.results import machine, number, print_table
from benchmarks.runner import PEERS_PYTHON, REPOSITORY, CaseError, run_module

QUICK_SCALE = 0.01
BOTH = ("icestream", "icestream-mor")
# Rows, table, limit, whether keys are clustered; and the engines, the first to compare with.
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
        """Median seconds."""
        return statistics.median(r["seconds"] for r in self.runs) if self.runs else None

    def row(self, base: MergeResult) -> list[str]:
        """A line of the printed table."""
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
    """Put the table back and run a case once more in a fresh process."""
    case = result.case
    is_peer = case.engine == "deltalake"
    if not is_peer:
        Prepared(Path(case.root), case.scaled_target()).restore()
    try:
        result.runs.append(run_module("benchmarks.merge_case", case, is_peer=is_peer))
    except CaseError as error:
        result.error = str(error)


def main() -> None:
    """Run the cases that were asked for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows")
    parser.add_argument("--scale", type=float, help="this part of the rows")
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--engines", type=lambda text: text.split(","))
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--root", type=Path, default=REPOSITORY / ".bench")
    parser.add_argument("--baseline", help="measure icestream at this commit, too, in turns")
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
                told = f"  {name} {engine} ({number_of_run + 1}/{options.repeat})"
                print(told, result.error or "done", file=sys.stderr, flush=True)
        rows += [result.row(group[0]) for result in group]
        results += group
    _save(options.root / "results", results)
    print_table(HEADER.split(), rows)
    if any(r.error for r in results if "icestream" in r.case.engine):
        sys.exit(1)


def _save(folder: Path, results: list[MergeResult]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine(), "results": [asdict(result) for result in results]}
    path = folder / f"{time.strftime('%Y%m%dT%H%M%S')}-merge.json"
    path.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
