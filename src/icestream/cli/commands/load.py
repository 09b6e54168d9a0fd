"""`icestream load` loads files, tables and databases into a table."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.options.change_options import merge_options, snapshot_options
from icestream.cli.options.parameters import (
    Columns,
    Selected,
    TableName,
    property_option,
    reader_values,
)
from icestream.cli.options.settings import Settings
from icestream.cli.output.progress import Counts, Progress
from icestream.write.sources.formats import SOURCE_FORMATS

if TYPE_CHECKING:
    from icestream.pipeline.reports.load_progress import LoadProgress
    from icestream.pipeline.reports.load_report import LoadReport


@command(
    "load",
    short_help="Load files, tables and databases into a table.",
    memory=True,
    examples=(
        "icestream load 'data/orders/*.parquet' --into shop.orders",
        "icestream load 'data/orders/*.parquet' --into shop.orders --mode replace --dry-run",
        "icestream load changes.csv --into shop.orders --mode merge --keys id --engine local",
        "icestream load inbox/ --into shop.events --incremental --watch 30",
        "icestream load 'logs/*.json.gz' --into shop.logs --bad-records quarantine --engine local",
    ),
)
@click.argument("sources", nargs=-1, required=True, type=str)
@click.option(
    "--into", required=True, type=TableName(), metavar="TABLE", help="Table to load into."
)
@click.option(
    "--mode",
    type=click.Choice(["append", "replace", "merge"]),
    default="append",
    show_default=True,
    help="What to do with existing rows: keep, replace or update them.",
)
@click.option(
    "--keys",
    type=Columns(),
    metavar="A,B",
    help="Key columns of a merge.  [default: the table's identifier fields]",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "spark", "local", "iceberg-jar"]),
    default="auto",
    show_default=True,
    help="Run on Spark, in this process, or on Spark with Iceberg's runtime. auto chooses Spark if "
    "PySpark is installed or the load needs it, else this process.",
)
@click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs, such as spark://host:7077.  [default: local[*], this machine]",
)
@click.option(
    "--remote", metavar="URL", help="Address of a Spark Connect server, instead of --master."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(SOURCE_FORMATS),
    help="Format of the files.  [default: from their names]",
)
@property_option(
    "--option",
    "options",
    "Reader option, such as delimiter=;, or storage property, such as s3.endpoint=URL",
)
@property_option("--type", "types", "Type of a CSV or JSON column, such as id=long", "COLUMN=TYPE")
@click.option(
    "--hive-partitions/--no-hive-partitions",
    default=True,
    help="Whether folder names such as year=2025 become columns.",
)
@click.option(
    "--select",
    type=Selected(),
    metavar="A,B=C",
    help="Columns to load, in this order; B=C loads column C as B.  [default: all]",
)
@click.option("--where", metavar="FILTER", help='Rows to load, such as "amount > 0".')
@click.option(
    "--transform", metavar="SQL", help='SQL query to apply, such as "SELECT id FROM source".'
)
@click.option(
    "--transform-engine",
    type=click.Choice(["spark", "duckdb"]),
    default="spark",
    show_default=True,
    help="What runs the SQL on Spark; duckdb runs it inside each task, on its own rows.",
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="FIELD",
    help='Partition field of a new table, such as "day(ts)" (repeatable).',
)
@click.option(
    "--sort-by",
    multiple=True,
    metavar="FIELD",
    help='Sort field of a new table, such as "price desc" (repeatable).',
)
@property_option("--table-property", "table_properties", "Property of a new table")
@click.option("--create/--no-create", default=True, help="Whether to create a missing table.")
@snapshot_options
@click.option("--name", metavar="NAME", help="Name of the load in reports.")
@click.option(
    "--bad-records",
    type=click.Choice(["fail", "quarantine"]),
    default="fail",
    show_default=True,
    help="What to do with lines that can't be parsed.",
)
@click.option(
    "--quarantine", metavar="TABLE", help="Table for bad records.  [default: TABLE_quarantine]"
)
@click.option("--incremental", is_flag=True, help="Load only what is new since the last run.")
@click.option("--again", is_flag=True, help="Append again, even if the inputs are already loaded.")
@click.option(
    "--checkpoint", metavar="FOLDER", help="Folder that records what --incremental has loaded."
)
@click.option(
    "--watch",
    type=click.FloatRange(0, 1e8),
    metavar="SECONDS",
    help="Repeat the load at this interval, until Ctrl-C.",
)
@merge_options
@click.option(
    "--state",
    metavar="FOLDER",
    help="Folder for reports and checkpoints.  [default: $ICESTREAM_STATE or ./icestream_state]",
)
@click.option("--dry-run", is_flag=True, help="Only show what the load would do.")
def load(settings: Settings, sources: tuple[str, ...], into: str, **given: Any) -> None:
    """Load SOURCES into a table, as one snapshot. Creates the table if it does not exist.

    SOURCES are paths, globs or folders of Parquet, CSV, JSON, Arrow IPC or ORC files on disk
    or in object stores, table:NAME, or a database such as sqlite:///x.db?table=NAME,
    duckdb:///x.duckdb?table=NAME, postgresql://host/db?table=NAME, adbc:DRIVER:URI?table=NAME and
    jdbc:... on Spark. The rows of several sources are combined.

    A second append of the same files (same path, size and modification time) or table snapshots
    does nothing and reports "already loaded", unless you pass --again. A database is loaded each
    time.
    """
    import icestream as ice
    from icestream.cli.output.report_text import load_text, plan_text
    from icestream.pipeline.load import run_load
    from icestream.pipeline.load_plan import plan_load
    from icestream.pipeline.reports.state_folder import StateFolder
    from icestream.pipeline.request.engine_choice import choose_engine, engine_text
    from icestream.pipeline.request.load_spec import LoadSpec

    watch, dry_run, state = given.pop("watch"), given.pop("dry_run"), given.pop("state")
    if watch is not None and not given["incremental"]:
        raise click.UsageError("--watch repeats an incremental load: add --incremental")
    file_settings = {
        "format": given.pop("format_"),
        "hive_partitions": given.pop("hive_partitions"),
    }
    inputs = _sources(sources, file_settings, dict(given.pop("options")))
    given["schema"] = dict(given.pop("types")) or None
    for key in ("properties", "table_properties"):
        given[key] = dict(given[key])
    given["memory"] = settings.memory
    request = LoadSpec.of(inputs, into, catalog=settings.catalog, **given)
    if dry_run:
        plan = plan_load(request, state=StateFolder(state))
        settings.show(plan.to_dict(), lambda: plan_text(plan))
        return
    chosen, reason = choose_engine(request)
    if reason is not None:
        settings.say(f"loading {engine_text(chosen.engine, reason)}")
    with settings.open_catalog(make=given["create"]) as catalog:
        spec = replace(request, catalog=catalog)

        def once() -> LoadReport:
            progress = ice.LoadProgress()
            shown = not settings.quiet
            with (
                settings.loading(catalog, into),
                Progress(f"load into {into}", lambda: counts(progress), shown=shown),
            ):
                return run_load(spec, state=state, progress=progress)

        def show(report: LoadReport) -> None:
            settings.show(report.to_dict(), lambda: load_text(report))

        if watch is None:
            show(once())
            return
        while True:
            report = once()
            if report.snapshot_id is not None:
                show(report)
            pause(watch)


def counts(progress: LoadProgress) -> Counts:
    """Choose the counts of a load to show."""
    by_tasks = bool(progress.tasks_total) and progress.stage == "loading"
    if progress.files_total is None and progress.stage != "loading":
        return Counts(stage=progress.stage)
    return Counts(
        progress.rows,
        progress.bytes or None,
        None if by_tasks else progress.files,
        None if by_tasks else progress.files_total,
        progress.stage,
        tasks=progress.tasks if by_tasks else None,
        tasks_total=progress.tasks_total if by_tasks else None,
        held_bytes=progress.bytes_held,
        limit_bytes=progress.limit_bytes,
        worker_bytes=progress.worker_bytes,
        worker_base_bytes=progress.worker_base_bytes,
    )


def _sources(
    sources: tuple[str, ...], file_settings: dict[str, Any], options: dict[str, str]
) -> list[Any]:
    """Add the settings to the sources that are files, and the options to databases, too."""
    if file_settings == {"format": None, "hive_partitions": True} and not options:
        return list(sources)
    from icestream.pipeline.request.database_address import is_database
    from icestream.pipeline.request.source_spec import SourceSpec

    inputs: list[Any] = []
    for source in sources:
        if source.startswith("table:"):
            inputs.append(source)
        elif is_database(source):
            database = SourceSpec.parse(source)
            inputs.append(replace(database, options={**options, **database.options}))
        else:
            present = {key: value for key, value in file_settings.items() if value is not None}
            inputs.append({"path": source, "options": reader_values(options), **present})
    return inputs


def pause(seconds: float) -> None:
    """Wait between two loads. Ctrl-C ends the wait."""
    threading.Event().wait(seconds)
