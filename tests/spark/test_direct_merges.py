"""Merge loads whose tasks read the sources themselves, and add the keys."""

from __future__ import annotations

import datetime as dt
import os
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.pipeline.engines import direct_source, spark_engine
from icestream.spark.writing.keyed_frame import KeyedFrame
from tests.support.load_cases import orders

_MERGE: dict[str, Any] = {"mode": "merge", "keys": "id"}


def _load(catalog: Catalog, spark: Any, *arguments: Any, **options: Any) -> ice.LoadReport:
    report = ice.load(*arguments, catalog=catalog, spark=spark, state="", **{**_MERGE, **options})
    assert isinstance(report, ice.LoadReport)
    return report


def _rows(catalog: Catalog, name: str) -> list[dict[str, Any]]:
    rows = catalog.load_table(name).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


@pytest.fixture
def no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a load fail that reads a source as a DataFrame."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a source is read as a DataFrame")

    monkeypatch.setattr(spark_engine, "source_frame", refuse)


def _typed(changed: bool) -> pa.Table:
    """Three rows of every type, of which the last is new and the second differs if `changed`."""
    ids = [uuid.UUID(int=number) for number in range(3)]
    price = Decimal("2.50") if changed else Decimal("1.50")
    rows = pa.table(
        {
            "id": pa.array([each.bytes for each in ids], pa.uuid()),
            "at": pa.array([dt.time(1), None, dt.time(23, 59, 59, 1)], pa.time64("us")),
            "price": pa.array([Decimal("0.10"), price, None], pa.decimal128(10, 2)),
            "raw": pa.array([b"1234", b"abcd", None], pa.binary(4)),
            "day": pa.array([-1_000_000, 3_000_000, 0], pa.date32()),  # before 1, after 9999
            "moment": pa.array([-(10**17), 3 * 10**17, None], pa.timestamp("us")),
            "instant": pa.array([1, 2, 3], pa.timestamp("us", "Europe/Oslo")),
            "point": pa.array([{"x": 1, "y": ["a"]}, None, {"x": None, "y": []}]),
            "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "a.b": pa.array([True, None, False]),
            "small": pa.array([1, 2, None], pa.int16()),
            "text": pa.array(["x", None, "é"], pa.large_string()),
        }
    )
    return rows if changed else rows.slice(0, 2)


def _as_shown(catalog: Catalog, name: str) -> dict[str, Any]:
    """All values as text, by column, in the order of the key; Python lacks some of the dates."""
    rows = catalog.load_table(name).scan().to_arrow()
    columns: dict[str, Any] = {}
    for field in rows.schema:
        column = rows[field.name]
        if pa.types.is_date(field.type):
            column = column.cast(pa.int32())
        elif pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())
        columns[field.name] = [str(value) for value in column.to_pylist()]
    order = sorted(range(rows.num_rows), key=lambda at: columns["id"][at])
    return {key: [values[at] for at in order] for key, values in columns.items()}


