"""`icestream compact`."""

from __future__ import annotations

import json

from pyiceberg.table import Table

from tests.unit.cli.conftest import Run


def test_compact_says_how_many_files_became_how_many(orders: Table, run: Run) -> None:
    shown = run("compact", "shop.orders")
    assert shown.exit_code == 0, shown.stderr
    assert ["files", "3", "became", "1"] in [line.split() for line in shown.stdout.splitlines()]
    assert run("compact", "shop.orders").stdout == "shop.orders: nothing to rewrite\n"
    report = json.loads(run("compact", "shop.orders", "--json").stdout)
    assert report["table"] == "shop.orders"
    assert report["snapshot_ids"] == []


def test_the_options_of_compact_are_passed_on(orders: Table, run: Run) -> None:
    shown = run(
        "compact", "shop.orders", "--where", "id < 700", "--min-files", "2",
        "--target-file-size", "100MB", "--property", "why=test", "--memory", "64MB", "--json",
    )  # fmt: skip
    report = json.loads(shown.stdout)
    assert (report["files_removed"], report["files_added"]) == (2, 1)
    assert report["memory_limit_bytes"] == 64_000_000
    head = orders.refresh().metadata.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.additional_properties["why"] == "test"


def test_a_dry_run_says_what_would_be_rewritten(orders: Table, run: Run) -> None:
    shown = run("compact", "shop.orders", "--dry-run")
    assert "would rewrite (dry run: nothing was changed)" in shown.stdout
    planned = json.loads(run("compact", "shop.orders", "--dry-run", "--json").stdout)
    assert (planned["snapshot_ids"], planned["files_removed"], planned["rows_rewritten"]) == (
        [],
        3,
        1800,
    )
    run("compact", "shop.orders")
    assert run("compact", "shop.orders", "--dry-run").stdout == "shop.orders: nothing to rewrite\n"
