"""A merge into a missing table creates it with its rows, in one commit, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyspark.sql import functions as sf

import icestream as ice
import icestream.spark as ice_spark
from icestream.commit.new_table import NewTable
from tests.support.spark_orders import orders, stored

_SCHEMA = "id long, at int, name string"


def _frame(spark: Any, *rows: tuple[Any, ...]) -> Any:
    return spark.createDataFrame(list(rows), _SCHEMA)


def _rows(catalog: SqlCatalog, name: str) -> list[tuple[Any, ...]]:
    found = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def test_the_table_and_its_rows_are_one_commit(spark: Any, catalog: SqlCatalog) -> None:
    options: dict[str, Any] = {
        "catalog": catalog,
        "on": "id",
        "create": True,
        "partition_by": ["region"],
        "table_properties": {"owner": "us"},
        "load_id": "first",
    }
    report = ice_spark.merge(orders(spark, 100), "db.orders", **options)
    table = catalog.load_table("db.orders")
    (snapshot,) = table.metadata.snapshots
    assert snapshot.snapshot_id == report.snapshot_id
    assert (report.rows_inserted, report.rows_updated, report.rows_unchanged) == (100, 0, 0)
    assert [field.name for field in table.spec().fields] == ["region"]
    assert table.properties["owner"] == "us"
    assert len(table.metadata.metadata_log) == 0, "there was no table without rows before"
    assert ice_spark.merge(orders(spark, 5), "db.orders", **options).already_committed
    again = ice_spark.merge(orders(spark, 110), "db.orders", **{**options, "load_id": None})
    assert (again.rows_inserted, again.rows_unchanged) == (10, 100)


@pytest.mark.parametrize(
    ("rows", "error", "told"),
    [
        ([(1, 1, "a"), (2, 1, "b"), (1, 2, "c")], ice.DuplicateKeysError, "id = 1"),
        ([(1, 1, "a"), (None, 1, "b")], ice.InvalidDataError, "null in the key"),
    ],
    ids=["duplicates", "null keys"],
)
def test_keys_that_a_merge_refuses_make_no_table(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, rows: Any, error: Any, told: str
) -> None:
    before = stored(tmp_path)
    with pytest.raises(error, match=told):
        ice_spark.merge(_frame(spark, *rows), "db.t", catalog=catalog, on="id", create=True)
    assert catalog.list_tables("db") == []
    assert stored(tmp_path) == before


def test_a_merge_that_fails_leaves_no_table_and_no_file(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stored(tmp_path)
    options: dict[str, Any] = {"catalog": catalog, "on": "id", "create": True}
    bad = sf.expr("if(id = 70, raise_error('bad row'), price)").cast("double")
    with pytest.raises(ice.TaskFailedError, match="bad row"):
        ice_spark.merge(orders(spark, 100).withColumn("price", bad), "db.t", **options)

    def refuse(*_: Any, **__: Any) -> None:
        raise CommitFailedException("no room in the catalog")

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", refuse)
        with pytest.raises(ice.CommitError, match="no room in the catalog"):
            ice_spark.merge(orders(spark, 100), "db.t", **options)
    assert catalog.list_tables("db") == []
    assert stored(tmp_path) == before
    with pytest.raises(ice.InvalidArgumentError, match="has no branch 'audit'"):
        ice_spark.merge(orders(spark, 4), "db.t", branch="audit", **options)


@pytest.mark.slow
def test_who_comes_second_merges_into_the_table_of_the_other(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = NewTable.create

    def create_after_another(self: NewTable, *arguments: Any) -> Any:
        monkeypatch.setattr(NewTable, "create", create)
        first = _frame(spark, (1, 1, "theirs"), (2, 1, "theirs"))
        ice_spark.append(first, "db.t", catalog=catalog, create=True)
        return self.create(*arguments)

    monkeypatch.setattr(NewTable, "create", create_after_another)
    frame = _frame(spark, (2, 2, "ours"), (3, 2, "ours"))
    report = ice_spark.merge(frame, "db.t", catalog=catalog, on="id", create=True)
    assert (report.rows_inserted, report.rows_updated) == (1, 1)
    assert _rows(catalog, "db.t") == [(1, 1, "theirs"), (2, 2, "ours"), (3, 2, "ours")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"on_duplicate": "last", "last_by": "at", "null_keys": "insert"},
        {"on_duplicate": "last", "last_by": "at", "null_keys": "insert", "delete_when": "at = 9"},
        {"on_duplicate": "last", "null_keys": "insert", "when_not_matched": "ignore"},
    ],
    ids=["last", "deleted", "nothing inserted"],
)
def test_a_new_table_gets_the_rows_that_it_gets_in_process(
    spark: Any, catalog: SqlCatalog, tmp_path: Path, options: dict[str, Any]
) -> None:
    frame = _frame(
        spark,
        *((1, 2, "kept"), (1, 1, "older"), (None, 1, "no key"), (None, 2, "no key")),
        *((2, 9, "deleted"), (3, 1, "one"), (3, None, "null is first")),
    )
    pq.write_table(frame.toArrow(), tmp_path / "a.parquet")
    reports = [
        ice.load(
            tmp_path / "a.parquet",
            f"db.{engine}",
            mode="merge",
            keys="id",
            engine=engine,
            spark=spark if engine == "spark" else None,
            catalog=catalog,
            state="",
            **options,
        )
        for engine in ("spark", "local")
    ]
    assert _rows(catalog, "db.spark") == _rows(catalog, "db.local")
    figures = ("created", "rows_read", "rows_inserted", "rows_updated", "rows_deleted")
    ours, theirs = ([getattr(each, name) for name in figures] for each in reports)
    assert ours == theirs
    assert catalog.load_table("db.spark").schema() == catalog.load_table("db.local").schema()


def test_a_frame_without_rows_makes_an_empty_table(spark: Any, catalog: SqlCatalog) -> None:
    nothing = orders(spark, 4).where("id < 0")
    report = ice_spark.merge(nothing, "db.t", catalog=catalog, on="id", create=True)
    assert report.snapshot_id is None
    assert catalog.load_table("db.t").metadata.snapshots == []
