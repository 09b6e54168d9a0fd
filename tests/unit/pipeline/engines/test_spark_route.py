"""How the rows of a load on Spark get to the table: decided from the table and a sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.pipeline.engines import spark_route
from tests.support.routes import route_of, write_days

pytestmark = pytest.mark.usefixtures("small_sizes")


def test_tasks_read_and_write_what_needs_no_distribution(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = write_days(tmp_path / "a", lambda n: n % 3)
    assert len(route_of(catalog, folder).shares) == 4
    none = {"write.distribution-mode": "none"}
    route = route_of(catalog, folder, partition_by="day", table_properties=none)
    assert len(route.shares) == 4
    hashed = {"write.distribution-mode": "hash"}
    assert route_of(catalog, folder, table_properties=hashed).is_direct, "nothing to hash by"


def test_a_sort_order_or_the_tables_property_leave_the_distribution_to_spark(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = write_days(tmp_path / "a", lambda n: n % 3)
    assert not route_of(catalog, folder, sort_by="id").is_direct
    hashed = {"write.distribution-mode": "hash"}
    assert not route_of(catalog, folder, partition_by="day", table_properties=hashed).is_direct


def test_a_column_that_spark_has_no_type_for_is_never_shuffled(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with TIME in a version of Spark that lacks it."""

    def refuse(*_: object, **__: object) -> None:
        raise ice.UnsupportedFeatureError("Spark has no such type")

    folder = write_days(tmp_path / "a", lambda n: n % 3)
    assert not route_of(catalog, folder, sort_by="id").is_direct
    monkeypatch.setattr(spark_route, "spark_schema", refuse)
    route = route_of(catalog, folder, sort_by="id")
    assert route.is_direct
    assert "Spark has no type" in route.reason


_MERGE: dict[str, Any] = {"mode": "merge", "keys": "id"}


def test_tasks_read_the_rows_of_a_merge_whatever_the_table_is(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = write_days(tmp_path / "a", lambda n: n % 500)
    for layout in ({}, {"partition_by": "day"}, {"sort_by": "id"}):
        route = route_of(catalog, folder, **_MERGE, **layout)
        assert len(route.shares) == 4
        assert "Spark joins their keys" in route.reason


def test_columns_that_only_a_merge_itself_uses_need_not_fit_the_table(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    pq.write_table(pa.table({"id": [1], "op": ["D"], "at": [1]}), tmp_path / "a.parquet")
    options = {**_MERGE, "on_duplicate": "last", "last_by": "at"}
    assert not route_of(catalog, tmp_path / "a.parquet", **options).is_direct, "op is a new column"
    assert route_of(catalog, tmp_path / "a.parquet", **options, delete_when="op = 'D'").is_direct


def test_a_merge_whose_columns_spark_has_no_type_for_passes_through_it(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    """Keys are joined with the rows, so these go through the JVM."""
    rows = pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))})
    pq.write_table(rows, tmp_path / "a.parquet")
    route = route_of(catalog, tmp_path / "a.parquet", **_MERGE)
    assert not route.is_direct
    assert "Spark has no type" in route.reason
    cast = ["id", {"name": "at", "type": "timestamp"}]
    assert route_of(catalog, tmp_path / "a.parquet", **_MERGE, select=cast).is_direct


@pytest.mark.parametrize("options", [{}, _MERGE], ids=["append", "merge"])
def test_columns_that_only_spark_casts_to_the_tables_types_pass_through_it(
    catalog: SqlCatalog, tmp_path: Path, options: dict[str, Any]
) -> None:
    catalog.create_table("db.t", pa.schema([("id", pa.string())]))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    route = route_of(catalog, tmp_path / "a.parquet", **options)
    assert not route.is_direct
    assert "Spark casts the columns" in route.reason


def test_the_dry_run_says_how_rows_get_to_the_table(catalog: SqlCatalog, tmp_path: Path) -> None:
    folder = write_days(tmp_path / "a", lambda n: n % 500)

    def plan(**options: Any) -> ice.LoadPlan:
        planned = ice.load(folder, "db.t", catalog=catalog, dry_run=True, state="", **options)
        assert isinstance(planned, ice.LoadPlan)
        return planned

    assert plan(master="local[2]").direct is True
    assert plan(master="local[2]", partition_by="day", **_MERGE).direct is True
    shuffled = plan(master="local[2]", partition_by="day")
    assert shuffled.direct is False
    assert "500 partitions" in str(shuffled.route)
    assert plan(master="spark://host:7077", partition_by="day").route is None, "cores are unknown"
    assert plan(engine="local").route is None
