"""The options of `scan` and `explain`: which rows, of which snapshot, in which order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from icestream.cli.parameters import Columns, Moment

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from icestream.memory import MemoryBudget
    from icestream.read.scan import Scan

_OPTIONS = (
    click.option("--where", metavar="FILTER", help='Which rows, as in "price > 10".'),
    click.option("--columns", type=Columns(), metavar="A,B", help="Which columns."),
    click.option("--limit", type=click.IntRange(min=0), metavar="N", help="The most rows."),
    click.option("--snapshot-id", type=int, metavar="ID", help="Of this snapshot."),
    click.option("--branch", metavar="NAME", help="Of this branch."),
    click.option("--tag", metavar="NAME", help="Of this tag."),
    click.option(
        "--as-of", type=Moment(), metavar="TIME", help="As it was then, UTC unless it says."
    ),
    click.option(
        "--order",
        type=click.Choice(["task", "arrival"]),
        default="task",
        show_default=True,
        help="Rows in the order of files, or as they come.",
    ),
    click.option(
        "--batch-size", type=click.IntRange(min=1), metavar="N", help="The most rows in a batch."
    ),
)


def scan_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def make_scan(
    table: Table,
    memory: MemoryBudget,
    *,
    where: str | None,
    columns: list[str] | None,
    limit: int | None,
    snapshot_id: int | None,
    branch: str | None,
    tag: str | None,
    as_of: datetime | int | None,
    order: Literal["task", "arrival"],
    batch_size: int | None,
) -> Scan:
    """The scan that the options ask for."""
    import icestream as ice

    return ice.scan(
        table,
        where=where,
        columns=columns,
        limit=limit,
        snapshot_id=snapshot_id,
        branch=branch,
        tag=tag,
        as_of=as_of,
        order=ice.ArrivalOrder() if order == "arrival" else ice.TaskOrder(),
        batch_size=batch_size,
        memory=memory,
    )
