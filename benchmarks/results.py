"""What the repeats of one case gave: summary, JSON file, and the printed table."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.baseline import engine_label
from benchmarks.case import Case


@dataclass(slots=True)
class Result:
    """All runs of one case.

    Times are medians over the runs; peaks are the worst run, since a limit must always hold.
    """

    case: Case
    runs: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None

    @property
    def rows_per_second(self) -> float | None:
        """Median rows per second."""
        return self._median("rows_per_second")

    @property
    def first_seconds(self) -> float | None:
        """Median seconds from planning to the first batch."""
        return self._median("first_batch_seconds")

    @property
    def cpu_seconds(self) -> float | None:
        """Median processor time of all threads: on a busy machine steadier than rows/s."""
        return self._median("cpu_seconds")

    @property
    def arrow_mb(self) -> float | None:
        """Worst peak in PyArrow's pools, above the start."""
        return self._worst_mb("arrow_growth_bytes")

    @property
    def rss_mb(self) -> float | None:
        """Worst peak of resident memory, above the start."""
        return self._worst_mb("rss_growth_bytes")

    def rate_ratio(self, other: Result | None) -> float | None:
        """Rows/s as a multiple of the other's."""
        return _ratio(self.rows_per_second, other and other.rows_per_second)

    def first_ratio(self, other: Result | None) -> float | None:
        """Seconds to the first batch as a multiple of the other's."""
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
    """Describe where and from which commit the benchmark ran."""
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


def number(value: float | None, form: str = ".2f", unit: str = "") -> str:
    """Format a figure, or a dash where there is none."""
    return "-" if value is None else f"{value:{form}}{unit}"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows as a Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(cell.ljust(w) for cell, w in zip(cells, widths, strict=True)) + " |"
        )

    print(line(header))
    print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    for row in rows:
        print(line(row))
    print(flush=True)
