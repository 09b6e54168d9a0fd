"""`icestream delete`."""

from __future__ import annotations

import json

from pyiceberg.table import Table

import icestream as ice
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
