"""`icestream snapshots` lists the snapshots of a table; `icestream rollback` goes back to one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.options.parameters import Moment, TableName
from icestream.cli.options.settings import Settings
from icestream.cli.output.text import columns, moment, pairs, size

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from icestream.operations.upkeep.metadata.rollback import RollbackReport


@command(
    "snapshots",
    short_help="List the snapshots of a table.",
    examples=(
        "icestream snapshots shop.orders",
        "icestream snapshots shop.orders --branch main --limit 5",
        "icestream snapshots shop.orders --json",
    ),
)
@click.argument("table", type=TableName())
@click.option("--branch", metavar="NAME", help="List only the history of this branch or tag.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of snapshots, newest first.",
)
def snapshots(settings: Settings, table: str, branch: str | None, limit: int | None) -> None:
    """List the snapshots of TABLE, newest first, with the branches and tags that point to them."""
    with settings.open_table(table) as opened:
        listed = _listed(opened, branch)
    shown = listed[:limit]
    settings.show({"table": table, "snapshots": shown}, lambda: _text(table, shown, len(listed)))


def _listed(table: Table, branch: str | None) -> list[dict[str, Any]]:
    from pyiceberg.table.snapshots import ancestors_of

    metadata = table.metadata
    if branch is not None and branch not in metadata.refs:
        known = ", ".join(sorted(metadata.refs)) or "none, because it is empty"
        name = ".".join(table.name())
        raise click.UsageError(f"{name} has no branch or tag {branch!r}: it has {known}")
    heads = [branch] if branch is not None else list(metadata.refs)
    reached = {
        each.snapshot_id
        for name in heads
        for each in ancestors_of(metadata.snapshot_by_name(name), metadata)
    }
    names: dict[int, list[str]] = {}
    for name, ref in sorted(metadata.refs.items()):
        names.setdefault(ref.snapshot_id, []).append(name)
    newest_first = sorted(
        metadata.snapshots, key=lambda each: (each.timestamp_ms, each.sequence_number or 0)
    )[::-1]
    return [
        {
            "snapshot_id": str(each.snapshot_id),
            "parent_snapshot_id": _text_id(each.parent_snapshot_id),
            "committed_ms": each.timestamp_ms,
            "operation": each.summary.operation.value if each.summary else None,
            "refs": names.get(each.snapshot_id, []),
            "is_in_a_branch": each.snapshot_id in reached,
            "summary": dict(each.summary.additional_properties) if each.summary else {},
        }
        for each in newest_first
        if branch is None or each.snapshot_id in reached
    ]


def _text_id(snapshot_id: int | None) -> str | None:
    return None if snapshot_id is None else str(snapshot_id)


def _text(table: str, snapshots: list[dict[str, Any]], count: int) -> list[str]:
    if not snapshots:
        return [f"{table} has no snapshots: it is empty"]
    rows = [
        (
            each["snapshot_id"],
            moment(each["committed_ms"]),
            each["operation"],
            *(int(each["summary"].get(name, 0)) for name in _FIGURES),
            ", ".join(each["refs"]) or ("" if each["is_in_a_branch"] else "(in no branch)"),
        )
        for each in snapshots
    ]
    header = ("snapshot", "committed (UTC)", "operation", "added", "removed", "rows", "files", "")
    more = count - len(snapshots)
    return [*columns(header, rows), *([f"... and {more:,} older"] if more else [])]


_FIGURES = ("added-records", "deleted-records", "total-records", "total-data-files")


@command(
    "rollback",
    short_help="Go back to an earlier snapshot.",
    examples=(
        "icestream rollback shop.orders",
        "icestream rollback shop.orders --dry-run",
        "icestream rollback shop.orders --json",
    ),
)
@click.argument("table", type=TableName())
@click.option("--to", type=int, metavar="ID", help="Go back to this snapshot.")
@click.option(
    "--before",
    type=Moment(),
    metavar="TIME",
    help="Go back to the newest snapshot before this time, in UTC unless it has a time zone.",
)
@click.option("--branch", metavar="NAME", help="Branch to move.  [default: main]")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
def rollback(
    settings: Settings, table: str, to: int | None, before: Any, branch: str | None, dry_run: bool
) -> None:
    """Go back to an earlier snapshot of TABLE: without options, to the one before the newest.

    The snapshots after it stay in the table until they expire. Loads that they committed can be
    loaded again. The columns of the table stay as they are.
    """
    from icestream.operations.upkeep.metadata import rollback as library

    with settings.open_table(table) as opened, settings.changing(opened):
        report = library.rollback(opened, to=to, before=before, branch=branch, dry_run=dry_run)
    document = {
        **report.to_dict(),
        "table": table,
        "snapshot_id": str(report.snapshot_id),
        "previous_snapshot_id": str(report.previous_snapshot_id),
        "undone": [str(each) for each in report.undone],
        "dry_run": dry_run,
    }
    settings.show(document, lambda: _rollback_text(table, report, dry_run=dry_run))


def _rollback_text(table: str, report: RollbackReport, *, dry_run: bool) -> list[str]:
    if not report.undone:
        return [f"{table}: {report.branch} is at snapshot {report.snapshot_id} already"]
    verb = "would go back" if dry_run else "went back"
    head = f"{table}: {report.branch} {verb} to snapshot {report.snapshot_id}"
    figures = pairs(
        [
            ("from", str(report.previous_snapshot_id)),
            ("snapshots undone", len(report.undone)),
            ("rows", _change(report.previous_rows, report.rows)),
            ("files", _change(report.previous_files, report.files)),
            ("in storage", _change(report.previous_bytes, report.bytes, size)),
        ]
    )
    note = " (dry run: nothing was changed)" if dry_run else ""
    return [f"{head}{note}", *(f"  {line}" for line in figures)]


def _change(before: int | None, after: int | None, shown: Any = "{:,}".format) -> str | None:
    if before is None or after is None:
        return None
    return f"{shown(before)} became {shown(after)}"
