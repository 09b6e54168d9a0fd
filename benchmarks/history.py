"""Keeps benchmark results by version: `python -m benchmarks.history [--root .bench]`.

The command copies the newest run of `benchmarks.run` from `<root>/results` to
`benchmarks/results/<version>.json`, and lists all versions in `benchmarks/results/README.md`.
With `--table`, it only writes the list again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure.results import format_table, number
from icestream.report.version import __version__

RESULTS = Path(__file__).parent / "results"
FIGURES = (
    "rows_per_second",
    "first_batch_seconds",
    "cpu_seconds",
    "arrow_peak_mb",
    "rss_growth_mb",
)
HEADER = (
    "version set limit order rows Mrows/s x-pyiceberg first-s cpu-s arrow-MB rss-MB repeats load"
)
INTRODUCTION = """# Results by version

`python -m benchmarks.history` writes this page from the JSON files in this folder. Each file names
the machine and the versions of the libraries, and has the results of every engine of the run. The
table shows icestream's cases. [Benchmarks](../README.md) explains the columns.

- `rows` shows the size of the run. Below full size, the fixed costs of a scan dominate the times.
- `load` is the load average of the machine at the end of the run. Above 1, other programs were
  running, and times mean little. Memory peaks are still valid.

"""


def collect(folder: Path, version: str) -> dict[str, Any]:
    """Collect the cases of the newest run in a folder.

    Args:
        folder: Folder with the files of `Result.save`.
        version: Version that was measured.

    Raises:
        FileNotFoundError: If the folder has no results.
    """
    runs: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*T*-*.json")):
        content = json.loads(path.read_text())
        if "rows_per_second" in content:  # skip files of the other suites
            runs.setdefault(path.name.partition("-")[0], []).append(content)
    if not runs:
        raise FileNotFoundError(f"{folder} has no results: run python -m benchmarks.run first")
    stamp = max(runs)
    cases = [_case(content) for content in runs[stamp] if not content["case"]["baseline"]]
    versions = {
        name: text
        for content in runs[stamp]
        for run in content["runs"]
        for name, text in run["versions"].items()
        if name not in ("icestream", "icestream from")
    }
    return {
        "version": version,
        "measured": stamp,
        "machine": runs[stamp][-1]["machine"],
        "versions": versions,
        "cases": cases,
    }


def _case(content: dict[str, Any]) -> dict[str, Any]:
    runs = content["runs"]
    return {
        **{key: content["case"][key] for key in ("dataset", "engine", "memory", "order")},
        "rows": runs[0]["rows"] if runs else None,
        "repeats": len(runs),
        **{key: content[key] for key in FIGURES},
        "error": content["error"],
    }


def table(kept: list[dict[str, Any]]) -> str:
    """Format a table with a line for each case of icestream, ordered by version."""
    rows = [row for content in sorted(kept, key=_order) for row in _rows(content)]
    return format_table(HEADER.split(), rows)


def _order(content: dict[str, Any]) -> list[tuple[int, str]]:
    """Return a sort key that compares numbers, and puts `dev` and `rc` before the release."""
    parts = re.findall(r"\d+|[a-z]+", content["version"])
    return [*((int(part), "") if part.isdigit() else (-1, part) for part in parts), (0, "")]


def _rows(content: dict[str, Any]) -> Iterator[list[str]]:
    rates = {
        case["dataset"]: case["rows_per_second"]
        for case in content["cases"]
        if case["engine"] == "pyiceberg"
    }
    for case in content["cases"]:
        if case["engine"] != "icestream":
            continue
        rate, base = case["rows_per_second"], rates.get(case["dataset"])
        yield [
            content["version"],
            case["dataset"],
            case["memory"] or "-",
            case["order"],
            number(case["rows"], ","),
            number(rate and rate / 1e6, ".3f"),
            number(rate / base if rate and base else None, ".2f", "x"),
            number(case["first_batch_seconds"], ".3f"),
            number(case["cpu_seconds"], ".1f"),
            number(case["arrow_peak_mb"], ".1f"),
            number(case["rss_growth_mb"], ".1f"),
            str(case["repeats"]),
            number(content["machine"]["load_average"], ".1f"),
        ]


def main() -> None:
    """Save the newest run under a version, and write the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--root", type=Path, default=Path(".bench"), help="folder for data and results"
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder for results by version"
    )
    parser.add_argument("--version", default=__version__, help="version that was measured")
    parser.add_argument("--table", action="store_true", help="only write the list again")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    if not options.table:
        try:
            content = collect(options.root / "results", options.version)
        except FileNotFoundError as error:
            sys.exit(str(error))
        path = options.results / f"{options.version}.json"
        path.write_text(json.dumps(content, indent=2) + "\n")
    kept = [json.loads(path.read_text()) for path in options.results.glob("*.json")]
    text = table(kept)
    (options.results / "README.md").write_text(INTRODUCTION + text)
    print(text)


if __name__ == "__main__":
    main()
