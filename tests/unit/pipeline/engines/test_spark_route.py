"""How the rows of a load on Spark get to the table: decided from the table and a sample."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.pipeline.engines import direct_source, partition_sample, spark_route
from icestream.pipeline.engines.spark_route import Route, choose_route
from icestream.pipeline.inputs.load_input import find_inputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.request.load_spec import LoadSpec

_FIRST = dt.date(2025, 1, 1)
_FILES = 4
_ROWS = 8_000


@pytest.fixture(autouse=True)
def _small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that small files reach: a file is sensible from 1,000 bytes."""
    monkeypatch.setattr(direct_source, "LEAST_BYTES_PER_TASK", 1_000)
    monkeypatch.setattr(direct_source, "_OPENING_BYTES", 0)
    monkeypatch.setattr(spark_route, "_SENSIBLE_FILE_BYTES", 1_000)
    monkeypatch.setattr(partition_sample, "_SAMPLED_ROWS", 1_000)


def _write(folder: Path, days: Any) -> Path:
    """Files whose row with number `n` has the day `days(n)`."""
    folder.mkdir()
    for number in range(_FILES):
        ids = range(number * _ROWS, (number + 1) * _ROWS)
        day = [_FIRST + dt.timedelta(days(n)) for n in ids]
        rows = pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array(day, pa.date32())})
        pq.write_table(rows, folder / f"{number}.parquet", use_dictionary=False, compression="none")
    return folder


def _route(catalog: SqlCatalog, source: Any, into: str = "db.t", **options: Any) -> Route:
    cores = options.pop("cores", 2)
    spec = LoadSpec.of(source, into, catalog=catalog, **options)
    with LoadTarget.open(spec) as target:
        inputs = find_inputs(spec, target).with_columns(spec, target)
        return choose_route(spec, inputs, target, cores=cores, memory_bytes=64_000_000)


