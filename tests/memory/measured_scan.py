"""What runs in the measured process. icestream comes first: it chooses Arrow's allocator."""

from __future__ import annotations

import icestream as ice  # isort: skip
import icestream.read.scan  # isort: skip  # Its imports are not measured.

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from tests.support.catalogs import sqlite_catalog

_SLOW_BATCHES = 5


def load(database: str, warehouse: str, name: str) -> Table:
    """Open a table by the catalog's database."""
    return sqlite_catalog(Path(database), warehouse=warehouse).load_table(name)


def stream(place: tuple[str, str, str], options: dict[str, Any]) -> dict[str, Any]:
    """Scan a table, dropping each batch, and return the facts to check.

    The first batches are taken slowly, so that the producers fill what they are allowed to.
    """
    before = pa.total_allocated_bytes()
    scan = ice.scan(load(*place), **options)
    largest = rows = 0
    for number, batch in enumerate(scan):
        rows += batch.num_rows
        largest = max(largest, batch.num_rows)
        del batch
        if number < _SLOW_BATCHES:
            time.sleep(0.1)
    return {
        "rows": rows,
        "largest_batch_rows": largest,
        "arrow_bytes_before": before,
        "allocator": pa.default_memory_pool().backend_name,
        **scan.report.to_dict(),
    }


def wide(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A transform whose results are ten times as large as its batches."""
    text = pa.array(["x" * 500], pa.string()).take(pa.array([0] * batch.num_rows, pa.int64()))
    return batch.append_column("text", text)


def stream_with_pyiceberg(place: tuple[str, str, str]) -> int:
    """Read a table batch by batch as PyIceberg does; return the rows."""
    rows = 0
    for batch in load(*place).scan().to_arrow_batch_reader():
        rows += batch.num_rows
        del batch
    return rows
