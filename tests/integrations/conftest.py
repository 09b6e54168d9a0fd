"""A real catalog in a folder of its own, which is the working directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.tables import make_catalog


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    """A SQLite catalog with a namespace `db`."""
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()
