"""Options of the commands that change a table: `load`, `merge`, `delete` and `compact`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from icestream.cli.options.parameters import Columns, Command, add_options, property_option
from icestream.operations.merge.merge_options import MergeRules, choices_of

branch_option = click.option("--branch", metavar="NAME", help="Branch to commit to.")
load_id_option = click.option(
    "--load-id",
    metavar="ID",
    help="Id of this change. If the table already has it, the command does nothing.",
)
snapshot_property_option = property_option(
    "--property", "properties", "Property for the summary of the snapshot"
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would change, and write nothing."
)
_SNAPSHOT = (
    click.option(
        "--schema-mode",
        type=click.Choice(["freeze", "evolve", "discard"]),
        default="freeze",
        show_default=True,
        help="What to do with columns that the table does not have: refuse, add or drop them.",
    ),
    branch_option,
    load_id_option,
    snapshot_property_option,
)


def snapshot_options(command: Command) -> Command:
    """Add the options for the schema, the branch and the summary of the new snapshot."""
    return add_options(command, _SNAPSHOT)


def merge_options(command: Command, *, only: bool = False) -> Command:
    """Add the options of a merge.

    Args:
        command: The command.
        only: Whether the command does nothing but merge, so that the help need not say it.
    """
    for rule in reversed(fields(MergeRules)):
        words = choices_of(rule.name)
        flag = f"--{rule.name.replace('_', '-')}"
        text = rule.metadata["description"]
        if only:
            text = text.removeprefix("Merge: ")
            text = text[0].upper() + text[1:]
        settings: dict[str, Any] = {"help": text, "default": rule.default}
        if isinstance(rule.default, bool):
            flag = f"{flag}/--no-{flag[2:]}"
        elif rule.name == "update_columns":
            settings |= {"type": Columns(), "metavar": "A,B"}
        elif words:
            settings["type"] = click.Choice(words)
        else:
            settings["metavar"] = "FILTER" if rule.name == "delete_when" else "COLUMN"
        command = click.option(flag, show_default=rule.default is not None, **settings)(command)
    return command