def test_tasks_read_and_write_what_needs_no_distribution(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = _write(tmp_path / "a", lambda n: n % 3)
    assert len(_route(catalog, folder).shares) == 4
    none = {"write.distribution-mode": "none"}
    route = _route(catalog, folder, partition_by="day", table_properties=none)
    assert len(route.shares) == 4
    hashed = {"write.distribution-mode": "hash"}
    assert _route(catalog, folder, table_properties=hashed).is_direct, "nothing to hash by"


def test_small_sources_are_one_task_whatever_the_table_is(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    folder = _write(tmp_path / "a", lambda n: n % 50)
    route = _route(catalog, folder, partition_by="day", sort_by="id")
    assert len(route.shares) == 1
    assert route.reason == "one task reads and writes all rows"


def test_a_sort_order_or_the_tables_property_leave_the_distribution_to_spark(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = _write(tmp_path / "a", lambda n: n % 3)
    assert not _route(catalog, folder, sort_by="id").is_direct
    hashed = {"write.distribution-mode": "hash"}
    assert not _route(catalog, folder, partition_by="day", table_properties=hashed).is_direct


def test_rows_in_order_of_their_partitions_need_no_shuffle(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = _write(tmp_path / "a", lambda n: n // 200)
    route = _route(catalog, folder, partition_by="day")
    assert route.is_direct
    assert len(route.shares) == 4, "160 small partitions, which a shuffle would not make larger"


def test_scattered_rows_are_not_shuffled_if_files_are_large_enough(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = _write(tmp_path / "a", lambda n: n % 10)
    route = _route(catalog, folder, partition_by="day")
    assert len(route.shares) == 2, "one for each core, so that files are larger"
    assert "2 tasks write about 20 files for 10 partitions" in route.reason


def test_scattered_rows_are_shuffled_if_files_would_be_small_or_many(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = _write(tmp_path / "a", lambda n: n % 500)
    route = _route(catalog, folder, partition_by="day")
    assert not route.is_direct
    assert "2 tasks would write about 1,000 files for 500 partitions" in route.reason
    many = _write(tmp_path / "b", lambda n: (n * 7919) % 20_011)
    assert not _route(catalog, many, partition_by="day").is_direct, "the sample has few twice"
    few = _write(tmp_path / "c", lambda n: n % 3)
    assert _route(catalog, few, partition_by="day", cores=8).is_direct
    assert not _route(catalog, few, partition_by="day", cores=16).is_direct, "16 times as many"


def test_a_column_that_spark_has_no_type_for_is_never_shuffled(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with TIME in a version of Spark that lacks it."""

    def refuse(*_: object, **__: object) -> None:
        raise ice.UnsupportedFeatureError("Spark has no such type")

    folder = _write(tmp_path / "a", lambda n: n % 3)
    assert not _route(catalog, folder, sort_by="id").is_direct
    monkeypatch.setattr(spark_route, "spark_schema", refuse)
    route = _route(catalog, folder, sort_by="id")
    assert route.is_direct
    assert "Spark has no type" in route.reason


_MERGE: dict[str, Any] = {"mode": "merge", "keys": "id"}


@pytest.mark.parametrize("options", [{}, _MERGE], ids=["append", "merge"])
def test_what_spark_computes_passes_through_it(
    catalog: SqlCatalog, tmp_path: Path, options: dict[str, Any]
) -> None:
    folder = _write(tmp_path / "a", lambda n: 0)
    route = _route(catalog, folder, transform="SELECT * FROM source", **options)
    assert not route.is_direct
    assert "transform" in route.reason


def test_tasks_read_the_rows_of_a_merge_whatever_the_table_is(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    folder = _write(tmp_path / "a", lambda n: n % 500)
    for layout in ({}, {"partition_by": "day"}, {"sort_by": "id"}):
        route = _route(catalog, folder, **_MERGE, **layout)
        assert len(route.shares) == 4
        assert "Spark joins their keys" in route.reason


def test_columns_that_only_a_merge_itself_uses_need_not_fit_the_table(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    pq.write_table(pa.table({"id": [1], "op": ["D"], "at": [1]}), tmp_path / "a.parquet")
    options = {**_MERGE, "on_duplicate": "last", "last_by": "at"}
    assert not _route(catalog, tmp_path / "a.parquet", **options).is_direct, "op is a new column"
    assert _route(catalog, tmp_path / "a.parquet", **options, delete_when="op = 'D'").is_direct


def test_a_merge_whose_columns_spark_has_no_type_for_passes_through_it(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    """Keys are joined with the rows, so these go through the JVM."""
    rows = pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))})
    pq.write_table(rows, tmp_path / "a.parquet")
    route = _route(catalog, tmp_path / "a.parquet", **_MERGE)
    assert not route.is_direct
    assert "Spark has no type" in route.reason
    cast = ["id", {"name": "at", "type": "timestamp"}]
    assert _route(catalog, tmp_path / "a.parquet", **_MERGE, select=cast).is_direct


def test_sources_whose_columns_spark_unites_pass_through_it(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"ID": [1]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"id": [1.5]}), tmp_path / "c.parquet")
    a, b, c = (tmp_path / f"{name}.parquet" for name in "abc")
    assert not _route(catalog, [a, b]).is_direct
    assert not _route(catalog, [a, c]).is_direct
    assert not _route(catalog, [a, pa.table({"id": [2]})]).is_direct
    assert _route(catalog, [a, a]).is_direct


@pytest.mark.parametrize("options", [{}, _MERGE], ids=["append", "merge"])
def test_columns_that_only_spark_casts_to_the_tables_types_pass_through_it(
    catalog: SqlCatalog, tmp_path: Path, options: dict[str, Any]
) -> None:
    catalog.create_table("db.t", pa.schema([("id", pa.string())]))
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    route = _route(catalog, tmp_path / "a.parquet", **options)
    assert not route.is_direct
    assert "Spark casts the columns" in route.reason


def test_the_dry_run_says_how_rows_get_to_the_table(catalog: SqlCatalog, tmp_path: Path) -> None:
    folder = _write(tmp_path / "a", lambda n: n % 500)

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
