"""Parquet, ORC and Arrow files as sources of a load."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa

from icestream.memory.budget import MemoryBudget
from icestream.write.sources.stored_batches import ReadingShare, StoredFile

ROWS = pa.table(
    {
        "id": range(50_000),
        "text": [f"text {n % 7}" for n in range(50_000)],
        "list": [[f"a{n % 3}", "b"] for n in range(50_000)],
    }
)


def stored(path: Path, budget: MemoryBudget) -> StoredFile:
    """The file at a path, read inside half of a budget."""
    opened = partial(pa.OSFile, str(path))
    return StoredFile(path.suffix.removeprefix("."), str(path), opened, ReadingShare(budget))


def write_arrow(rows: pa.Table, path: Path, *, codec: str | None = None) -> None:
    """Write an Arrow file of batches of 10,000 rows."""
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_file(path, rows.schema, options=options) as file:
        file.write_table(rows, max_chunksize=10_000)


def write_arrow_stream(rows: pa.Table, path: Path) -> None:
    """Write an Arrow stream of batches of 10,000 rows."""
    with pa.ipc.new_stream(path, rows.schema) as file:
        file.write_table(rows, max_chunksize=10_000)
