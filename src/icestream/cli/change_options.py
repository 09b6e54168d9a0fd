"""Options of the commands that change a table by rows: `load` and `merge` take the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import click

from icestream.cli.parameters import Columns, Property

Command = Callable[..., Any]

_SNAPSHOT = (
    click.option(
        "--schema-mode",
        type=click.Choice(["freeze", "evolve", "discard"]),
        default="freeze",
        show_default=True,
        help="If there are columns that the table lacks.",
    ),
    click.option("--branch", metavar="NAME", help="The branch that gets the snapshot."),
    click.option("--load-id", metavar="ID", help="A second run with this id does nothing."),
    click.option(
        "--property",
        "properties",
        type=Property(),
        multiple=True,
        metavar="NAME=VALUE",
        help="For the snapshot's summary; as often as needed.",
    ),
)
_MERGE = (
    click.option(
        "--when-matched",
        type=click.Choice(["update", "ignore", "delete"]),
        default="update",
        show_default=True,
        help="Of a merge: what becomes of rows of the table that match.",
    ),
    click.option(
        "--when-not-matched",
        type=click.Choice(["insert", "ignore"]),
        default="insert",
        show_default=True,
        help="What becomes of the other rows that come.",
    ),
    click.option(
        "--update-columns",
        type=Columns(),
        metavar="A,B",
        help="What an update sets; all if left out.",
    ),
    click.option(
        "--delete-when", metavar="FILTER", help="Such rows delete what they match: \"op = 'D'\"."
    ),
    click.option(
        "--on-duplicate",
        type=click.Choice(["error", "last"]),
        default="error",
        show_default=True,
        help="If rows that come have the same key.",
    ),
    click.option("--last-by", metavar="COLUMN", help="The column by which a row is the last."),
    click.option(
        "--null-keys",
        type=click.Choice(["error", "insert"]),
        default="error",
        show_default=True,
        help="What to do with rows that have a null in their key.",
    ),
    click.option(
        "--skip-unchanged/--no-skip-unchanged",
        default=True,
        show_default=True,
        help="Whether rows that are as they were to be are left alone.",
    ),
    click.option("--write-mode", type=click.Choice(["copy-on-write", "merge-on-read"])),
    click.option("--isolation", type=click.Choice(["serializable", "snapshot"])),
)


def snapshot_options(command: Command) -> Command:
    """What a snapshot is like."""
    return reduce(lambda made, option: option(made), reversed(_SNAPSHOT), command)


def merge_options(command: Command) -> Command:
    """What a merge does."""
    return reduce(lambda made, option: option(made), reversed(_MERGE), command)