@pytest.mark.usefixtures("no_frames")
def test_values_of_every_type_are_merged_as_in_this_process(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    """A UUID is the key. Spark has neither UUIDs nor bytes of fixed size."""
    pq.write_table(_typed(changed=False), tmp_path / "a.parquet")
    pq.write_table(_typed(changed=True), tmp_path / "b.parquet")
    for name, session in (("db.t", spark), ("db.local", None)):
        engine = {} if session is not None else {"engine": "local"}
        first = _load(catalog, session, tmp_path / "a.parquet", name, **engine)
        assert (first.rows_inserted, first.direct) == (2, session is not None)
        report = _load(catalog, session, tmp_path / "b.parquet", name, **engine)
        assert (report.rows_inserted, report.rows_updated, report.rows_unchanged) == (1, 1, 1)
    tables = [catalog.load_table(name) for name in ("db.t", "db.local")]
    assert tables[0].schema().as_struct() == tables[1].schema().as_struct()
    assert _as_shown(catalog, "db.t") == _as_shown(catalog, "db.local")


@pytest.mark.slow
@pytest.mark.usefixtures("no_frames")
def test_uuids_are_merged_into_a_text_column_that_an_earlier_version_created(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    ids = [uuid.UUID(int=number) for number in range(3)]
    catalog.create_table("db.t", pa.schema([("id", pa.string()), ("n", pa.int64())]))
    ice.append(catalog.load_table("db.t"), pa.table({"id": [str(ids[0])], "n": [0]}))
    rows = pa.table({"id": pa.array([each.bytes for each in ids], pa.uuid()), "n": [7, 8, 9]})
    pq.write_table(rows, tmp_path / "a.parquet")
    report = _load(catalog, spark, tmp_path / "a.parquet", "db.t")
    assert (report.direct, report.rows_updated, report.rows_inserted) == (True, 1, 2)
    assert [row["id"] for row in _rows(catalog, "db.t")] == [str(each) for each in ids]


@pytest.mark.slow
def test_values_that_spark_must_cast_are_merged_through_a_frame(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    ice.append(catalog.load_table("db.t"), pa.table({"id": [1], "name": ["x"]}))
    pq.write_table(pa.table({"id": [1, 2], "name": [10, 20]}), tmp_path / "a.parquet")
    report = _load(catalog, spark, tmp_path / "a.parquet", "db.t")
    assert (report.direct, report.rows_updated, report.rows_inserted) == (False, 1, 1)
    assert _rows(catalog, "db.t") == [{"id": 1, "name": "10"}, {"id": 2, "name": "20"}]


@pytest.mark.slow
@pytest.mark.usefixtures("no_frames")
def test_changes_and_deletions_are_merged_as_in_this_process(
    spark: Any, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns that only the merge uses are not written, and new ones are added."""
    monkeypatch.setattr(direct_source, "LEAST_BYTES_PER_TASK", 1000)
    old = orders(0, 3000)
    pq.write_table(old, tmp_path / "old.parquet")
    changes = orders(1000, 4000, op=["D" if n % 5 == 0 else "U" for n in range(4000)])
    changes = changes.append_column("note", pa.array(["n"] * 4000))
    changes = changes.append_column("at", pa.array(range(4000)))
    twice = changes.slice(0, 100).set_column(5, "at", pa.array(range(5000, 5100)))
    twice = twice.set_column(1, "price", pa.array([-1.0] * 100))
    pq.write_table(changes, tmp_path / "1.parquet")
    pq.write_table(twice, tmp_path / "2.parquet")
    options: dict[str, Any] = {
        "delete_when": "op = 'D'",
        "on_duplicate": "last",
        "last_by": "at",
        "schema_mode": "evolve",
    }
    figures = []
    for name, session in (("db.t", spark), ("db.local", None)):
        engine = {} if session is not None else {"engine": "local"}
        _load(catalog, session, tmp_path / "old.parquet", name, **engine)
        sources = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
        report = _load(catalog, session, sources, name, **engine, **options)
        assert report.direct == (session is not None)
        counted = (report.rows_inserted, report.rows_updated, report.rows_deleted)
        figures.append((report.rows_read, *counted, report.schema_changes))
    assert figures[0] == figures[1]
    assert figures[0][0] == 4100
    assert _rows(catalog, "db.t") == _rows(catalog, "db.local")
    again = _load(catalog, spark, sources, "db.t", **options)
    assert (again.status, again.rows_read) == ("unchanged", 4100)


@pytest.mark.slow
@pytest.mark.usefixtures("no_frames")
def test_keys_that_are_null_or_come_twice_are_refused_with_examples(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"id": [1, 2, 2], "n": [1, 2, 3]}), tmp_path / "twice.parquet")
    pq.write_table(pa.table({"id": [1, None], "n": [1, 2]}), tmp_path / "null.parquet")
    with pytest.raises(ice.DuplicateKeysError, match="id = 2"):
        _load(catalog, spark, tmp_path / "twice.parquet", "db.t")
    with pytest.raises(ice.InvalidDataError, match="null in the key"):
        _load(catalog, spark, tmp_path / "null.parquet", "db.t")
    assert not catalog.table_exists("db.t")


@pytest.mark.usefixtures("no_frames")
def test_a_file_that_changes_before_a_task_reads_it_fails_the_merge(
    spark: Any, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(orders(0, 10), path)
    _load(catalog, spark, path, "db.t")
    pq.write_table(orders(0, 20), path)
    begin = KeyedFrame.__init__

    def change_first(self: KeyedFrame, *arguments: Any) -> None:
        pq.write_table(orders(0, 20, price=[1.0] * 20), path)
        os.utime(path, (1, 1))
        begin(self, *arguments)

    monkeypatch.setattr(KeyedFrame, "__init__", change_first)
    with pytest.raises(ice.SourceError, match="changed"):
        _load(catalog, spark, path, "db.t")
    assert len(_rows(catalog, "db.t")) == 10
    assert not ice.orphans(catalog.load_table("db.t"), older_than=0).files


@pytest.mark.slow
def test_a_file_that_changes_after_it_was_read_does_not_change_the_merge(
    spark: Any, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps the rows between the jobs of a merge."""
    path = tmp_path / "a.parquet"
    pq.write_table(orders(0, 10), path)
    check = KeyedFrame.check

    def change_after(self: KeyedFrame) -> Any:
        result = check(self)
        pq.write_table(orders(100, 20), path)
        return result

    monkeypatch.setattr(KeyedFrame, "check", change_after)
    report = _load(catalog, spark, path, "db.t")
    assert (report.direct, report.rows_inserted, report.rows_read) == (True, 10, 10)
    assert _rows(catalog, "db.t") == sorted(orders(0, 10).to_pylist(), key=lambda r: str(r["id"]))


@pytest.mark.slow
@pytest.mark.usefixtures("no_frames")
def test_a_merge_of_sources_without_rows_creates_the_table_and_changes_nothing_else(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    catalog.create_table("db.source", orders(0, 1).schema)
    report = _load(catalog, spark, "table:db.source", "db.t")
    assert (report.direct, report.created, report.rows_read) == (True, True, 0)
    ice.append(catalog.load_table("db.t"), orders(0, 5))
    pq.write_table(orders(0, 1).slice(0, 0), tmp_path / "a.parquet")
    report = _load(catalog, spark, [tmp_path / "a.parquet", "table:db.source"], "db.t")
    assert (report.direct, report.rows_read, report.rows_inserted) == (True, 0, 0)
    assert len(_rows(catalog, "db.t")) == 5
