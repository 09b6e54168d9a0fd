"""A catalog, the same one as another process has it, and both ways to write changed rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.merges import MODES
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


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    """The write mode."""
    return str(request.param)
