"""A dry run tells what would be done, and touches nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.errors import InvalidArgumentError, SchemaMismatchError
from tests.support.load_cases import orders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    pq.write_table(orders(0, 10), data / "a.parquet")
    pq.write_table(orders(10, 10, note=["x"] * 10), data / "b.parquet")
    return data


def plan(catalog: Catalog | None, tmp_path: Path, *arguments: Any, **options: Any) -> ice.LoadPlan:
    options = {"engine": "local", "state": tmp_path / "state", **options}
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    made = ice.load(*arguments, catalog=catalog, dry_run=True, **options)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert after == before, "a dry run has touched something"
    assert isinstance(made, ice.LoadPlan)
    json.dumps(made.to_dict())
    return made


def test_a_table_that_would_be_created(catalog: Catalog, folder: Path, tmp_path: Path) -> None:
    made = plan(
        catalog, tmp_path, folder, "new.t", partition_by="bucket(4, id)", sort_by="price desc"
    )
    assert (made.creates_table, made.operation, made.rows, made.files) == (True, "append", 20, 2)
    assert made.new_columns == {
        "id": "long",
        "price": "double",
        "country": "string",
        "note": "string",
    }
    assert made.partition_by == ("bucket(4, id)",)
    assert (made.files_predicted, made.tasks, made.memory_bytes) == (1, 1, 256_000_000)
    assert made.seconds_predicted is None
    with pytest.raises(InvalidArgumentError, match="nothing"):
        plan(catalog, tmp_path, folder, "new.t", partition_by="nothing")


def test_changes_of_a_table_that_is_there(catalog: Catalog, folder: Path, tmp_path: Path) -> None:
    loaded = ice.load(
        folder / "a.parquet", "db.t", engine="local", catalog=catalog, state=tmp_path / "state"
    )
    assert isinstance(loaded, ice.LoadReport)
    made = plan(catalog, tmp_path, folder, "db.t", mode="merge", keys="id", schema_mode="evolve")
    assert made.operation == "overwrite"
    assert len(made.schema_changes) == 1
    assert (made.files_removed_at_most, made.creates_table) == (1, False)
    assert made.bytes_removed_at_most == loaded.bytes_written
    assert made.seconds_predicted is not None
    assert loaded.started_at in (made.prediction or "")
    discarded = plan(catalog, tmp_path, folder, "db.t", schema_mode="discard")
    assert discarded.columns_discarded == ("note",)
    with pytest.raises(SchemaMismatchError, match="note"):
        plan(catalog, tmp_path, folder, "db.t")


def test_what_is_new_for_an_incremental_load(
    catalog: Catalog, folder: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"incremental": True, "schema_mode": "evolve"}
    made = plan(catalog, tmp_path, folder, "db.t", **options)
    assert made.files == 2
    ice.load(folder, "db.t", engine="local", catalog=catalog, state=tmp_path / "state", **options)
    made = plan(catalog, tmp_path, folder, "db.t", **options)
    assert (made.files, made.operation) == (0, None)


def test_where_no_catalog_is_configured_none_is_made(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    made = plan(None, tmp_path, folder, "shop.orders", engine="spark", master="local[3]")
    assert (made.creates_table, made.tasks) == (True, 3)
    assert not (tmp_path / "icestream_warehouse").exists()


def test_a_transform_or_a_load_that_is_done_leaves_little_to_say(
    catalog: Catalog, folder: Path, tmp_path: Path
) -> None:
    made = plan(catalog, tmp_path, folder, "db.t", transform="SELECT 1 AS one")
    assert made.columns is None
    assert made.notes
    ice.load(orders(0, 1), "db.t", engine="local", catalog=catalog, load_id="a", state="")
    assert plan(catalog, tmp_path, folder, "db.t", load_id="a").already_committed
