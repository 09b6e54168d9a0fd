"""A load of one file in a fresh process, by the engine in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from icestream.errors import MemoryBudgetError
from icestream.operations.merge.merge import merge
from icestream.pipeline.load import load
from tests.support.catalogs import make_catalog


def load_file(folder: str, name: str, memory: str, multiline: bool) -> tuple[str, int]:
    """What became of it: the rows, or the bytes that it says are needed."""
    catalog = make_catalog(Path(folder))
    source = {
        "path": str(Path(folder) / name),
        "options": {"multiline": True} if multiline else {},
    }
    try:
        report = load(source, "db.t", engine="local", catalog=catalog, memory=memory, state="")
        return "loaded", report.rows_inserted
    except MemoryBudgetError as error:
        return str(error), error.needed_bytes
    finally:
        catalog.close()


def load_stored(folder: str, name: str, memory: int, key: str | None) -> tuple[str, int]:
    """The same for a Parquet, ORC or Arrow file, which is merged if there is a key."""
    catalog = make_catalog(Path(folder))
    try:
        report = load(
            str(Path(folder) / name),
            "db.t",
            mode="append" if key is None else "merge",
            keys=key,
            engine="local",
            catalog=catalog,
            memory=memory,
            state="",
        )
        return "loaded", report.rows_inserted
    except MemoryBudgetError as error:
        return str(error), error.needed_bytes
    finally:
        catalog.close()


def merge_coded(folder: str, rows: int, memory: int) -> int:
    """Merge a stream whose text of 500 kB is in a dictionary."""
    codes = pa.array(np.zeros(rows, np.int32))
    texts = pa.DictionaryArray.from_arrays(codes, pa.array(["x" * 500_000]))
    stream = pa.table({"id": np.arange(rows), "text": texts})
    catalog = make_catalog(Path(folder))
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    try:
        table = catalog.create_table("db.t", schema)
        return merge(table, stream, on="id", memory=memory).rows_inserted
    finally:
        catalog.close()
