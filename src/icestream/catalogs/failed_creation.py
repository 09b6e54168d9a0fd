"""Removes what a failed load has created: the local catalog, a namespace, empty folders.

Only things that nobody uses are removed: a catalog and a namespace without tables, and folders
without files.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from pyiceberg.catalog import Catalog

from icestream.catalogs.lookup import has_local_catalog, local_database, local_folder
from icestream.errors import CommitUnknownError


@contextmanager
def local_catalog_undone() -> Iterator[None]:
    """If the block creates the local catalog and fails, remove it, unless it has a table.

    The block must close the catalog. It stays if the outcome of a commit is unknown.
    """
    existed = has_local_catalog()
    try:
        yield
    except CommitUnknownError:
        raise
    except BaseException:
        if not existed:
            _remove_unused_catalog()
        raise


def undo_namespace(catalog: Catalog, name: str, *, created: bool) -> None:
    """Remove what a failed load has created for a new table, unless somebody uses it.

    Args:
        catalog: The catalog.
        name: The table's name. The table does not exist.
        created: Whether the load has created the namespace.
    """
    *namespace, table = name.split(".")
    if catalog.properties.get("warehouse") == local_folder().as_uri():
        _remove_empty_folders(local_folder().joinpath(*namespace, table))
    if created:
        with suppress(Exception):  # such as: another load has created a table in it
            catalog.drop_namespace(tuple(namespace))
            with suppress(OSError):
                local_folder().joinpath(*namespace).rmdir()


def _remove_empty_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):  # it has files
            Path(folder).rmdir()


def _remove_unused_catalog() -> None:
    folder, database = local_folder(), local_database()
    if database.exists():
        with suppress(sqlite3.Error), closing(sqlite3.connect(database, timeout=1)) as file:
            file.execute("BEGIN EXCLUSIVE")  # nobody creates a table between the look and the end
            if _rows(file) == 0:
                database.unlink()
    with suppress(OSError):
        folder.rmdir()


def _rows(file: sqlite3.Connection) -> int:
    """The number of tables and namespaces that the catalog knows."""
    known = file.execute("SELECT name FROM sqlite_master WHERE name LIKE 'iceberg_%'").fetchall()
    return sum(
        file.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
        for (name,) in known
        if name in ("iceberg_tables", "iceberg_namespace_properties")
    )
