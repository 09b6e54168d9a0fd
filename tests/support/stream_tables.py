"""Tables of several files and row groups, for tests of the order and the number of streams."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.read.decode.files import RetryPolicy
from icestream.read.decode.prefetch import Fetcher
from icestream.read.decode.sizing import Sizing
from icestream.read.deletes.delete_files import DeletedPositions
from icestream.read.deliver.units import Counters, Environment, OpenFile
from tests.support.tables import (
    add_parquet_file,
    commit_files,
    write_orc_file,
    write_parquet_file,
)

FILES = 12
FILE_ROWS = 10_000
GROUPS = 40
GROUP_ROWS = 2_000
BIG_FILES = 16
BIG_FILE_ROWS = 250_000

ORDERS = {
    "task": ice.TaskOrder(),
    "arrival-1": ice.ArrivalOrder(1),
    "arrival-3": ice.ArrivalOrder(3),
    "arrival-8": ice.ArrivalOrder(8),
}
_LATER = ("arrival-3",)
every_order = pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, id=name, marks=pytest.mark.slow if name in _LATER else ())
        for name, order in ORDERS.items()
    ],
)


def create_many_files(catalog: Catalog) -> str:
    """Parquet and ORC files in one table, ids rising from file to file."""
    schema = pa.schema([("id", pa.int64()), ("file", pa.int64()), ("text", pa.string())])
    table = catalog.create_table("db.many_files", schema)
    written = []
    for file in range(FILES):
        ids = range(file * FILE_ROWS, (file + 1) * FILE_ROWS)
        columns = [list(ids), [file] * FILE_ROWS, [f"row {i}" for i in ids]]
        rows = pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema)
        if file % 3 == 2:
            written.append(write_orc_file(table, rows, stripe_rows=700))
        else:
            written.append(write_parquet_file(table, rows, row_group_rows=2_500))
    commit_files(table, written)
    return "db.many_files"


def create_one_file(catalog: Catalog) -> str:
    """One file of 40 row groups. `keep = 1` matches every second one, which makes 20 units."""
    ids = range(GROUPS * GROUP_ROWS)
    keep = [i // GROUP_ROWS % 2 for i in ids]
    rows = pa.table({"id": pa.array(ids, pa.int64()), "keep": pa.array(keep, pa.int64())})
    table = catalog.create_table("db.one_file", rows.schema)
    add_parquet_file(table, rows, row_group_rows=GROUP_ROWS)
    return "db.one_file"


def create_big(catalog: Catalog) -> str:
    """16 files of 4 MB in memory, 64 MB together."""
    schema = pa.schema([("id", pa.int64()), ("noise", pa.int64())])
    table = catalog.create_table("db.big", schema)
    random = np.random.default_rng(7)
    written = []
    for file in range(BIG_FILES):
        ids = np.arange(file * BIG_FILE_ROWS, (file + 1) * BIG_FILE_ROWS)
        noise = random.integers(0, 2**62, BIG_FILE_ROWS)
        rows = pa.table({"id": ids, "noise": noise}, schema=schema)
        written.append(write_parquet_file(table, rows, use_dictionary=False))
    commit_files(table, written)
    return "db.big"


def create_four_files(catalog: Catalog) -> Table:
    """Three Parquet files of 10 row groups each, and an ORC file; ids 0 to 399."""
    table = catalog.create_table(
        "db.split", Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()))
    )
    files = []
    for number in range(4):
        ids = list(range(number * 100, number * 100 + 100))
        rows = pa.table({"id": ids, "s": [f"row {i}" for i in ids]})
        if number < 3:
            files.append(write_parquet_file(table, rows, row_group_rows=10))
        else:
            files.append(write_orc_file(table, rows, stripe_rows=10))
    commit_files(table, files)
    return table


def open_only_file(table: Table, budget: MemoryBudget, batch_rows: int, **options: Any) -> OpenFile:
    """The only file of a scan with these options, ready to be cut into units."""
    (split,) = ice.scan(table, **options).splits()
    policy, stopped = RetryPolicy(0), threading.Event()
    environment = Environment(
        share=budget.share(),
        sizing=Sizing(budget.limit_bytes, batch_rows),
        policy=policy,
        deletes=DeletedPositions(budget, policy, stopped, lambda: None),
        fetcher=Fetcher(),
        counters=Counters(),
        stopped=stopped,
    )
    return OpenFile(split, environment)


def ids_in(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [value for batch in batches for value in batch.column("id").to_pylist()]


def rows_in(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)
