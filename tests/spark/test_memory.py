"""A worker's memory stays near the limit of its task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import functions as sf

import icestream.spark as ice_spark
from tests.support.tables import commit_files, write_parquet_file

MB = 10**6
LIMIT = 48 * MB
# What Arrow's allocator keeps beside the bytes in use, and the batch on its way to the JVM.
ALLOWANCE = 64 * MB


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _bytes(pid: int, name: str) -> int:
    return int(_status(pid)[name].split()[0]) * 1024


def _workers() -> Iterator[int]:
    """Spark's Python workers below this process."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(_status(int(folder.name))["PPid"])
            except (OSError, KeyError):
                continue  # it has just ended
    for pid in parents:
        parent = pid
        while parent not in (0, os.getpid()):
            parent = parents.get(parent, 0)
        command = Path(f"/proc/{pid}/cmdline")
        if parent and command.exists() and b"pyspark.daemon" in command.read_bytes():
            yield pid


def test_a_worker_grows_by_the_limit_and_little_more(spark: Any, catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.wide", pa.schema([(f"x{i}", pa.float64()) for i in range(8)]))
    random = np.random.default_rng(0)
    count = 1_500_000
    rows = pa.table({name: random.random(count) for name in table.schema().column_names})
    # One row group of 96 MB to a file: a reader that takes them whole could not pass.
    files = [write_parquet_file(table, rows, compression="none") for _ in range(4)]
    small = catalog.create_table("db.small", table.schema())
    commit_files(small, [write_parquet_file(small, rows.slice(i, 10)) for i in range(4)])
    commit_files(table, files)
    del rows

    ice_spark.read(spark, small).agg(sf.sum("x0")).collect()  # workers start, and import it all
    before = {}
    for pid in _workers():
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # sets VmHWM back to the present size
        before[pid] = _bytes(pid, "VmRSS")
    frame = ice_spark.read(spark, table, memory=LIMIT)
    [total] = frame.agg(sf.count("*"), sf.sum("x7")).collect()
    assert total[0] == 4 * count

    start = max(before.values())
    growth = {pid: _bytes(pid, "VmHWM") - before.get(pid, start) for pid in _workers()}
    assert max(growth.values()) > 5 * MB, f"no worker read anything? {growth}"
    assert max(growth.values()) <= LIMIT + ALLOWANCE, f"limit {LIMIT}, growth by worker {growth}"
