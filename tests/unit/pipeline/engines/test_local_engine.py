"""The engine in this process: tables that it creates, and limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from icestream.errors import (
    CatalogError,
    DuplicateKeysError,
    InvalidArgumentError,
    MemoryBudgetError,
    SchemaMismatchError,
    SourceError,
)
from tests.support.load_cases import Load, orders


@pytest.mark.parametrize("mode", ["append", "replace", "merge"])
def test_a_load_that_fails_leaves_no_table(
    load: Load, catalog: Catalog, tmp_path: Path, mode: Any
) -> None:
    (tmp_path / "a.csv").write_text("id,price\n" + "1,2\n" * 300_000 + "x,2\n")
    keys = "id" if mode == "merge" else None
    with pytest.raises(SourceError, match="line 300002"):
        load(tmp_path / "a.csv", "db.t", mode=mode, keys=keys)
    assert catalog.list_tables("db") == []
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_merge_into_a_new_table_refuses_doubled_keys(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    with pytest.raises(DuplicateKeysError):
        load([orders(0, 5), orders(0, 5)], "db.t", mode="merge", keys="id")
    with pytest.raises(InvalidArgumentError, match="give keys="):
        load(orders(0, 5), "db.t", mode="merge")
    assert catalog.list_tables("db") == []


def test_a_table_that_must_be_there_is_not_created(load: Load) -> None:
    with pytest.raises(CatalogError, match=r"there is no table 'db\.t'"):
        load(orders(0, 5), "db.t", create=False)


def test_a_frozen_table_refuses_other_columns(load: Load) -> None:
    load(orders(0, 5), "db.t")
    with pytest.raises(SchemaMismatchError, match="note"):
        load(orders(0, 5, note=["x"] * 5), "db.t")


def test_sql_needs_enough_memory_for_duckdb(load: Load, catalog: Catalog) -> None:
    with pytest.raises(MemoryBudgetError, match=r"needs 33\.6 MB"):
        load(orders(0, 5), "db.t", transform="SELECT * FROM source", memory="31MiB")
    assert not catalog.table_exists("db.t")
    load(orders(0, 5), "db.t", transform="SELECT id FROM source ORDER BY id", memory="32MiB")
    assert catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist() == list(range(5))


def test_sql_that_takes_more_memory_than_there_is_leaves_no_table(
    load: Load, catalog: Catalog
) -> None:
    rows = pa.table({"id": np.arange(4_000_000)})
    all_in_one = "SELECT list(id) AS ids FROM source"  # no disk helps here
    with pytest.raises(MemoryBudgetError, match="DuckDB's half"):
        load(rows, "db.t", transform=all_in_one, memory="32MiB")
    assert not catalog.table_exists("db.t")
