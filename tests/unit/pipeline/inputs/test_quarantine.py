"""Bad records go to a table of their own, once."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog import Catalog

from tests.support.load_cases import CASES, Load, rows_in


def test_bad_records_go_to_a_table_of_their_own_once(
    load: Load, catalog: Catalog, tmp_path: Path
) -> None:
    first, second = CASES["quarantine"](load, tmp_path)
    assert (first.rows_read, first.rows_inserted, first.rows_quarantined) == (53, 49, 4)
    assert first.quarantine == "db.t_quarantine"
    assert second.already_committed
    bad = rows_in(catalog, "db.t_quarantine")
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
    assert len(rows_in(catalog, "db.t_quarantine")) == 4
