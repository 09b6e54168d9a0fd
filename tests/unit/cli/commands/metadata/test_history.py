"""`icestream snapshots` and `icestream rollback`."""

from __future__ import annotations

import json

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from tests.unit.cli.conftest import ROWS, Run, order_rows


def test_snapshots_are_listed_newest_first_with_their_branches(orders: Table, run: Run) -> None:
    first, _, third = (each.snapshot_id for each in orders.snapshots())
    with orders.manage_snapshots() as refs:
        refs.create_branch(first, "side").create_tag(third, "v1")
    shown = run("snapshots", "shop.orders")
    assert shown.exit_code == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert (lines[1][0], lines[1][-2:]) == (str(third), ["main,", "v1"])
    assert (lines[3][0], lines[3][-1]) == (str(first), "side")
    document = json.loads(run("snapshots", "shop.orders", "--json").stdout)
    assert document["snapshots"][0]["snapshot_id"] == str(third)
    side = json.loads(run("snapshots", "shop.orders", "--branch", "side", "--json").stdout)
    assert [each["snapshot_id"] for each in side["snapshots"]] == [str(first)]
    assert "... and 2 older" in run("snapshots", "shop.orders", "--limit", "1").stdout
    wrong = run("snapshots", "shop.orders", "--branch", "nope")
    assert (wrong.exit_code, "it has main, side, v1" in wrong.stderr) == (2, True)


def test_an_empty_table_has_no_snapshots(catalog: Catalog, run: Run) -> None:
    catalog.create_table("shop.empty", order_rows(0, 1).schema)
    assert run("snapshots", "shop.empty").stdout == "shop.empty has no snapshots: it is empty\n"
    assert run("rollback", "shop.empty").exit_code == 2


def test_a_rollback_says_what_it_would_do_and_did(orders: Table, run: Run) -> None:
    first, second, third = (str(each.snapshot_id) for each in orders.snapshots())
    planned = json.loads(run("rollback", "shop.orders", "--dry-run", "--json").stdout)
    assert (planned["dry_run"], planned["undone"]) == (True, [third])
    assert ice.scan(orders.refresh()).to_reader().read_all().num_rows == ROWS
    shown = run("rollback", "shop.orders")
    assert f"main went back to snapshot {second}" in shown.stdout
    assert "1,800 became 1,200" in shown.stdout
    assert "(in no branch)" in run("snapshots", "shop.orders").stdout
    run("rollback", "shop.orders", "--to", first)
    assert "already" in run("rollback", "shop.orders", "--to", first).stdout
    refused = run("rollback", "shop.orders", "--to", third)
    assert refused.exit_code == 2
    assert "publish that branch to move forward" in refused.stderr
    assert ice.scan(orders.refresh()).to_reader().read_all().num_rows == 600


def test_a_rollback_to_a_time_takes_the_snapshot_before_it(orders: Table, run: Run) -> None:
    first, second, _ = orders.snapshots()
    time = str(second.timestamp_ms)
    document = json.loads(run("rollback", "shop.orders", "--before", time, "--json").stdout)
    assert document["snapshot_id"] == str(first.snapshot_id)
    assert run("rollback", "shop.orders", "--before", "2020-01-01").exit_code == 2
