"""Every command has the common options, and examples at the end of its help."""

from __future__ import annotations

from pyiceberg.table import Table

from icestream.cli.help_screen import EXAMPLES
from icestream.cli.main import cli
from tests.unit.cli.conftest import Run


def test_options_may_stand_before_the_command(orders: Table, run: Run) -> None:
    assert run("--json", "-q", "tables").stdout == run("tables", "--json").stdout
    assert run("--catalog", "nope", "tables").exit_code == 8
    assert run("tables", "--catalog", "nope").exit_code == 8
    small = run("--memory", "1kB", "scan", "shop.orders")
    assert small.exit_code == 7


_BY_COMMAND = [
    (name, example) for name, command in cli.commands.items() for example in command.examples
]


def test_every_command_has_examples_and_help_shows_them(run: Run) -> None:
    assert {name for name, _ in _BY_COMMAND} == set(cli.commands)
    for name, example in _BY_COMMAND:
        assert f"  {example}\n" in run(name, "--help").stdout
    assert all(f"  {example}\n" in run("--help").stdout for example in EXAMPLES)
