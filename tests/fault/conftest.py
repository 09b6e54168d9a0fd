"""Tables for the fault tests: a dozen files, of Parquet or of ORC."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.support.tables import (
    commit_files,
    make_catalog,
    write_orc_file,
    write_parquet_file,
)

FILES = 12
FILE_ROWS = 6_000


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path_factory.mktemp("fault"))
    for file_format in ("parquet", "orc"):
        _make(catalog, file_format)
    yield catalog
    catalog.close()


@pytest.fixture
def parquet(catalog: SqlCatalog) -> Table:
    """12 Parquet files of 6,000 rows, in row groups of 1,500; a fresh object for each test."""
    return catalog.load_table("db.parquet")


@pytest.fixture
def orc(catalog: SqlCatalog) -> Table:
    """The same rows in ORC files, in stripes of 500."""
    return catalog.load_table("db.orc")


def _make(catalog: SqlCatalog, file_format: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    table = catalog.create_table(f"db.{file_format}", schema)
    written = []
    for file in range(FILES):
        ids = range(file * FILE_ROWS, (file + 1) * FILE_ROWS)
        rows = pa.table({"id": list(ids), "text": [f"row {i}" for i in ids]}, schema=schema)
        if file_format == "orc":
            written.append(write_orc_file(table, rows, stripe_rows=500))
        else:
            written.append(write_parquet_file(table, rows, row_group_rows=1_500))
    commit_files(table, written)
