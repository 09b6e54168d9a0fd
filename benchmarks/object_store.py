"""Read-ahead on an object store: `python -m benchmarks.object_store` (docs/design/0004).

The table is on moto's S3 server on the loopback interface, behind a proxy that delays and counts
requests. icestream reads it with and without read-ahead, and PyIceberg reads it, too. Each run is a
new process. Compare the number of requests and how many run at once. The times mean little, because
the server is a Python process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

# Import this first: it may import icestream, which must choose Arrow's allocator.
from benchmarks.cases.read_case import Case  # isort: skip

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from benchmarks.cases import engines
from benchmarks.cases.engines import ScanOptions
from benchmarks.data import columns
from benchmarks.measure.peaks import PeakMeter
from benchmarks.measure.results import Result, number, print_table
from benchmarks.measure.runner import REPOSITORY, TIMEOUT_SECONDS
from tests.support.s3 import LatencyProxy, make_s3_catalog, s3_server
from tests.support.tables import commit_files, write_parquet_file

FILES = 8
FILE_ROWS = 360_000
TABLE = "db.object_store"
COLUMNS = ("reader", "limit", "requests", "in flight", "MB sent")
COLUMNS += ("s", "first s", "arrow MB", "rss MB", "error")


@dataclass(frozen=True, slots=True)
class StoreCase(Case):
    """A case whose table is behind an endpoint. `root` has the database of its catalog."""

    endpoint: str = ""
    prefetch: bool = True

    @property
    def label(self) -> str:
        """Return the name of the case in the printed table."""
        return self.engine if self.prefetch else f"{self.engine}, 64 kB at a time"


class ObjectStoreBenchmark:
    """A table behind the proxy, and the cases that read it."""

    def __init__(self, options: argparse.Namespace, proxy: LatencyProxy, folder: Path) -> None:
        self._options = options
        self._proxy = proxy
        self._folder = folder
        self._stamp = time.strftime("%Y%m%dT%H%M%S")
        self._rows = 0
        self.failed = False

    def run(self) -> None:
        """Create the table, run the cases `repeat` times, alternating, and print medians."""
        table = self._fill()
        print(f"{self._describe(table)}; medians of {self._options.repeat}\n")
        results = [Result(case) for case in self._cases()]
        self._proxy.latency_seconds = self._options.latency_ms / 1000
        for _ in range(self._options.repeat):
            for result in results:
                self._run_once(result)
        for result in results:
            stamp = self._stamp if result.case.prefetch else f"{self._stamp}-no-prefetch"
            result.save(self._options.root / "results", stamp)
            self.failed |= bool(result.error)
        print_table(COLUMNS, [_row(result) for result in results])

    def _describe(self, table: Table) -> str:
        sizes = [task.file.file_size_in_bytes for task in table.scan().plan_files()]
        return (
            f"{len(sizes)} files of {statistics.mean(sizes) / 1e6:.1f} MB, row groups in each: "
            f"{self._options.row_groups}, columns: {len(table.schema().fields)}, rows: "
            f"{self._rows:,}; {self._options.latency_ms:g} ms added to each request"
        )

    def _fill(self) -> Table:
        rng = np.random.default_rng(4)
        rows = max(1, int(FILE_ROWS * self._options.scale))
        with _catalog(self._folder, self._proxy.url) as catalog:
            table, files = None, []
            for number_of_file in range(self._options.files):
                content = _rows(rng, number_of_file * rows, rows)
                table = table or catalog.create_table(TABLE, content.schema)
                group_rows = -(-rows // self._options.row_groups)
                files.append(write_parquet_file(table, content, row_group_rows=group_rows))
            commit_files(table, files)
            self._rows = rows * len(files)
            return table

    def _cases(self) -> Iterator[StoreCase]:
        place = {"root": str(self._folder), "dataset": "object_store", "table_name": "object_store"}
        place["endpoint"] = self._proxy.url
        for memory in self._options.memory:
            for prefetch in (False, True):
                yield StoreCase(engine="icestream", memory=memory, prefetch=prefetch, **place)
        yield StoreCase(engine="pyiceberg", order="-", **place)

    def _run_once(self, result: Result) -> None:
        """Run a case in a fresh process, and add the counts of the proxy to its figures."""
        if result.error:
            return
        self._proxy.clear()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.object_store", json.dumps(asdict(result.case))],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode:
            result.error = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return
        figures = json.loads(done.stdout.strip().splitlines()[-1])
        requests = [request for request in self._proxy.log() if "/data/" in request.path]
        figures["requests"] = len(requests)
        figures["get_requests"] = sum(request.method == "GET" for request in requests)
        figures["sent_bytes"] = sum(r.sent_bytes for r in requests if r.method == "GET")
        figures["max_in_flight"] = self._proxy.max_in_flight
        figures["latency_seconds"] = self._proxy.latency_seconds
        result.runs.append(figures)
        if figures["rows"] != self._rows:
            result.error = f"returned {figures['rows']:,} rows instead of {self._rows:,}"


def _row(result: Result) -> list[str]:
    def median(key: str, unit: float = 1.0) -> float | None:
        values = [run[key] for run in result.runs]
        return statistics.median(values) / unit if values else None

    return [
        result.case.label,
        result.case.memory or "-",
        number(median("requests"), ",.0f"),
        number(median("max_in_flight"), ".0f"),
        number(median("sent_bytes", 1e6), ".1f"),
        number(median("seconds"), ".2f"),
        number(median("first_batch_seconds"), ".2f"),
        number(result.arrow_mb, ".1f"),
        number(result.rss_mb, ".0f"),
        result.error or "",
    ]


def _rows(rng: np.random.Generator, start: int, rows: int) -> pa.Table:
    """Generate six columns with 39 bytes per row in the file."""
    return pa.table(
        {
            "id": columns.sequence(start, rows),
            "account": columns.integers(rng, rows, 2**62),
            "score": columns.doubles(rng, rows),
            "code": columns.codes(rng, rows, 16),
            "name": columns.words(rng, rows),
            "at": columns.timestamps(rng, rows),
        }
    )


@contextmanager
def _catalog(folder: Path, endpoint: str) -> Iterator[Catalog]:
    catalog = make_s3_catalog(folder, endpoint, max_attempts=3)
    yield catalog
    catalog.close()


def measure(case: StoreCase) -> dict[str, object]:
    """Scan the table of a case in this process, and return the figures."""
    engines.prepare(case.engine)
    if not case.prefetch:
        from icestream.read.deliver import units

        units.is_remote = lambda path: False  # only the read-ahead calls it there
    with _catalog(Path(case.root), case.endpoint) as catalog:
        table = catalog.load_table(TABLE)
        meter = PeakMeter()
        cpu_before = time.process_time()
        timing = engines.scan(case.engine, table, ScanOptions(case.memory, case.order))
        cpu_seconds = time.process_time() - cpu_before
    return {
        **asdict(timing),
        **asdict(meter.peaks()),
        "cpu_seconds": cpu_seconds,
        "rows_per_second": timing.rows / timing.seconds,
        "versions": {
            "python": sys.version.split()[0],
            **{name: metadata.version(name) for name in ("pyarrow", "pyiceberg", "moto")},
        },
    }


def main() -> None:
    """Run the benchmark, or one case that is given as JSON. Exits with 1 if a case failed."""
    if sys.argv[1:] and sys.argv[1].startswith("{"):
        print(json.dumps(measure(StoreCase(**json.loads(sys.argv[1])))), flush=True)
        os._exit(0)  # do not wait for threads of the engine
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(".bench"), help="folder for results")
    parser.add_argument(
        "--memory",
        type=lambda text: text.split(","),
        default=["256MB", "64MB"],
        help="memory limit",
    )
    parser.add_argument("--latency-ms", type=float, default=20.0, help="delay of each request")
    parser.add_argument("--files", type=int, default=FILES, help="number of files")
    parser.add_argument("--row-groups", type=int, default=1, help="row groups in each file")
    parser.add_argument("--repeat", type=int, default=3, help="number of runs")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="fraction of the full number of rows"
    )
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        s3_server() as server,
        LatencyProxy(server) as proxy,
    ):
        benchmark = ObjectStoreBenchmark(options, proxy, Path(folder))
        benchmark.run()
    sys.exit(benchmark.failed)


if __name__ == "__main__":
    main()
