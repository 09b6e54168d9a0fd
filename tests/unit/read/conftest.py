"""Tables of several streams, written once for all modules of a test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.support.stream_tables import create_big, create_many_files, create_one_file
from tests.support.tables import make_catalog


@pytest.fixture(scope="session")
def stream_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path_factory.mktemp("streams"))
    yield catalog
    catalog.close()


@pytest.fixture(scope="session")
def _many_files(stream_catalog: SqlCatalog) -> str:
    return create_many_files(stream_catalog)


@pytest.fixture
def many_files(stream_catalog: SqlCatalog, _many_files: str) -> Table:
    """Parquet and ORC files in one table, ids rising from file to file."""
    return stream_catalog.load_table(_many_files)


@pytest.fixture(scope="session")
def _one_file(stream_catalog: SqlCatalog) -> str:
    return create_one_file(stream_catalog)


@pytest.fixture
def one_file(stream_catalog: SqlCatalog, _one_file: str) -> Table:
    """One file of 40 row groups; `keep = 1` matches every second one, which makes 20 units."""
    return stream_catalog.load_table(_one_file)


@pytest.fixture(scope="session")
def _big(stream_catalog: SqlCatalog) -> str:
    return create_big(stream_catalog)


@pytest.fixture
def big(stream_catalog: SqlCatalog, _big: str) -> Table:
    """16 files of 4 MB in memory, 64 MB together."""
    return stream_catalog.load_table(_big)
