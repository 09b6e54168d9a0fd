"""`icestream compact`: small files become larger ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from icestream.cli.command import command
from icestream.cli.output import pairs, seconds, size
from icestream.cli.parameters import Property, TableName
from icestream.cli.progress import Counts, Progress
from icestream.cli.settings import Settings
from icestream.cli.wording import in_options

if TYPE_CHECKING:
    from icestream.report import CompactReport


@command(
    "compact",
    short_help="Rewrite small files and deleted rows.",
    memory=True,
    examples=(
        "icestream compact shop.orders",
        "icestream compact shop.orders --where \"day >= '2026-11-01'\" --target-file-size 256MB",
        "icestream compact shop.orders --json",
    ),
)
@click.argument("table", type=TableName())
@click.option("--where", metavar="FILTER", help="Only files that might hold such rows.")
@click.option("--target-file-size", metavar="SIZE", help="How large files are to be.")
@click.option(
    "--min-files",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How many small files a partition must have.",
)
@click.option("--branch", metavar="NAME", help="The branch to work on.")
@click.option(
    "--property",
    "properties",
    type=Property(),
    multiple=True,
    metavar="NAME=VALUE",
    help="For the snapshots' summaries; as often as needed.",
)
def compact(
    settings: Settings,
    table: str,
    where: str | None,
    target_file_size: str | None,
    min_files: int,
    branch: str | None,
    properties: tuple[tuple[str, str], ...],
) -> None:
    """Rewrite small files and deleted rows of TABLE into files of the right size.

    Work is committed group by group: after Ctrl-C what was committed stays.
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
                where=where,
                target_file_bytes=target_file_size,
                min_files=min_files,
                memory=budget,
                branch=branch,
                properties=dict(properties),
                progress=so_far.append,
            )
    # The caller's name, not the catalog's.
    settings.show({**report.to_dict(), "table": table}, lambda: _text(table, report))


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


def _text(table: str, report: CompactReport) -> list[str]:
    if not report.snapshot_ids:
        return [f"{table}: nothing is worth a rewrite"]
    figures = pairs(
        [
            ("files", f"{report.files_removed:,} became {report.files_added:,}"),
            ("in storage", f"{size(report.bytes_removed)} became {size(report.bytes_written)}"),
            ("rows rewritten", report.rows_rewritten),
            ("deleted rows gone", report.rows_deleted or None),
            ("delete files gone", report.delete_files_removed or None),
            ("groups", report.groups),
            ("groups left, as others changed them", report.groups_refused or None),
            ("held at most", _held(report)),
            ("took", seconds(report.seconds)),
        ]
    )
    ids = ", ".join(map(str, report.snapshot_ids))
    return [
        f"{table}: snapshot {ids}",
        *(f"  {line}" for line in figures),
        *(f"! {in_options(conflict, table)}" for conflict in report.conflicts),
    ]


def _held(report: CompactReport) -> str:
    return f"{size(report.peak_bytes_held)} of {size(report.memory_limit_bytes)}"
