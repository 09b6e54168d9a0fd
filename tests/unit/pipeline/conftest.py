"""A real catalog for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from tests.support.tables import make_catalog
from tests.unit.pipeline.shop import Shop


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """In a folder of its own, beside what the test makes."""
    (tmp_path / "catalog").mkdir()
    opened = make_catalog(tmp_path / "catalog")
    yield opened
    opened.close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    catalog = make_catalog(tmp_path)
    yield Shop(tmp_path, catalog)
    catalog.close()
