"""`icestream branch` and `icestream tag`."""

from __future__ import annotations

import json

from click.testing import CliRunner
from pyiceberg.table import Table

import icestream as ice
from icestream.cli.main import cli
from tests.unit.cli.conftest import Run, order_rows


def test_a_branch_is_created_written_and_published(orders: Table, run: Run) -> None:
    before = str(orders.snapshots()[-1].snapshot_id)
    made = run(
        "branch", "create", "shop.orders", "audit", "--max-age", "7d", "--min-snapshots", "2"
    )
    assert made.stdout == f"shop.orders: branch audit created at snapshot {before}\n"
    assert "removed after 7d, at least 2 kept" in run("branch", "list", "shop.orders").stdout
    run("delete", "shop.orders", "--where", "id < 10", "--branch", "audit")
    assert run("branch", "rename", "shop.orders", "audit", "checked").exit_code == 0
    done = run("branch", "publish", "shop.orders", "checked", "--delete", "--json")
    document = json.loads(done.stdout)
    assert document["previous_snapshot_id"] == before
    assert document["snapshot_id"] == str(orders.refresh().metadata.current_snapshot_id)
    assert set(orders.metadata.refs) == {"main"}


def test_a_branch_that_main_has_left_behind_is_a_conflict(orders: Table, run: Run) -> None:
    run("branch", "create", "shop.orders", "audit")
    ice.append(orders.refresh(), order_rows(9000, 1))
    run("delete", "shop.orders", "--where", "id < 10", "--branch", "audit")
    shown = run("branch", "publish", "shop.orders", "audit")
    assert shown.exit_code == 5
    assert "'main' of shop.orders has snapshots that 'audit' lacks" in shown.stderr.replace(
        "local.", ""
    )


def test_tags_are_listed_with_their_ages(orders: Table, run: Run) -> None:
    first = str(orders.snapshots()[0].snapshot_id)
    assert (
        run("tag", "create", "shop.orders", "v1", "--at", first, "--max-age", "36h").exit_code == 0
    )
    assert run("tag", "create", "shop.orders", "v2", "--from", "v1").exit_code == 0
    document = json.loads(run("tag", "list", "shop.orders", "--json").stdout)
    assert [(each["name"], each["snapshot_id"]) for each in document["tags"]] == [
        ("v1", first),
        ("v2", first),
    ]
    assert document["tags"][0]["max_ref_age_ms"] == 36 * 3600 * 1000
    assert run("tag", "delete", "shop.orders", "v1").exit_code == 0
    for wrong in (
        ("tag", "create", "shop.orders", "v2"),
        ("tag", "create", "shop.orders", "v3", "--at", first, "--from", "v2"),
        ("tag", "create", "shop.orders", "v3", "--max-age", "2026-01-01"),
        ("branch", "delete", "shop.orders", "v2"),
        ("branch", "delete", "shop.orders", "main"),
        ("branch",),
    ):
        assert run(*wrong).exit_code == 2, wrong
    assert "Commands:" in run("tag").stderr


def test_names_are_completed_from_the_table(orders: Table) -> None:
    with orders.manage_snapshots() as refs:
        refs.create_branch(orders.snapshots()[0].snapshot_id, "side").create_tag(
            orders.snapshots()[0].snapshot_id, "v1"
        )

    def completed(words: str) -> list[str]:
        variables = {
            "_ICESTREAM_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        shown = CliRunner().invoke(cli, [], prog_name="icestream", env=variables)
        return [line.partition(",")[2] for line in shown.stdout.splitlines() if line]

    assert completed("icestream branch delete shop.orders ") == ["main", "side"]
    assert completed("icestream tag delete shop.orders ") == ["v1"]
    assert completed("icestream branch del") == ["delete"]
    assert completed("icestream branch list shop.") == ["shop.orders"]
