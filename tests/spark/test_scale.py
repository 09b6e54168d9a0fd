"""What travels to tasks does not grow with the number of a table's files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark import cloudpickle
from pyspark.sql.classic.dataframe import DataFrame

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.setup.settings import cores_of
from icestream.spark.tasks import shares
from tests.support.many_files import add_many_files, wide_rows

_MOST_BYTES = 100_000
_COLUMNS = 20


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pickled sizes of the functions that Spark sends to tasks."""
    sizes: list[int] = []
    original = DataFrame.mapInArrow

    def recorded(frame: Any, function: Any, *more: Any, **options: Any) -> Any:
        sizes.append(len(cloudpickle.dumps(function)))
        return original(frame, function, *more, **options)

    monkeypatch.setattr(DataFrame, "mapInArrow", recorded)
    return sizes


def _many(catalog: SqlCatalog, name: str, count: int) -> Table:
    rows = wide_rows(_COLUMNS)
    table = catalog.create_table(name, rows.schema, properties={"format-version": "2"})
    ice.append(table, rows)
    return add_many_files(table, count, per_manifest=100)


def _unmatched() -> pa.Table:
    """Rows whose keys are in the range of every file, and in none."""
    return pa.table({f"c{n}": pa.array([-1, 10**15], pa.int64()) for n in range(_COLUMNS)})


def test_the_functions_of_a_merge_do_not_grow_with_the_files(
    spark: Any, catalog: SqlCatalog, sent: list[int]
) -> None:
    table = _many(catalog, "db.many", 400)
    report = ice_spark.merge(spark.createDataFrame(_unmatched()), table, on="c0")
    assert (report.files_read, report.rows_inserted) == (400, 2)
    assert len(sent) >= 3
    assert max(sent) <= _MOST_BYTES


def test_the_functions_of_a_read_do_not_grow_with_the_files(
    spark: Any, catalog: SqlCatalog, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _many(catalog, "db.many", 400)
    monkeypatch.setattr(shares, "_SMALL_BYTES", 1000)
    frame = ice_spark.read(spark, table, columns=["c0"])
    assert frame.count() == 400 * 4
    assert sent
    assert max(sent) <= _MOST_BYTES


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_spark_assumes_about_the_size_of_a_large_plan(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    ice.append(table, pa.table({"id": range(2_000_000)}))
    monkeypatch.setattr(shares, "_SMALL_BYTES", small_bytes)
    frame = ice_spark.read(spark, table)
    size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    assert 16 * 2_000_000 <= size <= 3 * 16 * 2_000_000
    assert frame.count() == 2_000_000


def test_cores_are_asked_anew(spark: Any) -> None:
    assert cores_of(spark) == spark.sparkContext.defaultParallelism
    context = SimpleNamespace(defaultParallelism=2)
    session: Any = SimpleNamespace(sparkContext=context)
    assert cores_of(session) == 2
    context.defaultParallelism = 40
    assert cores_of(session) == 40
