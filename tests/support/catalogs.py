"""A real catalog on the local disk."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event

_COMPILED: dict[Any, Any] = {}  # Each engine would compile the same statements again.


def make_catalog(tmp_path: Path, **properties: str) -> SqlCatalog:
    """Return a SQLite catalog with a file warehouse below `tmp_path` and a namespace `db`.

    Call `close()` on it when done: SQLAlchemy keeps a connection open.
    """
    warehouse = f"file://{tmp_path}/warehouse"
    return sqlite_catalog(tmp_path / "catalog.db", warehouse=warehouse, **properties)


def sqlite_catalog(database: Path, **properties: str) -> SqlCatalog:
    """Return a SQLite catalog with a namespace `db`, which does not wait for the disk."""
    if not database.exists():
        _copy_empty_database(database)
    catalog = _open(database, **properties)
    catalog.list_namespaces()  # It connects now, so that no test takes the connection for a leak.
    return catalog


@cache
def _empty_database() -> bytes:
    """A database with the catalog's tables and the namespace: SQLAlchemy takes long to make it."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "catalog.db"
        catalog = _open(database)
        catalog.create_tables()
        catalog.create_namespace("db")
        catalog.close()
        return database.read_bytes()


def _copy_empty_database(database: Path) -> None:
    """Another process may do the same at the same time: the file is there whole, or not at all."""
    database.parent.mkdir(parents=True, exist_ok=True)
    content = _empty_database()
    with tempfile.NamedTemporaryFile(dir=database.parent, prefix=".", delete=False) as file:
        file.write(content)
    try:
        os.link(file.name, database)
    except FileExistsError:
        return
    finally:
        Path(file.name).unlink()


def _open(database: Path, **properties: str) -> SqlCatalog:
    uri = f"sqlite:///{database}"
    catalog = SqlCatalog("tests", uri=uri, **properties, init_catalog_tables="false")
    event.listen(catalog.engine, "connect", _without_sync)
    catalog.engine.dispose()  # Connections made before do not know of it.
    catalog.engine = catalog.engine.execution_options(compiled_cache=_COMPILED)
    return catalog


def _without_sync(connection: Any, _: Any) -> None:
    """Spare the disk: each commit would cost some 20 ms, and no test survives a power cut."""
    connection.execute("PRAGMA synchronous = OFF")
