"""`icestream sql` runs a SELECT over tables by their names, with DuckDB."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.commands.scan import output_format, output_options
from icestream.cli.options.settings import Settings
from icestream.cli.output.output_file import Output, open_output
from icestream.cli.output.progress import Counts, Progress
from icestream.cli.output.text import seconds, size
from icestream.report.counted import counted

if TYPE_CHECKING:
    from icestream.memory.budget import MemoryBudget
    from icestream.pipeline.query.table_query import TableQuery


@command(
    "sql",
    short_help="Run a SELECT over tables, with DuckDB.",
    memory=True,
    examples=(
        'icestream sql "SELECT country, sum(price) FROM shop.orders GROUP BY country"',
        'icestream sql "SELECT * FROM shop.orders WHERE price > 10" -o orders.parquet',
        'icestream sql "SELECT count(*) AS orders FROM local.shop.orders" --json',
    ),
)
@click.argument("query")
@output_options
def sql(settings: Settings, query: str, output: str, format_: str | None) -> None:
    """Run QUERY, one SELECT over tables, and write its rows as `scan` does.

    Name tables like shop.orders, or catalog.shop.orders for a table of another catalog. DuckDB runs
    the query inside half of --memory, and spills to a temporary folder. It reads only the columns
    that the query needs, and skips files that its filters rule out.
    """
    from icestream.memory.budget import MemoryBudget
    from icestream.pipeline.query.table_query import TableQuery

    chosen = output_format(settings, output, format_)
    budget = settings.budget()
    started = time.monotonic()
    rows = 0
    with settings.open_catalog() as catalog:
        to_terminal = output == "-" and sys.stdout.isatty()
        progress = Progress(
            "sql", lambda: Counts(rows), budget, shown=not settings.quiet and not to_terminal
        )
        waiting = MemoryBudget(max(1, budget.limit_bytes // 4), whole=budget)

        def report(running: TableQuery) -> dict[str, Any]:
            return {
                "tables": list(running.tables),
                "rows": rows,
                "files": running.files_read,
                "seconds": time.monotonic() - started,
                "peak_bytes_held": budget.peak_bytes,
                "memory_limit_bytes": budget.limit_bytes,
                "output": None if output == "-" else output,
                "format": chosen,
            }

        def count(added: int) -> None:
            nonlocal rows
            rows += added

        with progress, TableQuery(query, catalog, budget) as running, open_output(output) as file:
            _write(running, file, chosen, output, waiting, count, report)
            facts = report(running)
    _print_summary(settings, facts, output)


def _write(
    running: TableQuery,
    file: Output,
    chosen: Any,
    output: str,
    waiting: MemoryBudget,
    count: Any,
    report: Any,
) -> None:
    from icestream.cli.output.sinks import open_sink

    sink = open_sink(chosen, file, running.schema, budget=waiting, is_pipe=output == "-")
    try:
        for batch in running:
            sink.write(batch)
            count(batch.num_rows)
            del batch
        sink.close(lambda: report(running))
    except BaseException:
        file.stop()
        sink.abort()
        raise


def _print_summary(settings: Settings, facts: dict[str, Any], output: str) -> None:
    rows = counted(facts["rows"], "row")
    summary = f"{rows} in {seconds(facts['seconds'])}, limit {size(facts['memory_limit_bytes'])}"
    if output != "-":
        settings.show(facts, lambda: [f"{output}: {summary}"])
    elif not settings.json:
        settings.say(summary)
