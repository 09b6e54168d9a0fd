"""`icestream orphans` finds and deletes files that no snapshot refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.options.parameters import Age, TableName
from icestream.cli.options.settings import Settings
from icestream.cli.output.progress import Counts, Progress
from icestream.cli.output.text import columns, moment, seconds, size
from icestream.report.counted import counted

if TYPE_CHECKING:
    from icestream.report.upkeep_report import OrphansReport

_SHOWN = 20


@command(
    "orphans",
    short_help="Find and delete files that no snapshot refers to.",
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
    help="Minimum age of files, such as 3d, 12h or 30m, or a time.",
)
@click.option("--delete", is_flag=True, help="Delete the orphans.")
@click.option(
    "--folder",
    "folders",
    multiple=True,
    metavar="FOLDER",
    help="Another folder that has only files of this table (repeatable).",
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
    help="UUID of another table that was dropped: its files are orphans (repeatable).",
)
@click.option(
    "--only-catalog",
    is_flag=True,
    help="Declare that no other catalog has this table: metadata of failed commits is an orphan.",
)
def orphans(settings: Settings, table: str, delete: bool, **options: Any) -> None:
    """Find files below the location of TABLE that no snapshot refers to. --delete deletes them.

    Choose an age for --older-than that is longer than any write to the table takes.
    """
    import icestream as ice

    progress = Progress(f"orphans of {table}", Counts, shown=not settings.quiet)
    with settings.open_table(table) as opened, progress:
        report = ice.orphans(opened, delete=delete, memory=settings.budget(), **options)
    settings.show(
        {**report.to_dict(), "table": table}, lambda: _text(table, report, deleting=delete)
    )


def _text(table: str, report: OrphansReport, *, deleting: bool) -> list[str]:
    listed = f"{counted(report.files_listed, 'file')} listed in {seconds(report.seconds)}"
    kept = f"{report.kept_young:,} too young, {report.kept_in_flight:,} of running writes"
    if report.kept_for_others:
        kept += f", {report.kept_for_others:,} that other tables may use"
    if not report.count:
        return [f"{table}: no orphans ({listed}; kept: {kept})", *_copies(report)]
    total = f"{counted(report.count, 'orphan')}, {size(report.bytes)}"
    if deleting:
        total += f"; {report.files_deleted:,} deleted, {size(report.bytes_deleted)}"
    shown = [
        (size(file.bytes), moment(file.modified_ms), file.reason, file.path)
        for file in report.files[:_SHOWN]
    ]
    more = report.count - len(shown)
    has_all = report.count == len(report.files)
    return [
        f"{table}: {total} ({listed}; kept: {kept})",
        *columns(("size", "written (UTC)", "why", "path"), shown),
        *([f"... and {more:,} more" + (": --json has all" if has_all else "")] if more else []),
        *_copies(report),
        *(f"! could not delete {path}" for path in report.not_deleted),
        *([] if deleting else ["Delete them with --delete."]),
    ]


def _copies(report: OrphansReport) -> list[str]:
    """Say what is kept because another catalog may need it, and how to include it."""
    if not report.copies:
        return []
    return [
        f"{counted(report.copies, 'metadata file')} of commits that the catalog does not have: "
        "lost commits, or commits of another catalog. The files they refer to are kept. If no "
        "other catalog has the table, --only-catalog makes them orphans."
    ]
