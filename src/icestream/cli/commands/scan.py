"""`icestream scan` writes rows to a file or stdout; `icestream explain` predicts a scan."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.options.parameters import Columns, Moment, TableName, add_options
from icestream.cli.options.settings import Settings
from icestream.cli.output.output_file import Output, open_output
from icestream.cli.output.progress import Counts, Progress
from icestream.cli.output.text import pairs, seconds, size
from icestream.report.counted import counted
from icestream.write.sources.formats import BINARY_FORMATS, OUTPUT_FORMATS

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from icestream.memory.budget import MemoryBudget
    from icestream.read.scan import Scan
    from icestream.report.scan_report import ScanExplanation

_SCAN_OPTIONS = (
    click.option("--where", metavar="FILTER", help='Filter for rows, such as "price > 10".'),
    click.option(
        "--columns", type=Columns(), metavar="A,B", help="Columns to read, in this order."
    ),
    click.option(
        "--limit", type=click.IntRange(min=0), metavar="N", help="Maximum number of rows."
    ),
    click.option("--snapshot-id", type=int, metavar="ID", help="Snapshot to read."),
    click.option("--branch", metavar="NAME", help="Branch to read."),
    click.option("--tag", metavar="NAME", help="Tag to read."),
    click.option(
        "--as-of",
        type=Moment(),
        metavar="TIME",
        help="Read the table as of this time, in UTC unless it has a time zone.",
    ),
    click.option(
        "--order",
        type=click.Choice(["task", "arrival"]),
        default="task",
        show_default=True,
        help="Order of rows: by file, or as they arrive.",
    ),
    click.option(
        "--batch-size",
        type=click.IntRange(min=1),
        metavar="N",
        help="Maximum number of rows in a batch.",
    ),
)
_scan_options = partial(add_options, options=_SCAN_OPTIONS)
_OUTPUT_OPTIONS = (
    click.option(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        help="Output file (.parquet, .csv, .json with lines, or .arrow), or - for stdout.",
    ),
    click.option(
        "--format",
        "format_",
        type=click.Choice(OUTPUT_FORMATS),
        help="Format of the output.  [default: from the file name]",
    ),
)
output_options = partial(add_options, options=_OUTPUT_OPTIONS)


@command(
    "scan",
    short_help="Write rows to a file, a pipe or the terminal.",
    memory=True,
    examples=(
        "icestream scan shop.orders --limit 10",
        'icestream scan shop.orders --where "price > 10" --columns id,price -o orders.parquet',
        "icestream scan shop.orders --memory 64MB -o - --format csv | head -n 3",
    ),
)
@click.argument("table", type=TableName())
@_scan_options
@output_options
def scan(settings: Settings, table: str, output: str, format_: str | None, **options: Any) -> None:
    """Write rows of TABLE to a file or to stdout, inside the memory limit.

    An output file appears only when it is complete. Without -o, rows go to stdout: as an aligned
    table on a terminal, as CSV in a pipe, or in the JSON document with --json.
    """
    chosen = output_format(settings, output, format_)
    with settings.open_table(table) as opened:
        budget = settings.budget()
        to_parquet = chosen == "parquet"
        scanning = _scan(opened, _share(budget, 3 if to_parquet else 4), **options)
        to_terminal = output == "-" and sys.stdout.isatty()
        progress = Progress(
            f"scan {table}",
            lambda: _counts(scanning),
            budget,
            shown=not settings.quiet and not to_terminal,
        )
        with scanning, progress, open_output(output) as file:
            report = _write(scanning, file, chosen, output, table, budget)
    _print_summary(settings, report, output)


def output_format(settings: Settings, output: str, format_: str | None) -> Any:
    """Return the format of the output. The format `document` is one JSON document."""
    if output != "-":
        from icestream.cli.output.sinks import format_of

        return format_ or format_of(output)
    if settings.json:
        if format_ not in (None, "json"):
            raise click.UsageError(
                f"--json prints one JSON document on stdout, which can't hold {format_}: write the "
                "rows to a file with -o"
            )
        return "document"
    if format_ in BINARY_FORMATS and sys.stdout.isatty():
        raise click.UsageError(
            f"{format_} is a binary format: write it to a file with -o, or into a pipe"
        )
    return format_ or ("text" if sys.stdout.isatty() else "csv")


def _share(budget: MemoryBudget, quarters: int) -> MemoryBudget:
    """Return the part of the budget for reading. The rest is for rows that wait to be written."""
    from icestream.memory.budget import MemoryBudget

    if quarters == 4:
        return budget
    return MemoryBudget(max(1, budget.limit_bytes * quarters // 4), whole=budget)


def _write(
    scanning: Scan, file: Output, chosen: Any, output: str, table: str, budget: MemoryBudget
) -> dict[str, Any]:
    from icestream.cli.output.sinks import open_sink
    from icestream.memory.budget import MemoryBudget

    waiting = MemoryBudget(max(1, budget.limit_bytes // 4), whole=budget)

    def report() -> dict[str, Any]:
        facts = scanning.report.to_dict()
        peak = {"peak_bytes_held": budget.peak_bytes, "memory_limit_bytes": budget.limit_bytes}
        where = None if output == "-" else output
        return {"table": table, **facts, **peak, "output": where, "format": chosen}

    sink = None
    try:
        batches = iter(scanning)
        batch = next(batches, None)  # before a header is written, as it may fail
        sink = open_sink(chosen, file, scanning.schema, budget=waiting, is_pipe=output == "-")
        while batch is not None:
            sink.write(batch)
            batch = None  # free it before the next one is read
            batch = next(batches, None)
        sink.close(report)
    except BaseException:
        file.stop()
        if sink is not None:
            sink.abort()
        raise
    return report()


def _counts(scanning: Scan) -> Counts:
    from icestream.errors import ScanClosedError

    try:
        report = scanning.report
    except ScanClosedError:  # the scan has not started
        return Counts(rows=0)
    return Counts(report.rows, report.bytes, report.files, report.files_planned)


def _print_summary(settings: Settings, report: dict[str, Any], output: str) -> None:
    summary = (
        f"{counted(report['rows'], 'row')} from {counted(report['files'], 'file')} in "
        f"{seconds(report['seconds'])}, "
        f"{size(report['peak_bytes_held'])} of {size(report['memory_limit_bytes'])} held"
    )
    if output == "-":
        if not settings.json:
            settings.say(summary)
        return
    settings.show(report, lambda: [f"{output}: {summary}"])


@command(
    "explain",
    short_help="Predict what a scan would read, and its memory.",
    memory=True,
    examples=(
        "icestream explain shop.orders",
        'icestream explain shop.orders --where "price > 10" --columns id --memory 64MB',
        "icestream explain shop.orders --json",
    ),
)
@click.argument("table", type=TableName())
@_scan_options
def explain(settings: Settings, table: str, **options: Any) -> None:
    """Predict what a scan of TABLE would read, and its memory. Reads only metadata."""
    with (
        settings.open_table(table) as opened,
        _scan(opened, settings.budget(), **options) as scanning,
    ):
        explanation = scanning.explain()
    settings.show(
        {"table": table, **explanation.to_dict()}, lambda: _explanation_text(table, explanation)
    )


def _scan(table: Table, memory: MemoryBudget, *, order: str, **options: Any) -> Scan:
    import icestream as ice

    delivery = ice.ArrivalOrder() if order == "arrival" else ice.TaskOrder()
    return ice.scan(table, order=delivery, memory=memory, **options)


def _explanation_text(table: str, explanation: ScanExplanation) -> list[str]:
    each, row_filter = f"{size(explanation.stream_bytes)} each", explanation.row_filter
    return pairs(
        [
            ("table", table),
            ("snapshot", str(explanation.snapshot_id) if explanation.snapshot_id else "none"),
            ("filter", row_filter if row_filter != "true" else None),
            ("files", explanation.files),
            ("delete files", explanation.delete_files),
            ("rows", f"{explanation.rows:,}, before deletes and the filter"),
            ("in storage", size(explanation.compressed_bytes)),
            ("columns decoded", explanation.columns),
            ("order", explanation.order),
            ("streams", f"{explanation.streams:,}, {each}"),
            ("batch", f"{counted(explanation.batch_rows, 'row')}, {size(explanation.batch_bytes)}"),
            ("buffers", size(explanation.buffer_bytes)),
            ("limit", size(explanation.memory_limit_bytes)),
        ]
    )
