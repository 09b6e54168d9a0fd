"""docs/cli.md says what the command line does."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import click
import pytest

from icestream.cli.exit_codes import MEANINGS
from icestream.cli.main import cli
from icestream.cli.options.settings import Settings

_TEXT = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text()
_LINES = [
    line.partition("   #")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", _TEXT, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("icestream ")
]


def test_the_table_of_exit_codes_is_that_of_the_help() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", _TEXT, re.MULTILINE)
    assert [(int(code), meaning.replace("`", "")) for code, meaning in rows] == [
        (int(code), meaning) for code, meaning in MEANINGS.items()
    ]


def test_every_command_is_in_the_docs() -> None:
    assert {line.split()[1] for line in _LINES} == set(cli.commands)


@pytest.mark.parametrize("line", _LINES)
def test_every_line_is_one_that_icestream_understands(line: str) -> None:
    words = list(takewhile(lambda word: word not in "|>", shlex.split(line)))
    command: click.Command = cli.commands[words[1]]
    if isinstance(command, click.Group):
        del words[1]
        command = command.commands[words[1]]
    # --json-schema does its work at once, and exits. What is not understood is a UsageError.
    with (
        suppress(click.exceptions.Exit),
        command.make_context(words[1], words[2:], obj=Settings()) as context,
    ):
        assert context.command is command
