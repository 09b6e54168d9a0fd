"""A table that other processes read in shares; Iceberg's Java runtime."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.support.delete_files import commit_position_deletes
from tests.support.java_process import JavaSpark
from tests.support.tables import (
    commit_files,
    data_file_paths,
    make_catalog,
    write_orc_file,
    write_parquet_file,
)

FILE_ROWS = 400_000
FILES = 3


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """1.2 million rows, ids in order; every hundredth of a file is deleted."""
    catalog = make_catalog(tmp_path_factory.mktemp("shares"))
    schema = pa.schema([("id", pa.int64()), ("noise", pa.int64()), ("text", pa.string())])
    table = catalog.create_table("db.t", schema)
    random = np.random.default_rng(9)
    written = []
    for file in range(FILES):
        ids = np.arange(file * FILE_ROWS, (file + 1) * FILE_ROWS)
        noise = random.integers(0, 2**62, FILE_ROWS)
        text = pa.array(noise % 1_000_000).cast(pa.string())
        rows = pa.table({"id": ids, "noise": noise, "text": text}, schema=schema)
        if file == 1:
            written.append(write_orc_file(table, rows))
        else:
            written.append(write_parquet_file(table, rows, row_group_rows=50_000))
    commit_files(table, written)
    commit_position_deletes(
        table, {path: range(0, FILE_ROWS, 100) for path in data_file_paths(table)}
    )
    yield table
    catalog.close()


@pytest.fixture(scope="session")
def java() -> Iterator[JavaSpark]:
    """Iceberg's Java runtime, and a catalog shared with it."""
    with JavaSpark() as spark:
        spark.catalog().create_namespace("db")
        yield spark
