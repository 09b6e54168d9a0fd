"""A dry run tells what would be done, and touches nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.errors import InvalidArgumentError, MissingExtraError, SchemaMismatchError
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
    planned = ice.load(*arguments, catalog=catalog, dry_run=True, **options)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert after == before, "a dry run has touched something"
    assert isinstance(planned, ice.LoadPlan)
    json.dumps(planned.to_dict())
    return planned


def test_a_plan_has_the_columns_that_are_selected(
    catalog: Catalog, folder: Path, tmp_path: Path
) -> None:
    select: list[Any] = ["id", {"name": "cost", "from": "price", "type": "decimal(9,2)"}]
    planned = plan(catalog, tmp_path, folder, "new.t", select=select, where="id > 3")
    assert planned.new_columns == {"id": "long", "cost": "decimal(9, 2)"}
    on_spark = plan(catalog, tmp_path, folder, "new.t", select=select, engine="spark")
    assert (on_spark.direct, on_spark.new_columns) == (True, planned.new_columns)
    with pytest.raises(InvalidArgumentError, match="did you mean 'price'"):
        plan(catalog, tmp_path, folder, "new.t", select=["prize"])
    with pytest.raises(InvalidArgumentError, match="did you mean 'price'"):
        plan(catalog, tmp_path, folder, "new.t", where="prize > 1", engine="spark")


def test_sql_that_tasks_run_keeps_the_direct_way(
    catalog: Catalog, folder: Path, tmp_path: Path
) -> None:
    sql = "SELECT id, price * 2 AS double_price FROM source WHERE id > 3"
    options: dict[str, Any] = {"engine": "spark", "transform": sql}
    planned = plan(catalog, tmp_path, folder, "new.t", transform_engine="duckdb", **options)
    assert planned.direct
    assert planned.new_columns == {"id": "long", "double_price": "double"}
    assert not plan(catalog, tmp_path, folder, "new.t", **options).direct
    bad = {**options, "transform": "SELECT geomean(price) AS p FROM source"}
    with pytest.raises(InvalidArgumentError, match="AGGREGATE"):
        plan(catalog, tmp_path, folder, "new.t", transform_engine="duckdb", **bad)


def test_a_table_that_would_be_created(catalog: Catalog, folder: Path, tmp_path: Path) -> None:
    planned = plan(
        catalog, tmp_path, folder, "new.t", partition_by="bucket(4, id)", sort_by="price desc"
    )
    assert (planned.creates_table, planned.operation, planned.rows, planned.files) == (
        True,
        "append",
        20,
        2,
    )
    assert planned.new_columns == {
        "id": "long",
        "price": "double",
        "country": "string",
        "note": "string",
    }
    assert planned.partition_by == ("bucket(4, id)",)
    assert (planned.files_predicted, planned.tasks, planned.memory_bytes) == (1, 1, 256_000_000)
    assert planned.seconds_predicted is None
    with pytest.raises(InvalidArgumentError, match="nothing"):
        plan(catalog, tmp_path, folder, "new.t", partition_by="nothing")


def test_changes_of_a_table_that_is_there(catalog: Catalog, folder: Path, tmp_path: Path) -> None:
    loaded = ice.load(
        folder / "a.parquet", "db.t", engine="local", catalog=catalog, state=tmp_path / "state"
    )
    assert isinstance(loaded, ice.LoadReport)
    planned = plan(catalog, tmp_path, folder, "db.t", mode="merge", keys="id", schema_mode="evolve")
    assert planned.operation == "overwrite"
    assert len(planned.schema_changes) == 1
    assert (planned.files_removed_at_most, planned.creates_table) == (1, False)
    assert planned.bytes_removed_at_most == loaded.bytes_written
    assert planned.seconds_predicted is not None
    assert loaded.started_at in (planned.prediction or "")
    discarded = plan(catalog, tmp_path, folder, "db.t", schema_mode="discard")
    assert discarded.columns_discarded == ("note",)
    with pytest.raises(SchemaMismatchError, match="note"):
        plan(catalog, tmp_path, folder, "db.t")


def test_what_is_new_for_an_incremental_load(
    catalog: Catalog, folder: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"incremental": True, "schema_mode": "evolve"}
    planned = plan(catalog, tmp_path, folder, "db.t", **options)
    assert planned.files == 2
    ice.load(folder, "db.t", engine="local", catalog=catalog, state=tmp_path / "state", **options)
    planned = plan(catalog, tmp_path, folder, "db.t", **options)
    assert (planned.files, planned.operation) == (0, None)


def test_where_no_catalog_is_configured_none_is_made(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    planned = plan(None, tmp_path, folder, "shop.orders", engine="spark", master="local[3]")
    assert (planned.creates_table, planned.tasks) == (True, 3)
    assert not (tmp_path / "icestream_warehouse").exists()


def test_a_transform_or_a_load_that_is_done_leaves_little_to_say(
    catalog: Catalog, folder: Path, tmp_path: Path
) -> None:
    planned = plan(catalog, tmp_path, folder, "db.t", transform="SELECT 1 AS one")
    assert planned.columns is None
    assert planned.notes
    ice.load(orders(0, 1), "db.t", engine="local", catalog=catalog, load_id="a", state="")
    assert plan(catalog, tmp_path, folder, "db.t", load_id="a").already_committed


def test_a_package_that_the_load_needs_is_missed_in_the_dry_run_too(
    catalog: Catalog, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match="a SQL transform on the local engine needs DuckDB"):
        plan(catalog, tmp_path, folder, "new.t", transform="SELECT id FROM source")
