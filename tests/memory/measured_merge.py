"""Merges for a measured process. icestream comes first: it chooses Arrow's allocator."""

from __future__ import annotations

import icestream as ice  # isort: skip
import icestream.operations.merge.merge  # isort: skip  # Its imports are not measured.

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from tests.support.catalogs import make_catalog

_BATCH_VALUES = 200_000
_STEP = 7_368_787  # A prime: keys far apart, each once.


def _rows(keys: Any, seed: int, columns: int) -> pa.RecordBatch:
    random = np.random.default_rng([seed, int(keys[0])])
    numbers = {f"n{n}": pa.array(random.random(len(keys))) for n in range(columns)}
    text = pa.array([f"{seed} of {key}" for key in keys.tolist()])
    return pa.concat_batches([pa.record_batch({"id": pa.array(keys), "text": text, **numbers})])


def _batches(count: int, seed: int, columns: int, *, among: int, step: int = 1) -> Iterator[Any]:
    batch_rows = _BATCH_VALUES // (columns + 2)
    for first in range(0, count, batch_rows):
        keys = np.arange(first, min(count, first + batch_rows)) * step % among
        yield _rows(keys, seed, columns)


def make(directory: str, rows: int, columns: int) -> None:
    """A table of that many rows in files of 16 MB."""
    catalog = make_catalog(Path(directory))
    properties = {"write.target-file-size-bytes": str(16 << 20)}
    schema = _rows(np.arange(1), 0, columns).schema
    table = catalog.create_table("db.t", schema, properties=properties)
    ice.append(table, _batches(rows, 0, columns, among=rows))
    catalog.close()


def _table(directory: str) -> Table:
    return make_catalog(Path(directory)).load_table("db.t")


def merge(
    directory: str, rows: int, incoming: int, columns: int, mode: str, memory: str
) -> dict[str, Any]:
    """Merge rows with keys from all over the table, and return the report."""
    table = _table(directory)
    # One in so many keys is beyond the table's, and new.
    source = _batches(incoming, 1, columns, among=rows + rows // 10, step=_STEP)
    report = ice.merge(table, source, on="id", write_mode=mode, memory=memory)
    return {**report.to_dict(), "allocator": pa.default_memory_pool().backend_name}


def look(directory: str) -> tuple[int, int]:
    """How many rows a table has, and how many snapshots."""
    table = _table(directory)
    return sum(batch.num_rows for batch in ice.scan(table)), len(table.metadata.snapshots)
