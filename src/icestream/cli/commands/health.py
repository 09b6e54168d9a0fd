"""`icestream health` shows the files, partitions and snapshots of a table, and gives advice."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from icestream.cli.command import command
from icestream.cli.options.parameters import TableName
from icestream.cli.options.settings import Settings
from icestream.cli.output.text import can_draw, in_options, moment, pairs, size
from icestream.report.counted import counted

if TYPE_CHECKING:
    from icestream.report.upkeep_report import HealthReport

_BAR_WIDTH = 40
_BLOCKS = " ▏▎▍▌▋▊▉█"
_TEXT_WIDTH = 79
_NO_BREAK = "\u00a0"
_COMMAND = re.compile(r"icestream (?:compact|orphans|health) \S+(?: --delete| --\w+ \S+)*")


@command(
    "health",
    short_help="Show file sizes, partitions, deletes and snapshots, with advice.",
    examples=(
        "icestream health shop.orders",
        "icestream health shop.orders --branch main",
        "icestream health shop.orders --json",
    ),
    memory=True,
)
@click.argument("table", type=TableName())
@click.option("--branch", metavar="NAME", help="Branch to examine.  [default: main]")
def health(settings: Settings, table: str, branch: str | None) -> None:
    """Show file sizes, partitions, deletes and snapshots of TABLE, with advice.

    Reads only metadata.
    """
    import icestream as ice

    with settings.open_table(table) as opened:
        report = ice.health(opened, branch=branch, memory=settings.budget())
    words = {"catalog": settings.catalog, "branch": branch}
    advice = [in_options(each, table, **words) for each in report.advice]
    settings.show(
        {**report.to_dict(), "table": table, "advice": advice},
        lambda: _text(table, report, advice),
    )


def _text(table: str, report: HealthReport, advice: list[str]) -> list[str]:
    return [
        f"{table}, branch {report.branch}, format version {report.format_version}",
        "",
        *pairs(_figures(report)),
        *_file_sizes(report),
        *_partitions(report),
        "",
        *(_advice(advice) if advice else ["In good order: there is nothing to do."]),
    ]


def _figures(report: HealthReport) -> list[tuple[str, object]]:
    small = f"{report.small_files:,} below {size(report.small_below_bytes)}"
    deletes = "none"
    if report.delete_files:
        deletes = (
            f"{counted(report.delete_files, 'file')} ({size(report.delete_bytes)}), "
            f"{counted(report.position_deletes, 'row')} by position ({report.delete_ratio:.1%}), "
            f"{report.equality_deletes:,} by value"
        )
    snapshots = f"{report.snapshots:,}"
    if report.snapshots:
        span = [moment(report.oldest_snapshot_ms), moment(report.newest_snapshot_ms)]
        snapshots += f", {span[0]} to {span[1]} UTC"
    writes = f"{report.writes_in_flight:,}, {report.writes_dead:,} probably dead"
    return [
        ("rows", report.rows),
        ("files", f"{report.files:,}, {size(report.bytes)}; {small}"),
        ("target size", size(report.target_file_bytes)),
        ("deletes", deletes),
        ("snapshots", snapshots),
        ("branches", ", ".join(report.branches) or None),
        ("tags", ", ".join(report.tags) or None),
        ("manifests", f"{report.manifests:,}, {size(report.manifest_bytes)}"),
        ("metadata file", size(report.metadata_bytes)),
        ("partitions", f"{report.partitions:,}, the largest {report.skew:.1f}x the average"),
        ("running writes", writes if report.writes_in_flight else None),
    ]


def _file_sizes(report: HealthReport) -> list[str]:
    if not report.files:
        return []
    labels: list[tuple[str, str]] = []
    for bucket in report.file_sizes:
        above = labels[-1][1] if labels else "0 B"
        if bucket.below_bytes is None:
            labels.append((f">= {above}", above))
        else:
            labels.append((f"< {size(bucket.below_bytes)}", size(bucket.below_bytes)))
    counts = [bucket.files for bucket in report.file_sizes]
    notes = [f"{bucket.files:,} ({size(bucket.bytes)})" for bucket in report.file_sizes]
    return ["", "Data files by size", *_bars([label for label, _ in labels], counts, notes)]


def _partitions(report: HealthReport) -> list[str]:
    largest = report.largest_partitions
    if report.partitions < 2:
        return []
    notes = [
        f"{size(each.bytes)}, {counted(each.files, 'file')} ({each.small_files:,} small), "
        f"{counted(each.rows, 'row')}"
        for each in largest
    ]
    labels = [each.partition or "(none)" for each in largest]
    more = report.partitions - len(largest)
    return [
        "",
        "Largest partitions",
        *_bars(labels, [each.bytes for each in largest], notes),
        *([f"  ... and {more:,} more"] if more > 0 else []),
    ]


def _bars(labels: Sequence[str], values: Sequence[int], notes: Sequence[str]) -> list[str]:
    width = max(map(len, labels), default=0)
    most = max(values, default=0)
    return [
        f"  {label:>{width}}  {_bar(value, most):<{_BAR_WIDTH}}  {note}"
        for label, value, note in zip(labels, values, notes, strict=True)
    ]


def _bar(value: int, most: int) -> str:
    if not value or not most:
        return ""
    if not can_draw(_BLOCKS):
        return "#" * max(1, round(_BAR_WIDTH * value / most))
    eighths = max(1, round(8 * _BAR_WIDTH * value / most))
    return _BLOCKS[-1] * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def _advice(advice: list[str]) -> list[str]:
    lines = ["Advice"]
    for each in advice:
        # A command stays on one line, so that it can be pasted.
        each = _COMMAND.sub(lambda match: match[0].replace(" ", _NO_BREAK), each)
        lines += textwrap.wrap(each, _TEXT_WIDTH, initial_indent="- ", subsequent_indent="  ")
    return [line.replace(_NO_BREAK, " ") for line in lines]
