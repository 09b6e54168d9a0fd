"""The same loads on Spark and in this process: the same rows, and reports that agree."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.errors import (
    DuplicateKeysError,
    InvalidArgumentError,
    MissingExtraError,
    SourceError,
)
from icestream.pipeline.engines.spark_watch import SparkWatch
from tests.support.load_cases import CASES, Load, Outcome, orders, outcome
from tests.support.tables import make_catalog


def _load(catalog: Catalog, folder: Path, **fixed: Any) -> Load:
    def run(*arguments: Any, **options: Any) -> ice.LoadReport:
        report = ice.load(*arguments, catalog=catalog, state=folder / "state", **fixed, **options)
        assert isinstance(report, ice.LoadReport)
        return report

    return run


def _run(case: str, folder: Path, **fixed: Any) -> Outcome:
    data = folder / "data"
    data.mkdir(parents=True)
    opened = make_catalog(folder)
    try:
        reports = CASES[case](_load(opened, folder, **fixed), data)
        return outcome(reports, opened, data)
    finally:
        opened.close()


_LONG = (
    "evolve_and_discard",
    "files_of_all_formats",
    "from_tables_and_streams",
    "incremental",
)


@pytest.mark.parametrize(
    "case",
    [pytest.param(name, marks=[pytest.mark.slow] if name in _LONG else []) for name in CASES],
)
def test_a_load_does_the_same_on_both_engines(spark: Any, tmp_path: Path, case: str) -> None:
    local = _run(case, tmp_path / "local", engine="local")
    on_spark = _run(case, tmp_path / "spark", engine="spark", spark=spark)
    assert on_spark.columns == local.columns
    assert on_spark.rows == local.rows
    for theirs, ours in zip(on_spark.reports, local.reports, strict=True):
        # Every engine writes the same data into files of its own.
        assert {**theirs, "bytes_read": 0} == {**ours, "bytes_read": 0}


def test_what_fails_leaves_no_table_and_says_why(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    load = _load(catalog, tmp_path, spark=spark)
    (tmp_path / "a.csv").write_text("id,price\n1,2.5\n2,cheap\n")
    with pytest.raises(SourceError, match=r"a\.csv', line 3, .*'cheap'"):
        load(tmp_path / "a.csv", "db.t", schema={"id": "long", "price": "double"})
    frame = spark.createDataFrame([(1, "a"), (1, "b")], "id long, name string")
    with pytest.raises(DuplicateKeysError):
        load(frame, "db.t", mode="merge", keys="id")
    with pytest.raises(InvalidArgumentError, match="the transform failed"):
        load(frame, "db.t", transform="SELECT nothing FROM source")
    with pytest.raises(MissingExtraError, match="spark-avro"):
        load({"path": str(tmp_path / "x.avro"), "format": "avro"}, "db.t")
    assert catalog.list_tables("db") == []


@pytest.mark.slow
def test_frames_formats_and_functions_are_loaded(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    load = _load(catalog, tmp_path, spark=spark)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    spark.createDataFrame([("kept",)], "value string").createOrReplaceTempView("source")
    frame = spark.createDataFrame([("three",)], "value string")
    report = load(
        [{"spark_format": "text", "path": str(tmp_path / "a.txt")}, frame],
        "db.t",
        transform="SELECT upper(value) AS value FROM source",
    )
    assert report.rows_inserted == 3
    assert spark.table("source").collect()[0][0] == "kept"
    load(frame, "db.t", transform=lambda rows: rows.selectExpr("'four' AS value"))
    found = catalog.load_table("db.t").scan().to_arrow().column("value").to_pylist()
    assert sorted(found) == ["ONE", "THREE", "TWO", "four"]


def test_rows_of_a_table_are_counted_before_the_transform(
    spark: Any, catalog: Catalog, tmp_path: Path
) -> None:
    load = _load(catalog, tmp_path, spark=spark)
    load(orders(0, 50), "db.source")
    report = load("table:db.source", "db.t", transform="SELECT * FROM source WHERE id < 20")
    assert (report.rows_read, report.rows_inserted) == (50, 20)


@pytest.mark.slow
def test_what_spark_reads_by_itself_is_seen_while_it_does(spark: Any, tmp_path: Path) -> None:
    pq.write_table(orders(0, 1000), tmp_path / "a.parquet")
    progress = ice.LoadProgress()

    def slowly(batches: Any) -> Any:
        for batch in batches:
            time.sleep(1)
            yield batch

    read = spark.read.parquet(str(tmp_path / "a.parquet"))
    with SparkWatch(spark, progress, None, native_rows=900):
        assert read.select("id").mapInArrow(slowly, "id bigint").count() == 1000
    assert progress.rows == 900, "no more than there are"
    assert progress.tasks_total == 1


@pytest.mark.slow
def test_the_report_tells_of_workers_and_text_is_cut_for_tasks(
    spark: Any, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icestream.pipeline.engines.spark_files._SMALLEST_PART_BYTES", 1000)
    (tmp_path / "a.csv").write_text("id\n" + "".join(f"{number}\n" for number in range(5000)))
    pq.write_table(orders(5000, 10).select(["id"]), tmp_path / "_hidden.parquet")
    report = _load(catalog, tmp_path, spark=spark)(
        [tmp_path / "a.csv", tmp_path / "_hidden.parquet"],
        "db.t",
        transform="SELECT id FROM source WHERE id >= 10",
    )
    assert (report.rows_read, report.rows_inserted) == (5010, 5000)
    assert report.peak_worker_bytes is not None
    assert report.peak_worker_bytes > 20_000_000
    assert list(report.stages) == ["open", "load"]
    assert report.memory_limit_bytes == 64_000_000
