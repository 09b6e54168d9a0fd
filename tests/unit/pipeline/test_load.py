"""Loads by the engine in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.errors import (
    CatalogError,
    DuplicateKeysError,
    InvalidArgumentError,
    MemoryBudgetError,
    SchemaMismatchError,
    SourceError,
)
from icestream.pipeline.reports.load_progress import LoadProgress
from tests.support.load_cases import CASES, Load, orders, outcome


@pytest.fixture
def load(catalog: Catalog, tmp_path: Path) -> Load:
    def run(*arguments: Any, **options: Any) -> ice.LoadReport:
        report = ice.load(
            *arguments, engine="local", catalog=catalog, state=tmp_path / "state", **options
        )
        assert isinstance(report, ice.LoadReport)
        return report

    return run


def rows(catalog: Catalog, name: str = "db.t") -> list[dict[str, Any]]:
    return sorted(catalog.load_table(name).scan().to_arrow().to_pylist(), key=str)


def test_files_of_every_format_make_a_table_and_add_to_it(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    reports = CASES["files_of_all_formats"](load, tmp_path)
    assert [report.rows_inserted for report in reports] == [100, 40, 3, 1]
    assert [report.rows_read for report in reports] == [100, 40, 3, 1]
    assert [report.created for report in reports] == [True, False, False, False]
    assert [report.files_read for report in reports] == [2, 2, 1, 1]
    table = catalog.load_table("db.t")
    assert len(table.metadata.snapshots) == 4
    assert [field.name for field in table.spec().fields] == ["country"]
    by_id = {row["id"]: row for row in rows(catalog)}
    assert by_id[301] == {"id": 301, "price": None, "country": None}
    assert by_id[302] == {"id": 302, "price": 2.0, "country": ""}
    assert by_id[400] == {"id": 400, "price": None, "country": "DK"}


def test_a_merge_creates_the_table_and_changes_it(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    first, second, third = CASES["merge_into_a_new_table"](load, tmp_path)
    assert (first.created, first.rows_inserted) == (True, 100)
    assert (second.rows_updated, second.rows_inserted) == (10, 10)
    assert (third.rows_unchanged, third.snapshot_id) == (20, None)
    assert len(catalog.load_table("db.t").metadata.snapshots) == 2


def test_sql_replaces_a_table(load: Load, catalog: Catalog, tmp_path: Path) -> None:
    CASES["replace_with_sql"](load, tmp_path)
    assert rows(catalog) == [{"country": "NO", "orders": 66, "ids": 3267}]
    assert str(catalog.load_table("db.t").schema().find_type("ids")) == "long"


def test_columns_that_the_table_lacks_are_dropped_or_added(load: Load, tmp_path: Path) -> None:
    _, discarded, evolved = CASES["evolve_and_discard"](load, tmp_path)
    assert discarded.columns_discarded == ("note",)
    assert len(evolved.schema_changes) == 1


def test_bad_records_go_to_a_table_of_their_own_once(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    first, second = CASES["quarantine"](load, tmp_path)
    assert (first.rows_read, first.rows_inserted, first.rows_quarantined) == (53, 49, 4)
    assert first.quarantine == "db.t_quarantine"
    assert second.already_committed
    bad = rows(catalog, "db.t_quarantine")
    assert [(row["line"], row["record"]) for row in sorted(bad, key=lambda r: r["line"])] == [
        (2, "null"),
        (3, '{"id": "x"}'),
        (9, "seven,1"),
        (22, "20"),
    ]
    assert {(row["load_id"], row["load"]) for row in bad} == {("1", "db.t")}
    assert all(row["reason"] and row["quarantined_at"] for row in bad)


def test_bad_records_are_stored_by_the_next_run_if_the_first_died_before_it(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    CASES["quarantine"](load, tmp_path)
    catalog.drop_table("db.t_quarantine")  # as if the process had died between the two commits
    sources = [tmp_path / "a.csv", tmp_path / "b.jsonl"]
    report = load(
        sources,
        "db.t",
        load_id="1",
        bad_records="quarantine",
        schema={"id": "long", "price": "double"},
    )
    assert report.already_committed
    assert report.rows_quarantined == 4
    assert len(rows(catalog, "db.t_quarantine")) == 4


def test_tables_and_streams_are_sources(load: Load, catalog: Catalog, tmp_path: Path) -> None:
    reports = CASES["from_tables_and_streams"](load, tmp_path)
    assert [report.rows_inserted for report in reports] == [30, 20, 35]
    assert len(rows(catalog)) == 55


def test_an_incremental_load_reads_what_is_new(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    reports = CASES["incremental"](load, tmp_path)
    assert [report.rows_read for report in reports] == [10, 0, 11, 21, 10, 10]
    assert reports[1].snapshot_id is None
    assert rows(catalog) == rows(catalog, "db.copy")
    assert len(rows(catalog)) == 31


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


def test_a_second_load_with_the_same_id_does_nothing(load: Load, catalog: Catalog) -> None:
    load(orders(0, 5), "db.t", load_id="a")
    report = load(lambda: pytest.fail("it must not be read"), "db.t", load_id="a")
    assert report.already_committed
    assert report.rows_inserted == 5
    assert len(rows(catalog)) == 5


def test_a_function_transforms_a_stream(load: Load, catalog: Catalog) -> None:
    def cheap(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield batch.filter(pa.compute.field("price") < 1)

    report = load(orders(0, 10), "db.t", transform=cheap)
    assert (report.rows_read, report.rows_inserted) == (10, 2)


def test_an_error_of_a_source_comes_through_sql_as_it_is(load: Load, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n" + "1\n" * 600_000 + "x\n")
    with pytest.raises(SourceError, match="line 600002"):
        load(tmp_path / "a.csv", "db.t", transform="SELECT id + 1 AS id FROM source")


def test_sql_that_is_wrong_is_the_callers_mistake(load: Load) -> None:
    with pytest.raises(InvalidArgumentError, match="the transform failed"):
        load(orders(0, 5), "db.t", transform="SELECT nothing FROM source")


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


def test_a_load_goes_to_a_branch(load: Load, catalog: Catalog) -> None:
    first = load(orders(0, 5), "db.t")
    table = catalog.load_table("db.t")
    assert first.snapshot_id is not None
    table.manage_snapshots().create_branch(first.snapshot_id, "audit").commit()
    report = load(orders(5, 5), "db.t", branch="audit")
    assert report.branch == "audit"
    assert len(rows(catalog)) == 5


def test_the_report_is_returned_and_stored(load: Load, tmp_path: Path) -> None:
    pq.write_table(orders(0, 100), tmp_path / "a.parquet")
    report = load(tmp_path / "a.parquet", "db.t", name="my orders", properties={"team": "x"})
    assert report.report_file is not None
    stored = json.loads(Path(report.report_file).read_text())
    assert stored == json.loads(json.dumps(report.to_dict()))
    assert Path(report.report_file).parent == tmp_path / "state" / "reports"
    assert stored["load"] == "my orders"
    assert stored["bytes_read"] == (tmp_path / "a.parquet").stat().st_size
    assert 0 < stored["peak_bytes_held"] <= stored["memory_limit_bytes"] == 256_000_000
    assert stored["peak_driver_bytes"] > 0
    assert list(stored["stages"]) == ["open", "load", "commit"]
    assert stored["seconds"] >= sum(stored["stages"].values()) * 0.99


def test_a_state_folder_that_can_not_be_written_fails_no_load(
    catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file, no folder")
    report = ice.load(
        orders(0, 5), "db.t", engine="local", catalog=catalog, state=tmp_path / "state"
    )
    assert isinstance(report, ice.LoadReport)
    assert report.snapshot_id is not None
    assert report.report_file is None
    assert "could not be stored" in caplog.text


def test_progress_is_kept_up_to_date(load: Load, tmp_path: Path) -> None:
    pq.write_table(orders(0, 100), tmp_path / "a.parquet")
    progress = LoadProgress()
    load(tmp_path / "a.parquet", "db.t", progress=progress)
    assert (progress.rows, progress.files, progress.files_total) == (100, 1, 1)
    assert progress.bytes == (tmp_path / "a.parquet").stat().st_size
    assert progress.stage == "done"


def test_reports_of_a_case_can_be_compared(load: Load, catalog: Catalog, tmp_path: Path) -> None:
    result = outcome(CASES["evolve_and_discard"](load, tmp_path), catalog, tmp_path)
    assert len(result.rows["db.t"]) == 30
    assert result.columns["db.t"][-1] == "note string"


def test_folders_are_columns_unless_they_are_left_out(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    result = outcome(CASES["hive_folders"](load, data), catalog, data)
    assert result.columns["db.t"][-3:] == ["month int", "year int", "key int"]
    assert (6, 3.0, "SE", 2, None, None) in result.rows["db.t"]
    assert (300, 1.5, None, 3, 2026, None) in result.rows["db.t"]
    assert result.columns["db.typed"][-2:] == ["day date", "at timestamptz"]
    assert result.rows["db.incremental"] == [(0, 0.0, "SE", "7"), (1, 0.5, "NO", "x y")]
    assert result.columns["db.plain"] == ["id long", "price double", "country string"]
    assert [report["rows_inserted"] for report in result.reports] == [11, 1, 1, 2, 2, 2, 0, 1]


def test_a_column_of_folders_has_the_type_of_the_table(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    def put(value: str) -> None:
        (tmp_path / f"data/key={value}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"data/key={value}/a.parquet")

    put("07")
    put("x")
    load(tmp_path / "data", "db.t", incremental=True)
    put("08")  # by itself a number: it is text in the table, and must stay as it is written
    load(tmp_path / "data", "db.t", incremental=True)
    assert [row["key"] for row in rows(catalog)] == ["07", "08", "x"]
    load(tmp_path / "data/key=07", "db.numbers")
    with pytest.raises(SourceError, match=r"value 'x' for 'key', and the column is int32"):
        load(tmp_path / "data/key=x", "db.numbers")


def test_a_column_of_folders_that_the_table_lacks_is_explained(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "day=1").mkdir()
    pq.write_table(orders(0, 1), tmp_path / "a.parquet")
    pq.write_table(orders(1, 1), tmp_path / "day=1" / "a.parquet")
    load(tmp_path / "a.parquet", "db.t")
    with pytest.raises(SchemaMismatchError, match="'day'") as caught:
        load(tmp_path / "day=1", "db.t")
    assert "hive_partitions=False" in caught.value.__notes__[0]
    load({"path": tmp_path / "day=1", "hive_partitions": False}, "db.t")
    assert [row["id"] for row in rows(catalog)] == [0, 1]
    with pytest.raises(InvalidArgumentError, match="give true or false"):
        load({"path": tmp_path / "day=1", "hive_partitions": "no"}, "db.t")


def test_an_append_of_the_same_files_is_already_loaded_unless_again(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    pq.write_table(orders(0, 3), tmp_path / "a.parquet")
    first = load(tmp_path / "a.parquet", "db.t")
    assert (first.status, first.already_committed) == ("loaded", False)
    second = load(tmp_path / "a.parquet", "db.t", name="another", memory="32MB")
    assert (second.status, second.already_committed) == ("already loaded", True)
    assert second.snapshot_id == first.snapshot_id
    assert json.loads(Path(str(second.report_file)).read_text())["status"] == "already loaded"
    plan = ice.load(tmp_path / "a.parquet", "db.t", engine="local", catalog=catalog, dry_run=True)
    assert plan.already_committed
    assert load(tmp_path / "a.parquet", "db.t", again=True).status == "loaded"
    assert load(tmp_path / "a.parquet", "db.t").status == "already loaded"
    assert load(tmp_path / "a.parquet", "db.u").status == "loaded"
    assert len(rows(catalog)) == 6


def test_rows_that_can_not_be_known_again_are_loaded_each_time(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    pq.write_table(orders(0, 1), tmp_path / "a.parquet")
    for _ in range(2):
        load(orders(0, 1), "db.t")
        load(tmp_path / "a.parquet", "db.t", transform=lambda reader: reader)
        load([tmp_path / "a.parquet", lambda: orders(1, 1)], "db.t")
    assert len(rows(catalog)) == 8


def test_a_load_that_failed_is_not_already_loaded(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,price\n1,2\nx\n")
    with pytest.raises(SourceError):
        load(tmp_path / "a.csv", "db.t")
    kept = load(tmp_path / "a.csv", "db.t", bad_records="quarantine")
    assert (kept.rows_inserted, kept.rows_quarantined) == (1, 1)
    again = load(tmp_path / "a.csv", "db.t", bad_records="quarantine")
    assert again.status == "already loaded"
    assert len(rows(catalog, "db.t_quarantine")) == 1
