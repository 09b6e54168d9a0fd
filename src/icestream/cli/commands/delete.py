"""`icestream delete` deletes the rows that match a filter."""

from __future__ import annotations

from typing import Any

import click

from icestream.cli.command import command
from icestream.cli.options.change_options import (
    branch_option,
    dry_run_option,
    load_id_option,
    snapshot_property_option,
)
from icestream.cli.options.parameters import TableName
from icestream.cli.options.settings import Settings
from icestream.cli.output.progress import Counts, Progress


@command(
    "delete",
    short_help="Delete the rows that match a filter.",
    memory=True,
    examples=(
        "icestream delete shop.orders --where \"country = 'NO'\" --dry-run",
        "icestream delete shop.orders --where \"country = 'NO'\"",
        'icestream delete shop.orders --where "price < 1" --json',
    ),
)
@click.argument("table", type=TableName())
@click.option(
    "--where",
    required=True,
    metavar="FILTER",
    help="Filter for the rows to delete. Rows for which it is null stay.",
)
@branch_option
@load_id_option
@snapshot_property_option
@dry_run_option
def delete(
    settings: Settings,
    table: str,
    where: str,
    properties: tuple[tuple[str, str], ...],
    dry_run: bool,
    **options: Any,
) -> None:
    """Delete the rows of TABLE that match a filter, in one snapshot."""
    import icestream as ice
    from icestream.cli.output.report_text import write_text

    with settings.open_table(table) as opened:
        budget = settings.budget()
        progress = Progress(f"delete from {table}", Counts, budget, shown=not settings.quiet)
        with settings.changing(opened), progress:
            report = ice.delete(
                opened,
                where,
                memory=budget,
                properties=dict(properties),
                dry_run=dry_run,
                **options,
            )
    document = {"table": table, **report.to_dict(), "dry_run": dry_run}
    settings.show(document, lambda: write_text(table, report, dry_run=dry_run))
