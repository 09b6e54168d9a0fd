"""`icestream orphans`: files that nothing refers to."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from icestream.cli.command import command
from icestream.cli.output import columns, moment, seconds, size
from icestream.cli.parameters import Age, TableName
from icestream.cli.progress import Counts, Progress
from icestream.cli.settings import Settings

if TYPE_CHECKING:
    from icestream.report import OrphansReport

_SHOWN = 20


@command(
    "orphans",
    short_help="Find and delete files that nothing refers to.",
    examples=(
        "icestream orphans shop.orders",
        "icestream orphans shop.orders --older-than 12h --delete",
        "icestream orphans shop.orders --json",
    ),
)
@click.argument("table", type=TableName())
@click.option(
    "--older-than",
    type=Age(),
    default="3d",
    show_default=True,
    metavar="AGE",
    help="Only files written so long ago: 3d, 12h, 30m, or a moment.",
)
@click.option("--delete", is_flag=True, help="Delete what is found.")
@click.option(
    "--folder",
    "folders",
    multiple=True,
    metavar="FOLDER",
    help="A further folder with nothing but this table's files; as often as needed.",
)
def orphans(
    settings: Settings,
    table: str,
    older_than: timedelta | datetime,
    delete: bool,
    folders: tuple[str, ...],
) -> None:
    """Find files below TABLE's location that no snapshot refers to; --delete deletes them.

    Let --older-than be longer than any write to the table takes.
    """
    import icestream as ice

    progress = Progress(f"orphans of {table}", Counts, shown=not settings.quiet)
    with settings.open_table(table) as opened, progress:
        report = ice.orphans(opened, older_than=older_than, delete=delete, folders=folders)
    settings.show(
        {**report.to_dict(), "table": table}, lambda: _text(table, report, deleting=delete)
    )


def _text(table: str, report: OrphansReport, *, deleting: bool) -> list[str]:
    looked = f"{report.files_listed:,} files listed in {seconds(report.seconds)}"
    kept = f"{report.kept_young:,} too young, {report.kept_in_flight:,} of running writes"
    if not report.count:
        return [f"{table}: no orphans ({looked}; kept: {kept})"]
    found = f"{report.count:,} orphans, {size(report.bytes)}"
    if deleting:
        found += f"; {report.files_deleted:,} deleted, {size(report.bytes_deleted)}"
    shown = [
        (size(file.bytes), moment(file.modified_ms), file.reason, file.path)
        for file in report.files[:_SHOWN]
    ]
    more = len(report.files) - len(shown)
    return [
        f"{table}: {found} ({looked}; kept: {kept})",
        *columns(("size", "written (UTC)", "why", "path"), shown),
        *([f"... and {more:,} more: --json has all"] if more else []),
        *(f"! could not be deleted: {path}" for path in report.not_deleted),
        *([] if deleting else ["Delete them with --delete."]),
    ]
