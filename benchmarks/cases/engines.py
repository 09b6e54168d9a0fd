"""The engines. Each has a function that scans a whole table, drops the batches, and takes the time.

The time starts after the catalog and the table are loaded, and before the scan is planned.
`prepare` imports the package of an engine before the time and the memory are measured.
"""

from __future__ import annotations

import importlib
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from benchmarks.data.tables import local_path

BATCH_ROWS = 131_072
THREADS = 2


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Options of a scan. Only icestream uses `memory` and `order`."""

    memory: str | None = None
    order: str = "task"
    """`task`, or `arrival:N` with N streams."""
    batch_rows: int | None = None
    """Rows in a batch. None for the default of the engine, or 131,072 if it has none."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The figures of a scan."""

    rows: int
    seconds: float
    first_batch_seconds: float


class _Stopwatch:
    """Counts rows, and records the time of the first ones. Several threads can use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began = time.perf_counter()
        self._first: float | None = None
        self._rows = 0

    def saw(self, rows: int) -> None:
        now = time.perf_counter()
        with self._lock:
            if self._first is None and rows:
                self._first = now
            self._rows += rows

    def timing(self) -> Timing:
        now = time.perf_counter()
        return Timing(self._rows, now - self._began, (self._first or now) - self._began)


def prepare(engine: str) -> None:
    """Import the packages of the engine, so that imports are not measured."""
    for module in ENGINES[engine].modules:
        importlib.import_module(module)
    if engine == "duckdb":
        _duckdb_connection()


def scan(engine: str, table: Table, options: ScanOptions) -> Timing:
    """Scan `table` to its end with the engine."""
    return ENGINES[engine].scan(table, options)


def _scan_pyiceberg(table: Table, options: ScanOptions) -> Timing:
    watch = _Stopwatch()
    for batch in table.scan().to_arrow_batch_reader():
        watch.saw(batch.num_rows)
    return watch.timing()


def _scan_icestream(table: Table, options: ScanOptions) -> Timing:
    import icestream as ice

    order: Any = ice.TaskOrder()
    if options.order.startswith("arrival"):
        streams = int(options.order.partition(":")[2] or THREADS)
        order = ice.ArrivalOrder(concurrent_streams=streams)
    limit = {"memory": options.memory} if options.memory else {}
    watch = _Stopwatch()
    for batch in ice.scan(table, order=order, batch_size=options.batch_rows, **limit):
        watch.saw(batch.num_rows)
    return watch.timing()


def _scan_pyarrow(table: Table, options: ScanOptions) -> Timing:
    """Read with raw PyArrow on two threads, with settings that limit memory. Ignores deletes."""
    watch = _Stopwatch()
    paths = [local_path(task.file.file_path) for task in table.scan().plan_files()]
    parts: queue.SimpleQueue[Callable[[], Iterable[Any]]] = queue.SimpleQueue()
    for part in _pyarrow_parts(paths, options.batch_rows or BATCH_ROWS):
        parts.put(part)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not failures:
                for batch in parts.get_nowait()():
                    watch.saw(batch.num_rows)
        except queue.Empty:
            pass
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(min(THREADS, parts.qsize()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return watch.timing()


def _pyarrow_parts(paths: list[Path], batch_rows: int) -> list[Callable[[], Iterable[Any]]]:
    """Return the units that threads read independently: row groups, or whole ORC files."""
    import pyarrow.parquet as pq

    groups: list[tuple[Path, int]] = []
    parts: list[Callable[[], Iterable[Any]]] = []
    for path in paths:
        if path.suffix == ".orc":
            parts.append(lambda path=path: _orc_batches(path, batch_rows))
        else:
            count = pq.read_metadata(path).num_row_groups
            groups.extend((path, group) for group in range(count))
    column_threads = len(groups) == 1
    parts.extend(
        lambda path=path, group=group: _parquet_batches(path, group, batch_rows, column_threads)
        for path, group in groups
    )
    return parts


def _parquet_batches(path: Path, group: int, batch_rows: int, threads: bool) -> Iterable[Any]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    return file.iter_batches(batch_rows, row_groups=[group], use_threads=threads)


def _orc_batches(path: Path, batch_rows: int) -> Iterable[Any]:
    import pyarrow.dataset as ds

    dataset = ds.dataset(path, format="orc")
    scanner = dataset.scanner(
        batch_size=batch_rows, batch_readahead=1, fragment_readahead=1, use_threads=False
    )
    return scanner.to_batches()


def _scan_polars(table: Table, options: ScanOptions) -> Timing:
    import polars as pl

    watch = _Stopwatch()
    frame = pl.scan_iceberg(table)
    chunk_rows = options.batch_rows or BATCH_ROWS
    for part in frame.collect_batches(chunk_size=chunk_rows, engine="streaming"):
        watch.saw(part.height)
    return watch.timing()


def _scan_daft(table: Table, options: ScanOptions) -> Timing:
    import daft

    watch = _Stopwatch()
    for batch in daft.read_iceberg(table).to_arrow_iter():
        watch.saw(batch.num_rows)
    return watch.timing()


@cache
def _duckdb_connection() -> Any:
    import duckdb

    # The extensions come from PyPI, so that the benchmark does not download anything.
    connection = duckdb.connect()
    site_packages = Path(duckdb.__file__).parent.parent
    for name in ("avro", "iceberg"):
        folder = site_packages / f"duckdb_extension_{name}/extensions/v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder}/{name}.duckdb_extension'")
    return connection


def _scan_duckdb(table: Table, options: ScanOptions) -> Timing:
    connection = _duckdb_connection()
    watch = _Stopwatch()
    query = f"SELECT * FROM iceberg_scan('{table.metadata_location}')"
    batch_rows = options.batch_rows or BATCH_ROWS
    for batch in connection.execute(query).to_arrow_reader(batch_rows):
        watch.saw(batch.num_rows)
    return watch.timing()


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine: its scan function, its packages and its environment."""

    scan: Callable[[Table, ScanOptions], Timing]
    modules: tuple[str, ...]
    package: str
    is_peer: bool = False
    """Peers run in `.venv-peers`, and do not use PyArrow's pools."""
    skips: tuple[str, ...] = ()
    """Data sets that the engine can't read correctly."""


ENGINES = {
    "pyiceberg": Engine(_scan_pyiceberg, ("pyiceberg.io.pyarrow",), "pyiceberg"),
    # Raw PyArrow does not apply delete files.
    "pyarrow": Engine(
        _scan_pyarrow, ("pyarrow.parquet", "pyarrow.dataset"), "pyarrow", skips=("e",)
    ),
    "icestream": Engine(_scan_icestream, ("icestream", "pyiceberg.io.pyarrow"), "icestream"),
    "polars": Engine(_scan_polars, ("polars", "pyarrow"), "polars", is_peer=True),
    # Both can't read ORC files of an Iceberg table.
    "daft": Engine(_scan_daft, ("daft",), "daft", is_peer=True, skips=("c", "cs")),
    "duckdb": Engine(
        _scan_duckdb, ("duckdb", "pyarrow"), "duckdb", is_peer=True, skips=("c", "cs")
    ),
}
