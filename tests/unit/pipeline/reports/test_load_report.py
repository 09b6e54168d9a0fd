"""The report of a load: facts that are stored as they are returned."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog

from tests.support.load_cases import CASES, Load, orders, outcome


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


def test_reports_of_a_case_can_be_compared(load: Load, catalog: Catalog, tmp_path: Path) -> None:
    result = outcome(CASES["evolve_and_discard"](load, tmp_path), catalog, tmp_path)
    assert len(result.rows["db.t"]) == 30
    assert result.columns["db.t"][-1] == "note string"


def test_data_files_of_a_table_are_source_files(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        pq.write_table(orders(0, 100), tmp_path / f"{name}.parquet")
        load(tmp_path / f"{name}.parquet", "db.t")
    sizes = [
        task.file.file_size_in_bytes for task in catalog.load_table("db.t").scan().plan_files()
    ]
    report = load("table:db.t", "db.copy")
    assert (report.files_read, report.bytes_read) == (2, sum(sizes))
    both = load(["table:db.t", tmp_path / "a.parquet"], "db.both", where="id >= 0")
    file_bytes = (tmp_path / "a.parquet").stat().st_size
    assert (both.files_read, both.bytes_read) == (3, sum(sizes) + file_bytes)
    assert load({"table": "db.t", "where": "id < 0"}, "db.none").files_read == 0
    assert load("table:db.t", "db.copy").files_read == 0  # already loaded
