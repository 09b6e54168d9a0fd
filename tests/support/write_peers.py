"""Other engines, which read the tables that icestream writes and write tables for it to read.

Polars runs in the tests' own environment. Daft and DuckDB's extensions want other versions of
PyArrow and DuckDB than it has, so this module is also a program: `.venv-peers/bin/python` runs it,
`PeerProcess` sends it requests, and rows cross as Arrow files.
"""

from __future__ import annotations

import functools
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable

Where = tuple[str, Any]


def read_with_pyiceberg(
    metadata: str, snapshot_id: int | None = None, where: Where | None = None
) -> pa.Table:
    """Read rows of a snapshot, by default the current one.

    Args:
        metadata: Where the table's metadata is.
        snapshot_id: The snapshot.
        where: A column and the value that it must have: then of such rows `id` and that column.
            All rows without it.
    """
    table = StaticTable.from_metadata(metadata)
    if where:
        scan = table.scan(EqualTo(*where), _columns(where), snapshot_id=snapshot_id)
    else:
        scan = table.scan(snapshot_id=snapshot_id)
    return scan.to_arrow()


def read_with_polars(
    metadata: str, snapshot_id: int | None = None, where: Where | None = None
) -> pa.Table:
    """As `read_with_pyiceberg`, by Polars' own reader."""
    import polars as pl

    frame = pl.scan_iceberg(metadata, snapshot_id=snapshot_id, reader_override="native")
    if where:
        frame = frame.filter(pl.col(where[0]) == pl.lit(where[1])).select(_columns(where))
    return frame.collect().to_arrow()


def read_with_daft(
    metadata: str, snapshot_id: int | None = None, where: Where | None = None
) -> pa.Table:
    """As `read_with_pyiceberg`."""
    import daft

    frame = daft.read_iceberg(StaticTable.from_metadata(metadata), snapshot_id=snapshot_id)
    if where:
        frame = frame.where(daft.col(where[0]) == daft.lit(where[1])).select(*_columns(where))
    return frame.to_arrow()


def read_with_duckdb(
    metadata: str, snapshot_id: int | None = None, where: Where | None = None
) -> pa.Table:
    """As `read_with_pyiceberg`."""
    option = f", snapshot_from_id={snapshot_id}::UBIGINT" if snapshot_id else ""
    source = f"FROM iceberg_scan('{metadata}'{option})"
    query = f"SELECT * {source}"
    if where:
        names = ", ".join(f'"{name}"' for name in _columns(where))
        query = f'SELECT {names} {source} WHERE "{where[0]}" = ?'
    return _duckdb().execute(query, [where[1]] if where else []).to_arrow_table()


def _columns(where: Where) -> tuple[str, ...]:
    return tuple(dict.fromkeys(("id", where[0])))


def write_with_pyiceberg(table: Any, rows: pa.Table, mode: str) -> None:
    """Append rows to a table or replace all of its rows."""
    (table.append if mode == "append" else table.overwrite)(rows)


def write_with_polars(table: Any, rows: pa.Table, mode: str) -> None:
    """As `write_with_pyiceberg`."""
    import polars as pl

    pl.from_arrow(rows).lazy().sink_iceberg(table, mode=mode)


def write_with_daft(table: Any, rows: pa.Table, mode: str) -> None:
    """As `write_with_pyiceberg`."""
    import daft

    daft.from_arrow(rows).write_iceberg(table, mode=mode)


@functools.cache  # To load the extensions takes longer than to read a small table.
def _duckdb() -> Any:
    """The connection, with the Iceberg extension from the packages: nothing is downloaded."""
    import duckdb

    connection = duckdb.connect()
    packages = Path(duckdb.__file__).parent.parent
    for name in ("avro", "iceberg"):
        folder = packages / f"duckdb_extension_{name}/extensions/v{duckdb.__version__}"
        connection.execute(f"LOAD '{folder}/{name}.duckdb_extension'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


READERS = {
    "pyiceberg": read_with_pyiceberg,
    "polars": read_with_polars,
    "daft": read_with_daft,
    "duckdb": read_with_duckdb,
}
WRITERS = {
    "pyiceberg": write_with_pyiceberg,
    "polars": write_with_polars,
    "daft": write_with_daft,
}


def _read(
    engine: str, metadata: str, snapshot_id: int | None, where: str | None, answer: str
) -> None:
    chosen = None
    if where:
        with pa.OSFile(where) as file:
            value = pa.ipc.open_file(file).read_all()
        chosen = (value.column_names[0], value[0][0].as_py())
    rows = READERS[engine](metadata, snapshot_id, chosen)
    with pa.OSFile(answer, "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)


def _write(engine: str, catalog: dict[str, str], table: str, rows: str, mode: str) -> None:
    opened = SqlCatalog("tests", **catalog)
    try:
        with pa.memory_map(rows) as file:
            WRITERS[engine](opened.load_table(table), pa.ipc.open_file(file).read_all(), mode)
    finally:
        opened.close()


def _serve() -> None:
    """Answer one request per line, until there are no more."""
    answers, sys.stdout = sys.stdout, sys.stderr  # Engines print what they like.
    for line in sys.stdin:
        request = json.loads(line)
        work = {"read": _read, "write": _write}[request.pop("action")]
        try:
            work(**request)
        except BaseException:
            answer = {"error": traceback.format_exc()}
        else:
            answer = {"error": None}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
