"""`icestream scan`: rows of a table to a file, a pipe or the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.output import seconds, size
from icestream.cli.output_file import Output, open_output
from icestream.cli.parameters import TableName
from icestream.cli.progress import Counts, Progress
from icestream.cli.scan_options import make_scan, scan_options
from icestream.cli.settings import Settings

if TYPE_CHECKING:
    from icestream.memory import MemoryBudget
    from icestream.read.scan import Scan

_FORMATS = ("parquet", "csv", "json", "arrow", "text")
_BINARY = ("parquet", "arrow")


@command(
    "scan",
    short_help="Rows to a file, a pipe or the terminal.",
    memory=True,
    examples=(
        "icestream scan shop.orders --limit 10",
        'icestream scan shop.orders --where "price > 10" --columns id,price -o orders.parquet',
        "icestream scan shop.orders --memory 64MB -o - --format csv | head -n 3",
    ),
)
@click.argument("table", type=TableName())
@scan_options
@click.option(
    "-o",
    "--output",
    default="-",
    metavar="FILE",
    help="Where to: .parquet, .csv, .json (lines) or .arrow; - is stdout.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(_FORMATS),
    help="What to write, if the name does not say it.",
)
def scan(settings: Settings, table: str, output: str, format_: str | None, **asked: Any) -> None:
    """Write rows of TABLE to a file, or to stdout, inside the memory limit.

    A file appears when it is complete. Without -o rows go to stdout, aligned on a terminal and as
    CSV into a pipe; with --json they are in the document.
    """
    chosen = _format(settings, output, format_)
    with settings.open_table(table) as opened:
        budget = settings.budget()
        to_parquet = chosen == "parquet"
        scanning = make_scan(opened, _share(budget, 3 if to_parquet else 4), **asked)
        to_terminal = output == "-" and sys.stdout.isatty()
        progress = Progress(
            f"scan {table}",
            lambda: _counts(scanning),
            budget,
            shown=not settings.quiet and not to_terminal,
        )
        with scanning, progress, open_output(output) as file:
            report = _write(scanning, file, chosen, output, table, budget)
    _tell(settings, report, output)


def _format(settings: Settings, output: str, format_: str | None) -> str:
    if output != "-":
        from icestream.cli.sinks import format_of

        return format_ or format_of(output)
    if settings.json:
        if format_ not in (None, "json"):
            raise click.UsageError(
                f"--json makes one JSON document of stdout, which can't hold {format_}: write the "
                "rows to a file with -o"
            )
        return "document"
    if format_ in _BINARY and sys.stdout.isatty():
        raise click.UsageError(
            f"{format_} is not for terminals: write it to a file with -o, or into a pipe"
        )
    return format_ or ("text" if sys.stdout.isatty() else "csv")


def _share(budget: MemoryBudget, quarters: int) -> MemoryBudget:
    """The part of the limit that is for reading; the rest is for rows that wait to be written."""
    from icestream.memory import MemoryBudget

    if quarters == 4:
        return budget
    return MemoryBudget(max(1, budget.limit_bytes * quarters // 4), whole=budget)


def _write(
    scanning: Scan, file: Output, chosen: Any, output: str, table: str, budget: MemoryBudget
) -> dict[str, Any]:
    from icestream.cli.sinks import open_sink
    from icestream.memory import MemoryBudget

    waiting = MemoryBudget(max(1, budget.limit_bytes // 4), whole=budget)

    def report() -> dict[str, Any]:
        facts = scanning.report.to_dict()
        peak = {"peak_bytes_held": budget.peak_bytes, "memory_limit_bytes": budget.limit_bytes}
        where = None if output == "-" else output
        return {"table": table, **facts, **peak, "output": where, "format": chosen}

    sink = open_sink(chosen, file, scanning.schema, budget=waiting, is_pipe=output == "-")
    try:
        for batch in scanning:
            sink.write(batch)
            del batch  # before the next one is made
        sink.close(report)
    except BaseException:
        file.stop()
        sink.abort()
        raise
    return report()


def _counts(scanning: Scan) -> Counts:
    from icestream.errors import ScanClosedError

    try:
        report = scanning.report
    except ScanClosedError:  # not begun yet
        return Counts(rows=0)
    return Counts(report.rows, report.bytes, report.files, report.files_planned)


def _tell(settings: Settings, report: dict[str, Any], output: str) -> None:
    said = (
        f"{report['rows']:,} rows from {report['files']:,} files in {seconds(report['seconds'])}, "
        f"{size(report['peak_bytes_held'])} of {size(report['memory_limit_bytes'])} held"
    )
    if output == "-":
        if not settings.json:
            settings.say(said)
        return
    settings.show(report, lambda: [f"{output}: {said}"])
