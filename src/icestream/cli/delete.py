"""`icestream delete`: rows go."""

from __future__ import annotations

import click

from icestream.cli.command import command
from icestream.cli.parameters import Property, TableName
from icestream.cli.progress import Counts, Progress
from icestream.cli.settings import Settings


@command(
    "delete",
    short_help="Delete the rows that a filter names.",
    memory=True,
    examples=(
        "icestream delete shop.orders --where \"country = 'NO'\"",
        'icestream delete shop.orders --where "price < 1" --json',
    ),
)
@click.argument("table", type=TableName())
@click.option("--where", required=True, metavar="FILTER", help="Which rows; null is not true.")
@click.option("--branch", metavar="NAME", help="The branch that gets the snapshot.")
@click.option("--load-id", metavar="ID", help="A second delete with this id does nothing.")
@click.option(
    "--property",
    "properties",
    type=Property(),
    multiple=True,
    metavar="NAME=VALUE",
    help="For the snapshot's summary; as often as needed.",
)
def delete(
    settings: Settings,
    table: str,
    where: str,
    branch: str | None,
    load_id: str | None,
    properties: tuple[tuple[str, str], ...],
) -> None:
    """Delete the rows of TABLE for which a filter is true, in one snapshot."""
    import icestream as ice
    from icestream.cli.write_text import write_text

    with settings.open_table(table) as opened:
        budget = settings.budget()
        progress = Progress(f"delete from {table}", Counts, budget, shown=not settings.quiet)
        with settings.changing(opened), progress:
            report = ice.delete(
                opened,
                where,
                memory=budget,
                branch=branch,
                load_id=load_id,
                properties=dict(properties),
            )
    settings.show({"table": table, **report.to_dict()}, lambda: write_text(table, report))
