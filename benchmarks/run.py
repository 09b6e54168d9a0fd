"""Read benchmarks: `python -m benchmarks.run [--quick | --published | --scaling | --huge-file]`.

Without a mode, the suite reads every data set that has a goal, with PyIceberg, raw PyArrow and
icestream. If `.venv-peers` exists, it also runs Polars, Daft and DuckDB. Missing data sets are
generated first.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from benchmarks.cases.engines import BATCH_ROWS, ENGINES
from benchmarks.cases.read_case import Case
from benchmarks.datasets import SIZE_ROWS, DatasetInfo, ensure
from benchmarks.measure.baseline import commits, engine_label
from benchmarks.measure.goals import GOALS, find_goal, judge
from benchmarks.measure.memory_group import memory_group
from benchmarks.measure.results import Result, number, print_table
from benchmarks.measure.runner import PEERS_PYTHON, run_all, run_once, warm

QUICK_SCALE = 0.01
SIZE_VARIANTS = {"Parquet": "size", "Parquet as Java writes": "sizej", "ORC": "sizeo"}
SIZE_BATCH_ROWS = 1000
SIZE_BOUND = 0.1
HUGE_LIMIT_BYTES = 1_000_000_000
GOAL_HEADER = (
    "set engine limit order Mrows/s x-pyiceberg first-s x-pyiceberg cpu-s arrow-MB rss-MB goal"
)
PUBLISHED_ORDERS = ("task", *(f"arrival:{streams}" for streams in (1, 2, 4, 8, 16)))


class Benchmark:
    """One run of the benchmark. `failed` says whether a case of icestream failed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._root: Path = options.root.resolve()
        self._stamp = time.strftime("%Y%m%dT%H%M%S")
        self.failed = False

    def goals(self) -> None:
        """Read each data set with each engine, and compare the results with the goals."""
        rows = []
        for dataset in self._options.sets or dict.fromkeys(goal.dataset for goal in GOALS):
            info = self._ready(dataset)
            results = [
                self._result(info, engine, memory=memory, order=order, baseline=baseline)
                for engine in self._engines()
                if dataset not in ENGINES[engine].skips
                for memory, order in self._limits(dataset, engine)
                for baseline in commits(engine, self._options.baseline)
            ]
            self._run(info, results)
            rows.extend(self._goal_rows(results))
        print_table(GOAL_HEADER.split(), rows)

    def published(self) -> None:
        """Read set a in every order: rows/s, time to the first record, peak of Arrow memory."""
        info = self._ready("a")
        memory = (self._options.memory or ["256MB"])[0]
        results = [self._result(info, "pyiceberg")]
        results += [
            self._result(info, "icestream", memory=memory, order=order, batch_rows=BATCH_ROWS)
            for order in PUBLISHED_ORDERS
        ]
        self._run(info, results)
        rows = [
            [
                f"{result.case.engine} {result.case.order if result.case.memory else ''}".strip(),
                result.case.memory or "-",
                number(result.rows_per_second, ",.0f"),
                number(_times(result.first_seconds, 1000), ".0f"),
                number(result.arrow_mb, ".1f"),
                result.error or "",
            ]
            for result in results
        ]
        header = ["configuration", "limit", "rows/s", "first ms", "peak Arrow MB", "error"]
        print_table(header, rows)

    def scaling(self) -> None:
        """Compare the peak while streaming with the size of the whole table in memory."""
        rows = []
        for kind, prefix in SIZE_VARIANTS.items():
            for count in SIZE_ROWS:
                info = self._ready(f"{prefix}_{count}")
                memory = (self._options.memory or [None])[0]
                result = self._result(
                    info,
                    "icestream",
                    memory=memory,
                    order="arrival:1",
                    batch_rows=SIZE_BATCH_ROWS,
                    materialise=True,
                )
                self._run(info, [result])
                rows.append(self._scaling_row(kind, info, result))
        header = ["format", "rows", "streaming MB", "materialised MB", "ratio", "rss MB", "bound"]
        print_table(header, rows)

    def huge_file(self) -> None:
        """Read a file that is larger than memory: ORC with 1.6M stripes in a process of 1 GB."""
        info = self._ready("huge")
        memory = (self._options.memory or ["256MB"])[0]
        result = self._result(info, "icestream", memory=memory)
        try:
            with memory_group(HUGE_LIMIT_BYTES) as group:
                run_once(result, info.rows, join_group=group.join)
                peak = group.peak_bytes()
            limit = f"cgroup of {HUGE_LIMIT_BYTES / 1e6:,.0f} MB, {peak / 1e6:,.0f} MB peak"
        except OSError as error:
            print(f"no memory cgroup ({error}): peak RSS is reported without a limit")
            run_once(result, info.rows)
            limit = "none"
        self._keep(result)
        run = result.runs[-1] if result.runs else {}
        whole_process = (run["rss_start_bytes"] + run["rss_growth_bytes"]) / 1e6 if run else None
        row = [
            f"{info.rows:,}",
            f"{info.data_bytes / 1e6:,.0f}",
            memory,
            number(run.get("seconds"), ".1f"),
            number(result.arrow_mb, ".1f"),
            number(whole_process, ".0f"),
            limit,
            result.error or "read to the end",
        ]
        header = ["rows", "file MB", "limit", "s", "arrow MB", "peak RSS MB", "process", "outcome"]
        print_table(header, [row])

    def _ready(self, dataset: str) -> DatasetInfo:
        info = ensure(self._root, dataset, self._options.scale)
        warm(self._root, info.table_name)
        return info

    def _engines(self) -> list[str]:
        if self._options.engines:
            return self._options.engines
        with_peers = PEERS_PYTHON.exists() and not self._options.quick
        return [name for name in ENGINES if with_peers or not ENGINES[name].is_peer]

    def _limits(self, dataset: str, engine: str) -> list[tuple[str | None, str]]:
        if engine != "icestream":
            return [(None, "-")]
        goals = [goal.memory for goal in GOALS if goal.dataset == dataset]
        limits = self._options.memory or goals or ["256MB"]
        return [(memory, order) for memory in limits for order in self._options.order]

    def _result(self, info: DatasetInfo, engine: str, **choices: object) -> Result:
        return Result(Case(str(self._root), info.name, info.table_name, engine, **choices))

    def _run(self, info: DatasetInfo, results: list[Result]) -> None:
        run_all(results, info.rows, self._options.repeat)
        for result in results:
            self._keep(result)

    def _keep(self, result: Result) -> None:
        result.save(self._root / "results", self._stamp)
        self.failed |= bool(result.error) and not ENGINES[result.case.engine].is_peer

    def _goal_rows(self, results: list[Result]) -> list[list[str]]:
        by_engine = {result.case.engine: result for result in results}
        pyiceberg, pyarrow = by_engine.get("pyiceberg"), by_engine.get("pyarrow")
        return [
            [
                result.case.dataset,
                engine_label(result.case.engine, result.case.baseline),
                result.case.memory or "-",
                result.case.order,
                number(_times(result.rows_per_second, 1e-6), ".3f"),
                number(result.rate_ratio(pyiceberg), ".2f", "x"),
                number(result.first_seconds, ".3f"),
                number(result.first_ratio(pyiceberg), ".3f", "x"),
                number(result.cpu_seconds, ".1f"),
                number(result.arrow_mb, ".1f"),
                number(result.rss_mb, ".1f"),
                self._verdict(result, pyiceberg, pyarrow),
            ]
            for result in results
        ]

    def _verdict(self, result: Result, pyiceberg: Result | None, pyarrow: Result | None) -> str:
        if result.case.engine != "icestream" or result.case.baseline:
            return result.error or ""
        goal = find_goal(result.case.dataset, result.case.memory)
        # The goals are for full size. Below it, the fixed costs of a scan dominate.
        if goal is None or self._options.scale < 1:
            return result.error or "no goal for this size and limit"
        verdict = judge(goal, result, pyiceberg, pyarrow)
        return f"{verdict} ({result.error})" if result.error else verdict

    def _scaling_row(self, kind: str, info: DatasetInfo, result: Result) -> list[str]:
        whole = result.runs[-1]["materialised_bytes"] / 1e6 if result.runs else None
        ratio = result.arrow_mb / whole if result.arrow_mb is not None and whole else None
        if ratio is None:
            verdict = result.error or "-"
        elif self._options.scale < 1:
            verdict = "none for this size"
        else:
            verdict = "met" if ratio < SIZE_BOUND else f"missed: {ratio:.3f} >= {SIZE_BOUND}"
        return [
            kind,
            f"{info.rows:,}",
            number(result.arrow_mb, ".2f"),
            number(whole, ".1f"),
            number(ratio, ".4f"),
            number(result.rss_mb, ".1f"),
            verdict,
        ]


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def main() -> None:
    """Run the chosen modes. Exits with 1 if a case of icestream failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--published", action="store_true", help="read set a in every order")
    parser.add_argument(
        "--scaling",
        action="store_true",
        help="compare memory while streaming with the size of the table",
    )
    parser.add_argument(
        "--huge-file", action="store_true", help="read 3.8 GB of ORC in a process of 1 GB"
    )
    parser.add_argument("--quick", action="store_true", help="run all modes with 1%% of the rows")
    parser.add_argument(
        "--root", type=Path, default=Path(".bench"), help="folder for data and results"
    )
    parser.add_argument(
        "--sets", type=_words, help="data sets, such as a,b8 (default: all that have a goal)"
    )
    parser.add_argument("--engines", type=_words, help=f"engines: {','.join(ENGINES)}")
    parser.add_argument(
        "--memory", type=_words, help="memory limits of icestream, such as 64MB,1GB"
    )
    parser.add_argument(
        "--order", type=_words, default=["task"], help="orders of icestream, such as task,arrival:2"
    )
    parser.add_argument(
        "--repeat", type=int, default=1, help="number of runs: median of times, worst of peaks"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="fraction of the full number of rows"
    )
    parser.add_argument("--baseline", help="also measure icestream at this commit, alternating")
    options = parser.parse_args()
    if unknown := set(options.engines or ()) - set(ENGINES):
        parser.error(
            f"unknown engine {', '.join(sorted(unknown))}: choose from {', '.join(ENGINES)}"
        )
    if options.quick:
        options.scale = QUICK_SCALE
    benchmark = Benchmark(options)
    chosen = [name for name in ("published", "scaling", "huge_file") if getattr(options, name)]
    if options.quick:
        chosen = ["goals", "published", "scaling", "huge_file"]
    for mode in chosen or ["goals"]:
        getattr(benchmark, mode)()
    sys.exit(benchmark.failed)


if __name__ == "__main__":
    main()
