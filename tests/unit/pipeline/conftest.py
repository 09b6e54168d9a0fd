"""A real catalog for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from tests.support.load_cases import Load
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


@pytest.fixture
def load(catalog: Catalog, tmp_path: Path) -> Load:
    """Load in this process, with a state folder."""

    def run(*arguments: Any, **options: Any) -> ice.LoadReport:
        report = ice.load(
            *arguments, engine="local", catalog=catalog, state=tmp_path / "state", **options
        )
        assert isinstance(report, ice.LoadReport)
        return report

    return run
