"""Help: its examples run as they are written. And completion."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.table import Table

from icestream.cli.help_screen import EXAMPLES
from icestream.cli.main import cli
from tests.unit.cli.conftest import Run

_BY_COMMAND = [
    (name, example) for name, command in cli.commands.items() for example in command.examples
]
_RUN_HERE = [
    example
    for example in [*EXAMPLES, *(line for _, line in _BY_COMMAND)]
    if not set(example) & set("|$")
    and not example.startswith(("icestream bench", "icestream demo", "eval"))
    # It never ends; or it starts a Spark, which tests/spark do.
    and "--watch" not in example
    and (" load " not in example or "--engine local" in example or "--dry-run" in example)
]
_IN_A_SHELL = [
    line for _, line in _BY_COMMAND if "|" in line or ("$" in line and "completion bash" in line)
]


@pytest.mark.parametrize("example", _RUN_HERE)
def test_an_example_runs_as_it_is_written(orders: Table, run: Run, example: str) -> None:
    line = example.partition(">")[0] if "completion" in example else example
    program, *arguments = shlex.split(line)
    assert program == "icestream"
    head = orders.snapshots()[-1].snapshot_id
    with orders.manage_snapshots() as refs:
        refs.create_branch(head, "audit").create_tag(head, "v1")
    shown = run(*arguments)
    assert shown.exit_code == 0, shown.stderr


@pytest.mark.parametrize("example", _IN_A_SHELL)
def test_an_example_for_a_shell_runs_in_one(orders: Table, example: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {example}"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_that_asks_icestream(run: Run, shell: str) -> None:
    shown = run("completion", shell)
    assert shown.exit_code == 0
    assert f"_ICESTREAM_COMPLETE={shell}_complete" in shown.stdout


def _completed(words: str) -> list[str]:
    variables = {
        "_ICESTREAM_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    shown = CliRunner().invoke(cli, [], prog_name="icestream", env=variables)
    assert shown.exit_code == 0
    return [line.partition(",")[2] for line in shown.stdout.splitlines() if line]


def test_commands_options_and_tables_are_completed(orders: Table) -> None:
    assert _completed("icestream he") == ["health"]
    assert _completed("icestream scan --wh") == ["--where"]
    assert _completed("icestream scan ") == ["shop.orders"]
    assert _completed("icestream scan shop.or") == ["shop.orders"]
    assert _completed("icestream scan other.") == []


def test_completion_is_empty_where_there_is_no_catalog(folder: Path) -> None:
    assert _completed("icestream scan sh") == []
