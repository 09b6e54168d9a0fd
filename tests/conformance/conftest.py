"""A real catalog for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.tables import make_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A SQLite catalog with a namespace `db`."""
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()
