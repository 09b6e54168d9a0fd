"""`icestream compact` rewrites small files and files with deleted rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.options.change_options import (
    branch_option,
    dry_run_option,
    snapshot_property_option,
)
from icestream.cli.options.parameters import TableName
from icestream.cli.options.settings import Settings
from icestream.cli.output.progress import Counts, Progress
from icestream.cli.output.text import in_options, pairs, seconds, size

if TYPE_CHECKING:
    from icestream.report.upkeep_report import CompactReport


@command(
    "compact",
    short_help="Combine small files, and remove deleted rows from files.",
    memory=True,
    examples=(
        "icestream compact shop.orders --dry-run",
        "icestream compact shop.orders",
        "icestream compact shop.orders --where \"day >= '2026-11-01'\" --target-file-size 256MB",
        "icestream compact shop.orders --json",
    ),
)
@click.argument("table", type=TableName())
@click.option("--where", metavar="FILTER", help="Rewrite only files that may have matching rows.")
@click.option(
    "--target-file-size",
    metavar="SIZE",
    help="Target size of the new files.  [default: write.target-file-size-bytes]",
)
@click.option(
    "--min-files",
    type=click.IntRange(min=1),
    metavar="N",
    default=2,
    show_default=True,
    help="Minimum number of small files in a partition to rewrite them.",
)
@branch_option
@snapshot_property_option
@dry_run_option
def compact(
    settings: Settings,
    table: str,
    target_file_size: str | None,
    properties: tuple[tuple[str, str], ...],
    dry_run: bool,
    **options: Any,
) -> None:
    """Rewrite small files, and files with deleted rows, of TABLE into files of the target size.

    The command commits one group of files after the other. Groups that are committed stay after
    Ctrl-C.
    """
    import icestream as ice

    with settings.open_table(table) as opened:
        budget = settings.budget()
        so_far: list[CompactReport] = []
        progress = Progress(
            f"compact {table}", lambda: _counts(so_far), budget, shown=not settings.quiet
        )
        with settings.changing(opened), progress:
            report = ice.compact(
                opened,
                target_file_bytes=target_file_size,
                memory=budget,
                properties=dict(properties),
                progress=so_far.append,
                dry_run=dry_run,
                **options,
            )
    conflicts = [in_options(each, table, catalog=settings.catalog) for each in report.conflicts]
    # The name as the user wrote it, without the catalog.
    document = {**report.to_dict(), "table": table, "dry_run": dry_run}
    if dry_run:
        settings.show(document, lambda: _planned_text(table, report))
    else:
        settings.show(document, lambda: _text(table, report, conflicts))


def _counts(so_far: list[CompactReport]) -> Counts:
    if not so_far:
        return Counts(stage="planning")
    done = so_far[-1]
    group = min(len(so_far), done.groups)
    return Counts(
        done.rows_rewritten,
        done.bytes_written,
        done.files_removed,
        stage=f"group {group:,} of {done.groups:,}",
    )


def _planned_text(table: str, report: CompactReport) -> list[str]:
    if not report.groups and not report.delete_files_removed:
        return [f"{table}: nothing to rewrite"]
    figures = pairs(
        [
            ("files", f"{report.files_removed:,}, {size(report.bytes_removed)}"),
            ("rows", f"{report.rows_rewritten:,}, including deleted ones"),
            ("delete files to remove", report.delete_files_removed or None),
            ("groups", f"{report.groups:,}, each one snapshot"),
        ]
    )
    head = f"{table}: would rewrite (dry run: nothing was changed)"
    return [head, *(f"  {line}" for line in figures)]


def _text(table: str, report: CompactReport, conflicts: list[str]) -> list[str]:
    if not report.snapshot_ids:
        return [f"{table}: nothing to rewrite"]
    held = f"{size(report.peak_bytes_held)} of {size(report.memory_limit_bytes)}"
    figures = pairs(
        [
            ("files", f"{report.files_removed:,} became {report.files_added:,}"),
            ("in storage", f"{size(report.bytes_removed)} became {size(report.bytes_written)}"),
            ("rows rewritten", report.rows_rewritten),
            ("deleted rows removed", report.rows_deleted or None),
            ("delete files removed", report.delete_files_removed or None),
            ("groups", report.groups),
            ("groups skipped (changed concurrently)", report.groups_refused or None),
            ("held at most", held),
            ("took", seconds(report.seconds)),
        ]
    )
    ids = ", ".join(map(str, report.snapshot_ids))
    return [
        f"{table}: snapshot {ids}",
        *(f"  {line}" for line in figures),
        *(f"! {conflict}" for conflict in conflicts),
    ]
