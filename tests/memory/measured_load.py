"""A load of one file in a fresh process, by the engine in it."""

from __future__ import annotations

from pathlib import Path

from icestream.errors import MemoryBudgetError
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
