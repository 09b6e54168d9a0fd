"""One read in a fresh process: `python -m benchmarks.cases.read_case '<json>'`.

`benchmarks.measure.runner` starts it. The last line of stdout is the result, as JSON.
"""

from __future__ import annotations

import json
import os
import sys

# Import icestream first, as the docs recommend, so that it chooses Arrow's allocator.
if '"engine": "icestream"' in sys.argv[-1]:
    import icestream  # noqa: F401

import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from benchmarks.cases import engines
from benchmarks.cases.engines import ENGINES, ScanOptions
from benchmarks.data.tables import load_table
from benchmarks.measure.peaks import PeakMeter


@dataclass(frozen=True, slots=True)
class Case:
    """The read to measure."""

    root: str
    dataset: str
    table_name: str
    engine: str
    memory: str | None = None
    order: str = "task"
    batch_rows: int | None = None
    materialise: bool = False
    """Whether to read the whole table into memory afterwards, and report its size."""
    baseline: str | None = None
    """Commit of icestream to measure. None for the current source."""


def measure(case: Case) -> dict[str, object]:
    """Scan the table of the case, and return figures, peaks and versions."""
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
        # Other tools do not use PyArrow's pools.
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
    """Measure the case given as JSON, and print the figures as JSON."""
    figures = measure(Case(**json.loads(sys.argv[1])))
    print(json.dumps(figures), flush=True)
    # Do not wait for threads that an engine has left.
    os._exit(0)


if __name__ == "__main__":
    main()
