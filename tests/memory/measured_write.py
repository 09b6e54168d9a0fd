"""Loads for a measured process. icestream comes first: it chooses Arrow's allocator."""

from __future__ import annotations

import icestream as ice  # isort: skip
import icestream.operations.append  # isort: skip  # Its imports are not measured.

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from tests.support.catalogs import make_catalog
from tests.support.s3 import make_s3_catalog

Stream = Iterator[pa.RecordBatch]
_NARROW_BATCH_ROWS = 131_072
_WIDE_BATCH_ROWS = 5_000


def narrow(rows: int, batch_rows: int = _NARROW_BATCH_ROWS) -> Stream:
    """Five columns, 64 bytes a row, made batch by batch: the stream itself takes no memory."""
    customers = pa.array([f"customer number {number:012d}" for number in range(20_000)])
    for start in range(0, rows, batch_rows):
        random = np.random.default_rng([1, start])
        count = min(batch_rows, rows - start)
        yield _in_arrow_memory(
            id=np.arange(start, start + count),
            amount=np.round(random.random(count) * 1e4, 2),
            price=random.random(count),
            at=pa.array(np.arange(start, start + count) * 1_000_003).cast(pa.timestamp("us")),
            customer=customers.take(pa.array(random.integers(0, len(customers), count))),
        )


def wide(rows: int) -> Stream:
    """400 columns: numbers, texts that repeat, moments, flags."""
    words = pa.array([f"word {number:05d}" for number in range(2_000)])
    for start in range(0, rows, _WIDE_BATCH_ROWS):
        random = np.random.default_rng([2, start])
        count = min(_WIDE_BATCH_ROWS, rows - start)
        makers: list[Callable[[], Any]] = [
            lambda count=count, random=random: random.integers(0, 2**40, count),
            lambda count=count, random=random: random.random(count),
            lambda count=count, random=random: words.take(
                pa.array(random.integers(0, len(words), count))
            ),
            lambda count=count, random=random: random.integers(0, 1000, count),
            lambda count=count, random=random: random.random(count) < 0.5,
        ]
        yield _in_arrow_memory(**{f"c{i:03d}": makers[i % 5]() for i in range(400)})


def one_row_batches(rows: int) -> Stream:
    """Each row comes alone."""
    for batch in narrow(rows, 10_000):
        for row in range(batch.num_rows):
            yield batch.slice(row, 1)


def one_batch(rows: int) -> Stream:
    """All rows come at once. What they take is counted: the stream lets go of them at the end."""
    yield from narrow(rows, rows)


def texts(rows: int) -> Stream:
    """Texts of a few bytes first, of a hundred kilobytes later."""
    random = np.random.default_rng(5)
    yield _in_arrow_memory(id=np.arange(rows), text=[f"text {i}" for i in range(rows)])
    for start in range(0, rows // 100, 50):
        long = [random.bytes(50_000).hex() for _ in range(50)]
        yield _in_arrow_memory(id=np.arange(start, start + 50), text=long)


def random_numbers(rows: int) -> Stream:
    """What no compression makes smaller."""
    for start in range(0, rows, _NARROW_BATCH_ROWS):
        random = np.random.default_rng([6, start])
        count = min(_NARROW_BATCH_ROWS, rows - start)
        yield _in_arrow_memory(**{f"n{i}": random.integers(0, 2**63, count) for i in range(8)})


def nested(rows: int) -> Stream:
    """Lists of structs with texts."""
    for start in range(0, rows, 50_000):
        random = np.random.default_rng([7, start])
        count = min(50_000, rows - start)
        points = pa.StructArray.from_arrays(
            [
                pa.array(random.integers(0, 2**40, 4 * count)),
                pa.array(random.integers(0, 2**40, 4 * count)).cast(pa.string()),
            ],
            names=["x", "name"],
        )
        offsets = pa.array(np.arange(0, 4 * count + 1, 4), pa.int32())
        yield _in_arrow_memory(
            id=np.arange(start, start + count), points=pa.ListArray.from_arrays(offsets, points)
        )


def _in_arrow_memory(**columns: Any) -> pa.RecordBatch:
    return pa.concat_batches([pa.record_batch(columns)])


def new_table(directory: str, shape: str, properties: dict[str, str]) -> Table:
    """An empty table for streams of this shape."""
    schema = next(globals()[shape](50)).schema
    catalog = make_catalog(Path(directory))
    try:
        return catalog.create_table("db.t", schema, properties=properties)
    finally:
        catalog.close()


def load(
    directory: str, shape: str, rows: int, memory: str, properties: dict[str, str]
) -> dict[str, Any]:
    """Append a stream to a new table, and return the facts to check."""
    table = new_table(directory, shape, properties)
    started, started_cpu = time.perf_counter(), time.process_time()
    report = ice.append(table, globals()[shape](rows), memory=memory)
    return {
        **report.to_dict(),
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - started_cpu,
        "file_bytes": [task.file.file_size_in_bytes for task in table.scan().plan_files()],
        "allocator": pa.default_memory_pool().backend_name,
    }


def load_to_store(directory: str, endpoint: str, rows: int, memory: str) -> dict[str, Any]:
    """Append a stream that does not compress to a table on an object store."""
    catalog = make_s3_catalog(Path(directory), endpoint)
    schema = next(random_numbers(50)).schema
    table = catalog.create_table("db.t", schema)
    report = ice.append(table, random_numbers(rows), memory=memory)
    catalog.close()
    return report.to_dict()


def load_with_pyiceberg(
    directory: str, shape: str, rows: int, properties: dict[str, str]
) -> dict[str, Any]:
    """Append the same stream as PyIceberg does."""
    table = new_table(directory, shape, properties)
    schema = next(globals()[shape](50)).schema
    started, started_cpu = time.perf_counter(), time.process_time()
    table.append(pa.RecordBatchReader.from_batches(schema, globals()[shape](rows)))
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - started_cpu,
        "file_bytes": [task.file.file_size_in_bytes for task in table.scan().plan_files()],
    }
