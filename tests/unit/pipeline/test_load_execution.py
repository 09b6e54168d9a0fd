"""One load, from its specification to its report: what it does again, and what it tells."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog

import icestream as ice
from icestream.errors import InvalidArgumentError, SchemaMismatchError, SourceError
from icestream.pipeline.reports.load_progress import LoadProgress
from tests.support.load_cases import Load, orders, rows_in


def test_a_second_load_with_the_same_id_does_nothing(load: Load, catalog: Catalog) -> None:
    load(orders(0, 5), "db.t", load_id="a")
    report = load(lambda: pytest.fail("it must not be read"), "db.t", load_id="a")
    assert report.already_committed
    assert report.rows_inserted == 5
    assert len(rows_in(catalog)) == 5


def test_a_load_goes_to_a_branch(load: Load, catalog: Catalog) -> None:
    first = load(orders(0, 5), "db.t")
    table = catalog.load_table("db.t")
    assert first.snapshot_id is not None
    table.manage_snapshots().create_branch(first.snapshot_id, "audit").commit()
    report = load(orders(5, 5), "db.t", branch="audit")
    assert report.branch == "audit"
    assert len(rows_in(catalog)) == 5


def test_progress_is_kept_up_to_date(load: Load, tmp_path: Path) -> None:
    pq.write_table(orders(0, 100), tmp_path / "a.parquet")
    progress = LoadProgress()
    load(tmp_path / "a.parquet", "db.t", progress=progress)
    assert (progress.rows, progress.files, progress.files_total) == (100, 1, 1)
    assert progress.bytes == (tmp_path / "a.parquet").stat().st_size
    assert progress.stage == "done"


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
    assert [row["id"] for row in rows_in(catalog)] == [0, 1]
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
    assert len(rows_in(catalog)) == 6


def test_rows_that_can_not_be_known_again_are_loaded_each_time(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    pq.write_table(orders(0, 1), tmp_path / "a.parquet")
    for _ in range(2):
        load(orders(0, 1), "db.t")
        load(tmp_path / "a.parquet", "db.t", transform=lambda reader: reader)
        load([tmp_path / "a.parquet", lambda: orders(1, 1)], "db.t")
    assert len(rows_in(catalog)) == 8


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
    assert len(rows_in(catalog, "db.t_quarantine")) == 1
