"""A catalog, and the same one as another process has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.tables import make_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def other(tmp_path: Path, catalog: SqlCatalog) -> Iterator[SqlCatalog]:
    """The same catalog, for what others do meanwhile."""
    other = make_catalog(tmp_path)
    yield other
    other.close()
