"""`icestream merge`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import icestream as ice
from icestream.write.sources.file_stream import SourceFiles
from tests.unit.cli.conftest import Run, order_rows


def _rows(table: Table, where: str) -> list[dict[str, object]]:
    read = pa.Table.from_batches(ice.scan(table.refresh(), where=where))
    return read.sort_by("id").to_pylist() if read.num_rows else []


def _files(table: Table) -> set[Path]:
    return set(Path(table.location().removeprefix("file://")).rglob("*.*"))


def test_a_merge_updates_and_inserts_and_keeps_what_the_file_lacks(orders: Table, run: Run) -> None:
    shown = run("merge", "changes.csv", "--into", "shop.orders", "--on", "id")
    assert shown.exit_code == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["rows", "inserted", "1"] in lines
    assert ["rows", "updated", "1"] in lines
    changed = _rows(orders, "id in (1, 5000)")
    assert [(row["price"], row["country"]) for row in changed] == [(99.5, "NO"), (7.25, None)]


def test_a_merge_as_json_is_its_report(orders: Table, run: Run) -> None:
    command = ("merge", "changes.csv", "--into", "shop.orders", "--on", "id", "--load-id", "a")
    report = json.loads(run(*command, "--json").stdout)
    assert report["table"] == "shop.orders"
    assert report["snapshot_id"] == str(orders.refresh().metadata.current_snapshot_id)
    assert (report["rows_inserted"], report["rows_updated"]) == (1, 1)
    again = run(*command)
    assert "committed before; nothing was done" in again.stdout


def test_every_option_of_a_merge_is_passed_on(orders: Table, run: Run, folder: Path) -> None:
    (folder / "feed.json").write_text(
        '{"id": 1, "price": 3.5, "op": "U", "at": 1}\n'
        '{"id": 1, "price": 4.5, "op": "U", "at": 2}\n'
        '{"id": 2, "price": 0.0, "op": "D", "at": 1}\n'
        '{"id": 9000, "price": 1.0, "op": "U", "at": 1}\n'
    )
    orders.manage_snapshots().create_branch(
        orders.refresh().metadata.current_snapshot_id, "work"
    ).commit()
    shown = run(
        "merge", "feed.json", "--into", "shop.orders", "--on", "id",
        "--when-matched", "update", "--when-not-matched", "ignore", "--update-columns", "price",
        "--delete-when", "op = 'D'", "--on-duplicate", "last", "--last-by", "at",
        "--null-keys", "insert", "--no-skip-unchanged", "--write-mode", "merge-on-read",
        "--isolation", "snapshot", "--schema-mode", "discard", "--branch", "work",
        "--property", "team=sales", "--load-id", "feed-1", "--memory", "64MB", "--json",
    )  # fmt: skip
    assert shown.exit_code == 0, shown.stderr
    report = json.loads(shown.stdout)
    assert report["write_mode"] == "merge-on-read"
    assert (report["rows_updated"], report["rows_deleted"], report["rows_inserted"]) == (1, 1, 0)
    assert report["rows_superseded"] == 1
    assert report["memory_limit_bytes"] == 64_000_000
    head = orders.refresh().metadata.snapshot_by_name("work")
    assert head is not None
    assert str(head.snapshot_id) == report["snapshot_id"]
    assert head.summary is not None
    assert head.summary.additional_properties["team"] == "sales"


def test_files_of_all_formats_are_merged_at_once(orders: Table, run: Run, folder: Path) -> None:
    (folder / "in" / "deep").mkdir(parents=True)
    rows = order_rows(2000, 10).select(["id", "price"])
    pq.write_table(rows.slice(0, 2), folder / "in" / "a.parquet")
    pyarrow.orc.write_table(rows.slice(2, 2), folder / "in" / "b.orc")
    with pa.ipc.new_file(folder / "in" / "deep" / "c.arrow", rows.schema) as file:
        file.write_table(rows.slice(4, 2))
    (folder / "in" / "d.jsonl").write_text('{"id": 2006, "price": 1003.0}\n')
    (folder / "in" / "_SUCCESS").write_text("")
    shown = run("merge", "in", "changes.csv", "--into", "shop.orders", "--on", "id", "--json")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout)["rows_inserted"] == 8
    assert [row["price"] for row in _rows(orders, "id >= 2000 and id < 3000")] == [
        1000.0, 1000.5, 1001.0, 1001.5, 1002.0, 1002.5, 1003.0
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "options", "code", "message"),
    [
        ("id,price\n1,2\n1,3\n", (), 3, "--on-duplicate last"),
        ("id,price\n,2\n", (), 3, "--null-keys insert"),
        ("id,price\nx,2\n", (), 3, "can't be read"),
        ("id,colour\n1,red\n", (), 4, "--schema-mode evolve"),
        ("id,price\n1,2\n", ("--on", "nope"), 2, "nope"),
        ("id,price\n1,2\n", ("--memory", "1kB"), 7, "raise --memory"),
        ("id,price\n1,2\n", ("--branch", "nope"), 2, "nope"),
    ],
)
def test_a_merge_that_fails_says_why_and_changes_nothing(
    orders: Table, folder: Path, run: Run, text: str, options: tuple[str, ...], code: int,
    message: str,
) -> None:  # fmt: skip
    (folder / "bad.csv").write_text(text)
    before, files = orders.refresh().metadata.current_snapshot_id, _files(orders)
    shown = run("merge", "bad.csv", "--into", "shop.orders", "--on", "id", *options)
    assert shown.exit_code == code, shown.stderr
    assert message in shown.stderr
    assert shown.stdout == ""
    assert orders.refresh().metadata.current_snapshot_id == before
    assert _files(orders) == files


def test_files_that_are_not_there_are_an_error_of_the_input(orders: Table, run: Run) -> None:
    shown = run("merge", "nope*.csv", "--into", "shop.orders", "--on", "id")
    assert shown.exit_code == 3
    assert "no file is at 'nope*.csv'" in shown.stderr
    assert run("merge", "changes.csv", "--into", "shop.nope", "--on", "id").exit_code == 8


def test_ctrl_c_in_a_merge_leaves_the_table_as_it_was(
    orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SourceFiles.__iter__

    def interrupted(self: SourceFiles) -> Iterator[pa.RecordBatch]:
        yield from read(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(SourceFiles, "__iter__", interrupted)
    files = _files(orders)
    shown = run("merge", "changes.csv", "--into", "shop.orders", "--on", "id")
    assert shown.exit_code == 130
    assert shown.stderr.endswith("icestream: interrupted: shop.orders is unchanged\n")
    assert _files(orders) == files


def test_ctrl_c_after_the_commit_says_that_there_is_a_snapshot(
    orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(table: Table, *args: object, **options: object) -> None:
        ice.append(table, order_rows(7000, 1))
        raise KeyboardInterrupt

    monkeypatch.setattr(ice, "merge", late)
    shown = run("merge", "changes.csv", "--into", "shop.orders", "--on", "id")
    assert shown.exit_code == 130
    snapshot_id = orders.refresh().metadata.current_snapshot_id
    assert f"shop.orders has the new snapshot {snapshot_id}" in shown.stderr


def test_a_dry_run_counts_rows_and_writes_nothing(orders: Table, run: Run) -> None:
    before = _files(orders)
    command = ("merge", "changes.csv", "--into", "shop.orders", "--on", "id")
    shown = run(*command, "--dry-run")
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert "dry run: nothing was changed" in shown.stdout
    assert ["rows", "inserted", "1"] in lines
    assert ["rows", "updated", "1"] in lines
    planned = json.loads(run(*command, "--dry-run", "--json").stdout)
    assert (planned["dry_run"], planned["files_removed"]) == (True, 1)
    assert _files(orders) == before
    done = json.loads(run(*command, "--json").stdout)
    assert set(done) == set(planned)
    assert done["bytes_removed"] == planned["bytes_removed"] > 0


def test_a_repeated_load_id_says_already_loaded_and_counts_no_rows(orders: Table, run: Run) -> None:
    line = ("merge", "changes.csv", "--into", "shop.orders", "--on", "id", "--load-id", "a")
    assert "rows inserted" in run(*line).stdout
    again = run(*line)
    snapshot = orders.refresh().metadata.current_snapshot_id
    assert again.exit_code == 0
    assert again.stdout.splitlines() == [
        "shop.orders: already loaded: a load with this id was committed before; nothing was done",
        f"  by snapshot {snapshot}",
    ]
