"""Two tables in one location, and a second catalog on the same warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.support.strays import overwritten


@pytest.fixture
def old(catalog: SqlCatalog) -> Table:
    """A table that was renamed, so that another one got its location."""
    overwritten(catalog, "db.t")
    return catalog.rename_table("db.t", "db.t_old")


@pytest.fixture
def table(catalog: SqlCatalog, old: Table) -> Table:
    table = overwritten(catalog, "db.t")
    assert table.location() == old.location()
    return table


@pytest.fixture
def second_catalog(catalog: SqlCatalog, tmp_path: Path) -> Iterator[SqlCatalog]:
    """Another catalog on the same warehouse."""
    second = SqlCatalog(
        "second", uri=f"sqlite:///{tmp_path}/second.db", warehouse=f"file://{tmp_path}/warehouse"
    )
    second.create_namespace("db")
    yield second
    second.close()
