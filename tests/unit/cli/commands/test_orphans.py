"""`icestream orphans`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.unit.cli.conftest import Run


@pytest.fixture
def stray(orders: Table) -> Path:
    """A file that nothing refers to, four days old."""
    path = Path(orders.location().removeprefix("file://")) / "data" / "stray.parquet"
    path.write_bytes(b"0" * 2048)
    four_days_ago = path.stat().st_mtime - 4 * 86_400
    os.utime(path, (four_days_ago, four_days_ago))
    return path


def test_orphans_are_shown_and_kept(stray: Path, run: Run) -> None:
    shown = run("orphans", "shop.orders")
    assert shown.exit_code == 0, shown.stderr
    assert "1 orphan, 2 kB" in shown.stdout
    assert str(stray) in shown.stdout
    assert "Delete them with --delete." in shown.stdout
    assert stray.exists()


def test_only_files_that_are_old_enough_are_deleted(stray: Path, run: Run) -> None:
    young = json.loads(run("orphans", "shop.orders", "--older-than", "5d", "--json").stdout)
    assert (young["table"], young["count"], young["kept_young"]) == ("shop.orders", 0, 1)
    assert "no orphans" in run("orphans", "shop.orders", "--older-than", "2000-01-01").stdout
    gone = json.loads(
        run("orphans", "shop.orders", "--older-than", "12h", "--delete", "--json").stdout
    )
    assert gone["files_deleted"] == 1
    assert not stray.exists()


def test_what_was_deleted_is_said(stray: Path, run: Run) -> None:
    shown = run("orphans", "shop.orders", "--delete").stdout
    assert "1 deleted, 2 kB" in shown
    assert "Delete them" not in shown


def test_an_age_that_is_none_is_refused(orders: Table, run: Run) -> None:
    shown = run("orphans", "shop.orders", "--older-than", "soon")
    assert shown.exit_code == 2
    assert "write it like 3d, 12h" in shown.stderr


def test_another_table_in_the_same_folders_is_refused_in_words_of_the_command_line(
    catalog: Catalog, orders: Table, stray: Path, run: Run
) -> None:
    catalog.create_table("shop.beside", orders.schema(), location=orders.location())
    refused = run("orphans", "shop.orders", "--delete")
    assert refused.exit_code != 0
    assert "shop.beside" in refused.stderr
    assert "--other-tables keep" in refused.stderr
    assert stray.exists()
    shown = run("orphans", "shop.orders", "--delete", "--other-tables", "keep", "--memory", "32MB")
    assert shown.exit_code == 0, shown.stderr
    assert "that other tables may use" in shown.stdout
    assert not stray.exists()


def test_the_files_of_a_dropped_table_are_orphans(
    catalog: Catalog, orders: Table, run: Run
) -> None:
    beside = catalog.create_table("shop.beside", orders.schema(), location=orders.location())
    catalog.drop_table("shop.beside")
    uuid = str(beside.metadata.table_uuid)
    refused = run("orphans", "shop.orders", "--older-than", "0s", "--delete")
    assert f"--dropped {uuid}" in " ".join(refused.stderr.split())
    shown = run("orphans", "shop.orders", "--older-than", "0s", "--delete", "--dropped", uuid)
    assert "1 deleted" in shown.stdout, shown.stderr


def test_metadata_of_lost_commits_is_told_of_and_found_on_request(orders: Table, run: Run) -> None:
    current = Path(orders.metadata_location.removeprefix("file://"))
    lost = current.with_name("00009-lost.metadata.json")
    lost.write_bytes(current.read_bytes())
    shown = run("orphans", "shop.orders", "--older-than", "0s", "--delete")
    assert "--only-catalog" in shown.stdout, shown.stderr
    assert lost.exists()
    run("orphans", "shop.orders", "--older-than", "0s", "--delete", "--only-catalog")
    assert not lost.exists()
