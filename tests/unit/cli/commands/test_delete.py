"""`icestream delete`."""

from __future__ import annotations

import json

from pyiceberg.table import Table

import icestream as ice
from tests.support.stored import folder_of, stored_files
from tests.unit.cli.conftest import ROWS, Run


def test_a_delete_says_how_many_rows_went(orders: Table, run: Run) -> None:
    shown = run("delete", "shop.orders", "--where", "id < 10")
    assert shown.exit_code == 0, shown.stderr
    assert ["rows", "deleted", "10"] in [line.split() for line in shown.stdout.splitlines()]
    again = json.loads(run("delete", "shop.orders", "--where", "id < 10", "--json").stdout)
    assert again["snapshot_id"] is None
    assert again["rows_deleted"] == 0
    nothing = run("delete", "shop.orders", "--where", "id < 10")
    assert "nothing to change, so there is no new snapshot" in nothing.stdout
    assert ice.scan(orders.refresh()).to_reader().read_all().num_rows == ROWS - 10


def test_a_delete_needs_its_filter(orders: Table, run: Run) -> None:
    shown = run("delete", "shop.orders")
    assert shown.exit_code == 2
    assert "--where" in shown.stderr
    assert "icestream delete --help" in shown.stderr


def test_a_dry_run_counts_the_rows_and_keeps_them(orders: Table, run: Run) -> None:
    before = stored_files(folder_of(orders))
    shown = run("delete", "shop.orders", "--where", "id < 610", "--dry-run")
    assert "would change (dry run: nothing was changed)" in shown.stdout
    document = json.loads(
        run("delete", "shop.orders", "--where", "id < 610", "--dry-run", "--json").stdout
    )
    planned = {name: document[name] for name in ("rows_deleted", "files_removed", "bytes_removed")}
    assert (document["dry_run"], document["snapshot_id"]) == (True, None)
    assert stored_files(folder_of(orders)) == before
    none = run("delete", "shop.orders", "--where", "id < 0", "--dry-run")
    assert "no row would change" in none.stdout
    done = json.loads(run("delete", "shop.orders", "--where", "id < 610", "--json").stdout)
    assert {name: done[name] for name in planned} == planned
    assert planned["rows_deleted"] == 610
    assert set(done) == set(document)


def test_a_missing_branch_is_answered_with_the_command_that_creates_it(
    orders: Table, run: Run
) -> None:
    shown = run("delete", "shop.orders", "--where", "id < 10", "--branch", "audit")
    assert shown.exit_code == 2
    assert "`icestream branch create shop.orders audit`" in shown.stderr
