"""The results of a case: summary, JSON file and printed table."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cases.read_case import Case
from benchmarks.measure.baseline import engine_label


@dataclass(slots=True)
class Result:
    """All runs of one case.

    Times are medians of the runs. Peaks are from the worst run, because limits must always hold.
    """

    case: Case
    runs: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    @property
    def rows_per_second(self) -> float | None:
        """Median of the rows per second."""
        return self._median("rows_per_second")

    @property
    def first_seconds(self) -> float | None:
        """Median of the seconds from planning to the first batch."""
        return self._median("first_batch_seconds")

    @property
    def cpu_seconds(self) -> float | None:
        """Median of the processor time, which is steadier than rows/s on a busy machine."""
        return self._median("cpu_seconds")

    @property
    def arrow_mb(self) -> float | None:
        """Worst peak of PyArrow's pools above the start."""
        return self._worst_mb("arrow_growth_bytes")

    @property
    def rss_mb(self) -> float | None:
        """Worst peak of resident memory above the start."""
        return self._worst_mb("rss_growth_bytes")

    def rate_ratio(self, other: Result | None) -> float | None:
        """Rows per second relative to another result."""
        return _ratio(self.rows_per_second, other and other.rows_per_second)

    def first_ratio(self, other: Result | None) -> float | None:
        """Seconds to the first batch relative to another result."""
        return _ratio(self.first_seconds, other and other.first_seconds)

    def save(self, folder: Path, stamp: str) -> Path:
        """Write the case, its runs, and the machine as one JSON file."""
        folder.mkdir(parents=True, exist_ok=True)
        case = self.case
        engine = engine_label(case.engine, case.baseline)
        label = f"{case.table_name}-{engine}-{case.memory or 'nolimit'}-{case.order}"
        path = folder / f"{stamp}-{re.sub(r'[^A-Za-z0-9_-]+', '', label)}.json"
        content = {
            "case": asdict(case),
            "error": self.error,
            "rows_per_second": self.rows_per_second,
            "first_batch_seconds": self.first_seconds,
            "cpu_seconds": self.cpu_seconds,
            "arrow_peak_mb": self.arrow_mb,
            "rss_growth_mb": self.rss_mb,
            "runs": self.runs,
            "machine": machine(),
        }
        path.write_text(json.dumps(content, indent=2) + "\n")
        return path

    def _median(self, key: str) -> float | None:
        return None if self.error else statistics.median(run[key] for run in self.runs)

    def _worst_mb(self, key: str) -> float | None:
        values = [run[key] for run in self.runs if run.get(key) is not None]
        return max(values) / 1e6 if values and not self.error else None


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def machine() -> dict[str, Any]:
    """Describe the machine and the commit of the benchmark."""
    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    total = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return {
        "cpu": cpu.group(1) if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": int(total.group(1)) * 1024 if total else None,
        "kernel": platform.release(),
        "load_average": os.getloadavg()[0],
        "commit": commit.stdout.strip() or None,
    }


def save_results(folder: Path, suite: str, results: Sequence[Any]) -> None:
    """Write the results of a suite, which are dataclasses, and the machine to one JSON file."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"machine": machine(), "results": [asdict(result) for result in results]}
    path = folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{suite}.json"
    path.write_text(json.dumps(content, indent=2) + "\n")


def number(value: float | None, form: str = ".2f", unit: str = "") -> str:
    """Format a figure, or a dash if it is None."""
    return "-" if value is None else f"{value:{form}}{unit}"


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format rows as a Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(cell.ljust(w) for cell, w in zip(cells, widths, strict=True)) + " |"
        )

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([line(header), rule, *map(line, rows)]) + "\n"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows as a Markdown table with aligned columns."""
    print(format_table(header, rows), flush=True)
