"""`icestream drop` and `icestream rename`."""

from __future__ import annotations

import json
from unittest import mock

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.support.stored import folder_of, stored_files
from tests.unit.cli.conftest import Run


def test_a_drop_needs_a_confirmation(catalog: Catalog, orders: Table, run: Run) -> None:
    refused = run("drop", "shop.orders")
    assert refused.exit_code == 2
    assert "pass --yes" in refused.stderr
    with (
        mock.patch("icestream.cli.commands.metadata.table_entry.sys") as system,
        mock.patch("click.confirm", side_effect=KeyboardInterrupt) as confirm,
    ):
        system.stdin.isatty.return_value = True
        assert run("drop", "shop.orders").exit_code == 130
    assert confirm.call_args.args == ("Drop shop.orders (its files stay)?",)
    assert catalog.table_exists("shop.orders")


def test_a_drop_says_where_the_files_are(catalog: Catalog, orders: Table, run: Run) -> None:
    document = json.loads(run("drop", "shop.orders", "--yes", "--json").stdout)
    assert (document["table"], document["files_deleted"]) == ("shop.orders", 0)
    assert not catalog.table_exists("shop.orders")
    catalog.register_table("shop.orders", document["metadata_location"])
    shown = run("drop", "shop.orders", "--yes")
    assert orders.location() in shown.stdout
    assert run("drop", "shop.orders", "--yes").exit_code == 8


def test_a_purge_deletes_the_files(catalog: Catalog, orders: Table, run: Run) -> None:
    count = len(stored_files(folder_of(orders)))
    planned = json.loads(run("drop", "shop.orders", "--purge", "--dry-run", "--json").stdout)
    assert (planned["files"], planned["dry_run"]) == (count, True)
    catalog.register_table("shop.copy", orders.metadata_location)
    refused = run("drop", "shop.orders", "--purge", "--yes")
    assert refused.exit_code == 8
    assert "shop.copy of the same catalog has files in the same folders" in refused.stderr
    catalog.drop_table("shop.copy")
    shown = run("drop", "shop.orders", "--purge", "--yes")
    assert f"files deleted  {count}," in shown.stdout
    assert not folder_of(orders).exists()


def test_a_renamed_table_has_its_rows(catalog: Catalog, orders: Table, run: Run) -> None:
    shown = run("rename", "shop.orders", "shop.sales")
    assert shown.exit_code == 0
    assert orders.location() in shown.stdout
    assert run("scan", "shop.sales", "--limit", "1").exit_code == 0
    document = json.loads(run("rename", "shop.sales", "shop.orders", "--json").stdout)
    assert document["new_name"] == "shop.orders"
    assert run("rename", "shop.orders", "nope.orders").exit_code == 2
