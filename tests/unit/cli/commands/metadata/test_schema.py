"""`icestream schema`."""

from __future__ import annotations

import json

from pyiceberg.table import Table

from tests.unit.cli.conftest import Run


def test_columns_are_shown(orders: Table, run: Run) -> None:
    assert ["1", "id", "long"] in [
        line.split() for line in run("schema", "shop.orders").stdout.splitlines()
    ]
    document = json.loads(run("schema", "shop.orders", "--json").stdout)
    assert [each["name"] for each in document["columns"]] == ["id", "price", "country", "day"]
    assert "dry_run" not in document


def test_columns_are_changed_in_one_commit(orders: Table, run: Run) -> None:
    options = ["--add", "cost=decimal(10,2)", "--rename", "price=amount", "--drop", "country"]
    planned = run("schema", "shop.orders", *options, "--dry-run")
    assert "dry run: nothing was changed" in planned.stdout
    assert orders.refresh().schema().column_names == ["id", "price", "country", "day"]
    document = json.loads(run("schema", "shop.orders", *options, "--json").stdout)
    names = [each["name"] for each in document["columns"]]
    assert names == orders.refresh().schema().column_names == ["id", "amount", "day", "cost"]


def test_a_change_that_is_not_possible_is_an_invalid_call(orders: Table, run: Run) -> None:
    for options in (("--widen", "id=int"), ("--drop", "nope"), ("--add", "x=y"), ("--add", "x")):
        assert run("schema", "shop.orders", *options).exit_code == 2, options
