"""Tables whose folders hold files that they do not refer to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.stored import make_older

DAY = 24 * 60 * 60
SCHEMA = pa.schema([("id", pa.int64())])


def ten_rows(first: int) -> pa.Table:
    """Ten rows with ids from `first` on."""
    return pa.table({"id": range(first, first + 10)}, schema=SCHEMA)


def overwritten(catalog: SqlCatalog, name: str, **options: object) -> Table:
    """A table that was appended to, and overwritten."""
    table = catalog.create_table(name, SCHEMA, **options)  # type: ignore[arg-type]
    ice.append(table, ten_rows(0))
    ice.overwrite(table, ten_rows(100))
    return table.refresh()


def leave_stray(folder: Path, name: str = "stray.parquet") -> Path:
    """A file in a folder that nothing refers to, four days old."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"stray")
    make_older(path, 4 * DAY)
    return path


def rows_of_all_snapshots(table: Table) -> list[int]:
    """Rows of every snapshot, read anew from the catalog."""
    table = table.catalog.load_table(table.name())
    return [
        number
        for snapshot in table.snapshots()
        for number in table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["id"].to_pylist()
    ]
