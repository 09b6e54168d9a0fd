"""Partitioned loads for a measured process. icestream comes first: it chooses Arrow's allocator."""

from __future__ import annotations

import icestream as ice  # isort: skip
from icestream.memory.allocator import shorten_decay

from icestream.write.writers.partitioned_writer import PartitionedWriter  # isort: skip

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType

from icestream.memory.budget import parse_bytes
from icestream.write.parquet.data_paths import DataPaths
from icestream.write.parquet.encode_pool import EncodePool
from icestream.write.parquet.parquet_settings import ParquetSettings
from icestream.write.partition.partitioner import Partitioner
from icestream.write.target import WriteTarget
from icestream.write.writers.write_context import WriteContext
from tests.support.catalogs import make_catalog

_BATCHES_PER_LIMIT = 16
_EVENTS = Schema(
    NestedField(1, "place", LongType(), required=False),
    NestedField(2, "amount", DoubleType(), required=False),
    NestedField(3, "id", LongType(), required=False),
    NestedField(4, "at", TimestampType(), required=False),
    NestedField(5, "customer", StringType(), required=False),
)


@dataclass(frozen=True)
class Load:
    """A stream of rows and the table that it goes to.

    Attributes:
        rows: How many rows: of 64 bytes, or of 8 bytes for each of `columns`.
        partitions: How many partitions; 0 for an unpartitioned table.
        order: How the partitions come: "random" or "sorted".
        memory: The limit.
        sorted_table: Whether the table has a sort order (of random values).
        columns: How many columns of numbers; 0 for five columns of several types.
    """

    rows: int
    partitions: int
    order: str = "random"
    memory: str = "128MB"
    sorted_table: bool = False
    columns: int = 0

    @property
    def schema(self) -> Schema:
        """The table's schema."""
        if not self.columns:
            return _EVENTS
        numbers = (
            NestedField(number, f"c{number}", DoubleType(), required=False)
            for number in range(2, self.columns + 1)
        )
        return Schema(NestedField(1, "place", LongType(), required=False), *numbers)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The stream, made batch by batch: it takes no memory to speak of."""
        random = np.random.default_rng(7)
        file_schema = schema_to_pyarrow(self.schema)
        customers = pa.array([f"customer number {number:012d}" for number in range(20_000)])
        batch_bytes = parse_bytes(self.memory) // _BATCHES_PER_LIMIT
        batch_rows = batch_bytes // (8 * self.columns or 64)
        for start in range(0, self.rows, batch_rows):
            count = min(batch_rows, self.rows - start)
            numbers = np.arange(start, start + count)
            places = numbers * max(1, self.partitions) // self.rows
            if self.order == "random":
                places = random.integers(0, max(1, self.partitions), count)
            if self.columns:
                columns = [random.random(count) for _ in range(self.columns - 1)]
            else:
                customer = customers.take(pa.array(random.integers(0, len(customers), count)))
                columns = [random.random(count), numbers, numbers * 1_000, customer]
            arrays = [pa.array(places), *(pa.array(column) for column in columns)]
            yield pa.RecordBatch.from_arrays(
                [array.cast(field.type) for array, field in zip(arrays, file_schema, strict=True)],
                schema=file_schema,
            )

    def table(self, directory: str) -> Table:
        """A new table for it."""
        spec, order = UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER
        if self.partitions:
            spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "place"))
        if self.sorted_table:
            order = SortOrder(SortField(2, IdentityTransform()))
        catalog = make_catalog(Path(directory))
        try:
            return catalog.create_table("db.t", self.schema, partition_spec=spec, sort_order=order)
        finally:
            catalog.close()


def write(directory: str, load: Load) -> dict[str, Any]:
    """Write the load into a new table's folder, and return the facts to check."""
    shorten_decay()
    target = WriteTarget.of(load.table(directory))
    budget = ice.MemoryBudget(load.memory)
    pool = EncodePool(2)
    context = WriteContext(
        target,
        settings=ParquetSettings.of(target.properties, target.schema),
        file_schema=schema_to_pyarrow(target.schema),
        budget=budget,
        pool=pool,
        paths=DataPaths(target),
    )
    writer = PartitionedWriter(context, Partitioner(target.schema, target.spec))
    started, started_cpu = time.perf_counter(), time.process_time()
    for batch in load.batches():
        writer.write(batch)
        del batch
    seconds_taking = time.perf_counter() - started
    files = writer.close()
    pool.close()
    return {
        "rows": sum(file.rows for file in files),
        "files": len(files),
        "partitions": len({file.partition for file in files}),
        "bytes": sum(file.bytes for file in files),
        "spilled_bytes": writer.spilled_bytes,
        "peak_bytes_held": budget.peak_bytes,
        "bytes_held_after": budget.held_bytes,
        "seconds_taking": seconds_taking,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - started_cpu,
        "allocator": pa.default_memory_pool().backend_name,
    }


def write_with_pyiceberg(directory: str, load: Load) -> dict[str, Any]:
    """Append the same rows as PyIceberg does: from one table in memory."""
    table = load.table(directory)
    whole = pa.Table.from_batches(load.batches())
    started, started_cpu = time.perf_counter(), time.process_time()
    table.append(whole)
    return {
        "rows": whole.num_rows,
        "files": len(table.inspect.files()),
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - started_cpu,
    }
