"""`icestream drop` and `icestream rename` change a table's entry in the catalog."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from icestream.cli.command import command
from icestream.cli.options.parameters import TableName
from icestream.cli.options.settings import Settings
from icestream.cli.output.text import pairs, size

if TYPE_CHECKING:
    from icestream.operations.upkeep.metadata.table_entry import DropReport


@command(
    "drop",
    short_help="Drop a table; --purge also deletes its files.",
    memory=True,
    examples=(
        "icestream drop shop.orders --dry-run",
        "icestream drop shop.orders --yes",
        "icestream drop shop.orders --purge --yes",
    ),
)
@click.argument("table", type=TableName())
@click.option("--purge", is_flag=True, help="Also delete the files that the table refers to.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and change nothing.")
@click.option(
    "--dropped",
    multiple=True,
    metavar="UUID",
    help="With --purge: UUID of a dropped table with metadata in the same folder (repeatable).",
)
@click.option(
    "--only-catalog",
    is_flag=True,
    help="With --purge: declare that no other catalog has this table.",
)
def drop(
    settings: Settings,
    table: str,
    purge: bool,
    yes: bool,
    dry_run: bool,
    dropped: tuple[str, ...],
    only_catalog: bool,
) -> None:
    """Drop TABLE from its catalog. Its files stay, unless --purge deletes them.

    --purge deletes files only if no other table can need them. Otherwise the command stops, and
    nothing is dropped.
    """
    from icestream.operations.upkeep.metadata.table_entry import drop_table

    if not purge and (dropped or only_catalog):
        raise click.UsageError("--dropped and --only-catalog are about --purge: pass it, too")
    with settings.open_table(table) as opened, settings.changing(opened):
        if not yes and not dry_run:
            _confirm(table, purge=purge)
        report = drop_table(
            opened,
            purge=purge,
            dropped=dropped,
            only_catalog=only_catalog,
            dry_run=dry_run,
            memory=settings.budget(),
        )
    settings.show(
        {**report.to_dict(), "table": table, "dry_run": dry_run},
        lambda: _text(table, report, dry_run=dry_run),
    )


def _confirm(table: str, *, purge: bool) -> None:
    """Ask before a table is dropped."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"pass --yes to drop {table} without being asked")
    what = "and delete its files" if purge else "(its files stay)"
    click.confirm(f"Drop {table} {what}?", abort=True, err=True)


def _text(table: str, report: DropReport, *, dry_run: bool) -> list[str]:
    head = (
        f"{table}: would be dropped (dry run: nothing was changed)"
        if dry_run
        else (f"{table}: dropped")
    )
    files = f"{report.files:,}, {size(report.bytes)}"
    deleted = f"{report.files_deleted:,}, {size(report.bytes_deleted)}"
    rows: list[tuple[str, object]] = [("id", report.uuid), ("location", report.location)]
    if not report.purge:
        rows += [("files", "stay"), ("metadata", report.metadata_location)]
    elif dry_run:
        rows += [("files to delete", files)]
    else:
        rows += [("files deleted", deleted)]
    left = f"{report.files_left:,} that the table does not refer to"
    rows += [("files that stay", left if report.files_left else None)]
    return [
        head,
        *(f"  {line}" for line in pairs(rows)),
        *(f"! could not delete {path}" for path in report.not_deleted),
    ]


@command(
    "rename",
    short_help="Rename a table.",
    examples=("icestream rename shop.orders shop.orders_2026",),
)
@click.argument("table", type=TableName())
@click.argument("new_name")
def rename(settings: Settings, table: str, new_name: str) -> None:
    """Rename TABLE to NEW_NAME, in a namespace that exists. Its files stay where they are."""
    from icestream.operations.upkeep.metadata.table_entry import rename_table

    with settings.open_table(table) as opened, settings.changing(opened):
        renamed = rename_table(opened, new_name)
    location = renamed.location()
    settings.show(
        {"table": table, "new_name": new_name, "location": location},
        lambda: [f"{table}: renamed to {new_name}; its files stay in {location}"],
    )
