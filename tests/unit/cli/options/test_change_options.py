"""The command line takes every option of a merge."""

from __future__ import annotations

from dataclasses import fields

import click
import pytest

from icestream.cli.commands.load import load
from icestream.cli.commands.merge import merge
from icestream.operations.merge.merge_options import MERGE_RULES, MergeRules, choices_of

_DEFAULTS = {each.name: each.default for each in fields(MergeRules)}


@pytest.mark.parametrize("command", [load, merge], ids=["load", "merge"])
def test_the_command_line_takes_every_option_with_its_default(command: click.Command) -> None:
    options = {each.name: each for each in command.params}
    assert {name: options[name].default for name in MERGE_RULES} == _DEFAULTS
    for name in MERGE_RULES:
        kind = options[name].type
        assert tuple(kind.choices if isinstance(kind, click.Choice) else ()) == choices_of(name)
