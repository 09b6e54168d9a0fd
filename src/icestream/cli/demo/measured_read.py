"""Script that reads a whole table and prints its memory while it does so.

    python -P measured_read.py icestream|pyiceberg METADATA_FILE LIMIT

The script imports only the reader that it measures, so that PyIceberg runs as its users run it,
with Arrow's default allocator. Run it by its path: running it as a module would import icestream.
It prints lines of JSON: samples first, then the result.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_SAMPLE_SECONDS = 0.01


def main(engine: str, metadata_file: str, limit: str) -> None:
    """Read the table with one engine."""
    open_batches = _with_icestream if engine == "icestream" else _with_pyiceberg
    batches, held = open_batches(metadata_file, limit)
    started_with = _resident_bytes()
    began = time.perf_counter()
    done, first, ended = [0, 0], 0.0, threading.Event()

    def sample() -> None:
        now = time.perf_counter() - began
        grown = max(_resident_bytes() - started_with, 0)
        _print({"seconds": now, "grown_bytes": grown, "held_bytes": held(), "rows": done[0]})

    def watch() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            sample()

    import pyarrow as pa
    import pyarrow.compute as pc

    sample()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    for batch in batches:
        first = first or time.perf_counter() - began
        done[0] += batch.num_rows
        done[1] += pc.sum(batch.column("order_id")).as_py() or 0
    seconds = time.perf_counter() - began
    ended.set()
    watcher.join()
    _print(
        {
            "rows": done[0],
            "sum_of_ids": done[1],
            "seconds": seconds,
            "first_batch_seconds": first,
            "arrow_peak_bytes": pa.default_memory_pool().max_memory(),
            "grown_peak_bytes": max(_peak_resident_bytes() - started_with, 0),
        }
    )


def _with_icestream(metadata_file: str, limit: str) -> tuple[Iterator[Any], Callable[[], int]]:
    import icestream as ice

    budget = ice.MemoryBudget(limit)  # PyArrow must be imported after icestream
    from pyiceberg.table import StaticTable

    scan = ice.scan(StaticTable.from_metadata(metadata_file), memory=budget)
    return iter(scan), lambda: budget.held_bytes


def _with_pyiceberg(metadata_file: str, limit: str) -> tuple[Iterator[Any], Callable[[], int]]:
    import pyarrow as pa
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(metadata_file)
    return _batches(table), pa.total_allocated_bytes


def _batches(table: Any) -> Iterator[Any]:
    yield from table.scan().to_arrow_batch_reader()


def _resident_bytes() -> int:
    """Return the resident size of the process, or its peak if the system has no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return _peak_resident_bytes()
    import resource

    return pages * resource.getpagesize()


def _peak_resident_bytes() -> int:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _print(fact: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
