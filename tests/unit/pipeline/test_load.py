"""Loads by the engine in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from tests.support.load_cases import CASES, Load, orders, rows_in


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
    by_id = {row["id"]: row for row in rows_in(catalog)}
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
    assert rows_in(catalog) == [{"country": "NO", "orders": 66, "ids": 3267}]
    assert str(catalog.load_table("db.t").schema().find_type("ids")) == "long"


def test_columns_that_the_table_lacks_are_dropped_or_added(load: Load, tmp_path: Path) -> None:
    _, discarded, evolved = CASES["evolve_and_discard"](load, tmp_path)
    assert discarded.columns_discarded == ("note",)
    assert len(evolved.schema_changes) == 1


def test_an_incremental_load_reads_what_is_new(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    reports = CASES["incremental"](load, tmp_path)
    assert [report.rows_read for report in reports] == [10, 0, 11, 21, 10, 10]
    assert reports[1].snapshot_id is None
    assert rows_in(catalog) == rows_in(catalog, "db.copy")
    assert len(rows_in(catalog)) == 31


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
