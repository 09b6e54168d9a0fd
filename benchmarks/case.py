"""One measurement in one fresh process: `python -m benchmarks.case '<json>'`.

Started by `benchmarks.runner`; the result is the last line of standard output, as JSON.
"""

from __future__ import annotations

import json
import os
import sys

# As a user of icestream is told to: imported first, it chooses Arrow's allocator.
if '"engine": "icestream"' in sys.argv[-1]:
    import icestream  # noqa: F401

import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from benchmarks import engines
from benchmarks.engines import ENGINES, ScanOptions
from benchmarks.peaks import PeakMeter
from benchmarks.tables import load_table


@dataclass(frozen=True, slots=True)
class Case:
    """What to measure."""

    root: str
    dataset: str
    table_name: str
    engine: str
    memory: str | None = None
    order: str = "task"
    batch_rows: int | None = None
    materialise: bool = False
    """Afterwards, read the whole table into memory and report its bytes (S1.5)."""
    baseline: str | None = None
    """The commit whose icestream is measured; None: this one."""


def measure(case: Case) -> dict[str, object]:
    """Scan the case's table and return figures, peaks and versions as plain data."""
    engines.prepare(case.engine)
    table = load_table(Path(case.root), case.table_name)
    options = ScanOptions(case.memory, case.order, case.batch_rows)
    meter = PeakMeter()
    cpu_before = time.process_time()
    timing = engines.scan(case.engine, table, options)
    cpu_seconds = time.process_time() - cpu_before
    peaks = meter.peaks()
    figures: dict[str, object] = {
        **asdict(timing),
        **asdict(peaks),
        "cpu_seconds": cpu_seconds,
        "rows_per_second": timing.rows / timing.seconds,
        "versions": _versions(case.engine),
    }
    if ENGINES[case.engine].is_peer:
        # Peers allocate outside PyArrow's pools.
        figures["arrow_growth_bytes"] = None
    if case.materialise:
        figures["materialised_bytes"] = table.scan().to_arrow().nbytes
    return figures


def _versions(engine: str) -> dict[str, str]:
    versions = {"python": sys.version.split()[0]}
    if ours := sys.modules.get("icestream"):
        versions["icestream from"] = str(ours.__file__)
    for package in ("pyarrow", "pyiceberg", ENGINES[engine].package):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed as a package"
    return versions


def main() -> None:
    """Measure the case given as JSON and print the figures as JSON."""
    figures = measure(Case(**json.loads(sys.argv[1])))
    print(json.dumps(figures), flush=True)
    # Engines may leave threads behind that would keep the process from ending.
    os._exit(0)


if __name__ == "__main__":
    main()
