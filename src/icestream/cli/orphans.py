"""`icestream orphans`: files that nothing refers to."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

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
        "icestream orphans shop.orders --other-tables keep --delete",
        "icestream orphans shop.orders --json",
    ),
    memory=True,
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
    help="Another folder that holds only this table's files; repeatable.",
)
@click.option(
    "--other-tables",
    type=click.Choice(["refuse", "keep"]),
    default="refuse",
    show_default=True,
    help="If other tables may have files in the same folders: stop, or keep their files.",
)
@click.option(
    "--dropped",
    multiple=True,
    metavar="UUID",
    help="The id of another table that is dropped, so that its files are orphans; repeatable.",
)
@click.option(
    "--only-catalog",
    is_flag=True,
    help="No other catalog has this table: metadata of lost commits is an orphan.",
)
def orphans(
    settings: Settings,
    table: str,
    older_than: timedelta | datetime,
    delete: bool,
    folders: tuple[str, ...],
    other_tables: Literal["refuse", "keep"],
    dropped: tuple[str, ...],
    only_catalog: bool,
) -> None:
    """Find files below TABLE's location that no snapshot refers to; --delete deletes them.

    Let --older-than be longer than any write to the table takes.
    """
    import icestream as ice

    progress = Progress(f"orphans of {table}", Counts, shown=not settings.quiet)
    with settings.open_table(table) as opened, progress:
        report = ice.orphans(
            opened,
            older_than=older_than,
            delete=delete,
            folders=folders,
            other_tables=other_tables,
            dropped=dropped,
            only_catalog=only_catalog,
            memory=settings.budget(),
        )
    settings.show(
        {**report.to_dict(), "table": table}, lambda: _text(table, report, deleting=delete)
    )


def _text(table: str, report: OrphansReport, *, deleting: bool) -> list[str]:
    looked = f"{report.files_listed:,} files listed in {seconds(report.seconds)}"
    kept = f"{report.kept_young:,} too young, {report.kept_in_flight:,} of running writes"
    if report.kept_for_others:
        kept += f", {report.kept_for_others:,} that may be others'"
    if not report.count:
        return [f"{table}: no orphans ({looked}; kept: {kept})", *_copies(report)]
    found = f"{report.count:,} orphans, {size(report.bytes)}"
    if deleting:
        found += f"; {report.files_deleted:,} deleted, {size(report.bytes_deleted)}"
    shown = [
        (size(file.bytes), moment(file.modified_ms), file.reason, file.path)
        for file in report.files[:_SHOWN]
    ]
    more = report.count - len(shown)
    has_all = report.count == len(report.files)
    return [
        f"{table}: {found} ({looked}; kept: {kept})",
        *columns(("size", "written (UTC)", "why", "path"), shown),
        *([f"... and {more:,} more" + (": --json has all" if has_all else "")] if more else []),
        *_copies(report),
        *(f"! could not be deleted: {path}" for path in report.not_deleted),
        *([] if deleting else ["Delete them with --delete."]),
    ]


def _copies(report: OrphansReport) -> list[str]:
    """What is kept for other catalogs, and how to have it go."""
    if not report.copies:
        return []
    return [
        f"{report.copies:,} metadata files are of commits to this table that its catalog does not "
        "have: lost ones, or another catalog's. What they refer to is kept; if no other catalog "
        "has the table, --only-catalog finds it."
    ]
