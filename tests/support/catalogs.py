"""A real catalog on the local disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import event


def make_catalog(tmp_path: Path, **properties: str) -> SqlCatalog:
    """Return a SQLite catalog with a file warehouse below `tmp_path` and a namespace `db`.

    Call `close()` on it when done: SQLAlchemy keeps a connection open.
    """
    warehouse = f"file://{tmp_path}/warehouse"
    return sqlite_catalog(tmp_path / "catalog.db", warehouse=warehouse, **properties)


def sqlite_catalog(database: Path, **properties: str) -> SqlCatalog:
    """Return a SQLite catalog with a namespace `db`, which does not wait for the disk."""
    later = {"init_catalog_tables": "false"}
    catalog = SqlCatalog("tests", uri=f"sqlite:///{database}", **properties, **later)
    event.listen(catalog.engine, "connect", _without_sync)
    catalog.engine.dispose()  # Connections made before do not know of it.
    catalog.create_tables()
    catalog.create_namespace_if_not_exists("db")
    return catalog


def _without_sync(connection: Any, _: Any) -> None:
    """Spare the disk: each commit would cost some 20 ms, and no test survives a power cut."""
    connection.execute("PRAGMA synchronous = OFF")
