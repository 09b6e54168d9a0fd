"""`icestream health`."""

from __future__ import annotations

import json
from unittest import mock

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

import icestream as ice
from icestream.cli.commands import health
from tests.unit.cli.conftest import Run, order_rows


def test_health_draws_file_sizes_and_advises_in_words_of_the_command_line(
    orders: Table, run: Run
) -> None:
    shown = run("health", "shop.orders")
    assert shown.exit_code == 0, shown.stderr
    bars = [line for line in shown.stdout.splitlines() if "█" in line]
    assert [line.split()[-3] for line in bars] == ["3"]
    assert "icestream compact shop.orders" in " ".join(shown.stdout.split())


def test_health_as_json_has_every_figure(orders: Table, run: Run) -> None:
    report = json.loads(run("health", "shop.orders", "--json").stdout)
    assert (report["table"], report["files"], report["rows"]) == ("shop.orders", 3, 1800)
    assert report["file_sizes"][0]["files"] == 3
    assert "run icestream compact shop.orders" in report["advice"][0]


def test_a_table_in_good_order_is_told_so(orders: Table, run: Run) -> None:
    ice.compact(orders)
    assert "In good order: there is nothing to do." in run("health", "shop.orders").stdout


def test_health_of_an_empty_table_draws_nothing(catalog: Catalog, run: Run) -> None:
    catalog.create_table("shop.empty", order_rows(0, 1).schema)
    shown = run("health", "shop.empty")
    assert shown.exit_code == 0, shown.stderr
    assert "█" not in shown.stdout


def test_health_draws_the_largest_partitions(catalog: Catalog, run: Run) -> None:
    rows = order_rows(0, 300)
    table = catalog.create_table("shop.parts", rows.schema)
    with table.update_spec() as update:
        update.add_identity("country")
    ice.append(table, rows)
    lines = run("health", "shop.parts").stdout.splitlines()
    drawn = lines[lines.index("Largest partitions") + 1 :]
    assert drawn[0].split()[0] == "country=NO"
    assert drawn[0].endswith("1 file (1 small), 200 rows")
    assert drawn[1].split()[0] == "country=SE"


def test_where_blocks_can_not_be_drawn_there_are_signs() -> None:
    with mock.patch.object(health, "can_draw", return_value=False):
        assert health._bar(10, 20) == "#" * 20
        assert health._bar(0, 20) == ""


def test_advice_can_be_pasted_as_it_is(orders: Table, run: Run) -> None:
    shown = run("health", "shop.orders", "--catalog", "local")
    line = next(line for line in shown.stdout.splitlines() if "icestream compact" in line)
    command = line[line.index("icestream compact") :]
    assert command == "icestream compact shop.orders --catalog local"
    assert max(map(len, shown.stdout.partition("Advice")[2].splitlines())) <= 79
    assert run(*command.split()[1:]).exit_code == 0
