"""`icestream load`: files, tables and databases into a table."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.change_options import merge_options, snapshot_options
from icestream.cli.command import command
from icestream.cli.parameters import Columns, Property, TableName
from icestream.cli.progress import Counts, Progress
from icestream.cli.settings import Settings

if TYPE_CHECKING:
    from icestream.pipeline.load_progress import LoadProgress
    from icestream.pipeline.load_report import LoadReport


@command(
    "load",
    short_help="Files, tables and databases into a table.",
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
@click.option("--into", required=True, type=TableName(), metavar="TABLE", help="The table.")
@click.option(
    "--mode",
    type=click.Choice(["append", "replace", "merge"]),
    default="append",
    show_default=True,
    help="What becomes of the rows that are there.",
)
@click.option("--keys", type=Columns(), metavar="A,B", help="The key of a merge.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="Spark, or this process for small jobs.",
)
@click.option("--master", metavar="URL", help="Where Spark runs.  [default: local[*]]")
@click.option("--remote", metavar="URL", help="A Spark Connect address instead.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "csv", "json", "arrow", "orc", "avro"]),
    help="What the files are, if their names do not say it.",
)
@click.option(
    "--option",
    "options",
    type=Property(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Of the reader (delimiter=;, jar=...), or access (s3.endpoint=...); as often as needed.",
)
@click.option(
    "--type",
    "types",
    type=Property(),
    multiple=True,
    metavar="COLUMN=TYPE",
    help="A column's type in CSV and JSON: id=long; as often as needed.",
)
@click.option(
    "--hive-partitions/--no-hive-partitions",
    default=True,
    help="Whether names of folders (year=2025) are columns.",
)
@click.option("--transform", metavar="SQL", help='SQL over source: "SELECT * FROM source".')
@click.option(
    "--partition-by",
    multiple=True,
    metavar="FIELD",
    help='Of a new table: "day(ts)"; as often as needed.',
)
@click.option(
    "--sort-by", multiple=True, metavar="FIELD", help='Likewise: "price desc"; as often as needed.'
)
@click.option(
    "--table-property",
    "table_properties",
    type=Property(),
    multiple=True,
    metavar="NAME=VALUE",
    help="Of a new table; as often as needed.",
)
@click.option("--create/--no-create", default=True, help="Whether a missing table is created.")
@snapshot_options
@click.option("--name", metavar="NAME", help="What the load is called in reports.")
@click.option(
    "--bad-records",
    type=click.Choice(["fail", "quarantine"]),
    default="fail",
    show_default=True,
    help="What becomes of lines that can't be read.",
)
@click.option("--quarantine", metavar="TABLE", help="Where they go.  [default: TABLE_quarantine]")
@click.option("--incremental", is_flag=True, help="Only what is new since the last run.")
@click.option("--again", is_flag=True, help="Append inputs once more that are already loaded.")
@click.option("--checkpoint", metavar="FOLDER", help="What remembers it.")
@click.option("--watch", type=float, metavar="SECONDS", help="Repeat, until Ctrl-C.")
@merge_options
@click.option("--state", metavar="FOLDER", help="Reports.  [default: ./icestream_state]")
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
def load(settings: Settings, sources: tuple[str, ...], into: str, **given: Any) -> None:
    """Load SOURCES into a table, as one snapshot; the table is created if it is not there.

    SOURCES are paths, globs or folders of Parquet, CSV, JSON lines, Arrow IPC or ORC files on disk
    or in object stores, table:NAME, or jdbc:postgresql://host/db?table=NAME. Several are joined.

    Repeating an append of the same files (path, size, time of change) or table snapshots does
    nothing and says "already loaded"; --again overrides. A database is loaded each time.
    """
    import icestream as ice
    from icestream.cli.load_text import load_text, plan_text
    from icestream.pipeline.load import run_load
    from icestream.pipeline.load_plan import plan_load
    from icestream.pipeline.load_spec import LoadSpec
    from icestream.pipeline.state_folder import StateFolder

    watch, dry_run, state = given.pop("watch"), given.pop("dry_run"), given.pop("state")
    if watch is not None and not given["incremental"]:
        raise click.UsageError("--watch repeats an incremental load: give --incremental, too")
    told = {"format": given.pop("format_"), "hive_partitions": given.pop("hive_partitions")}
    wanted = _sources(sources, told, dict(given.pop("options")))
    given["schema"] = dict(given.pop("types")) or None
    for key in ("properties", "table_properties"):
        given[key] = dict(given[key])
    given["memory"] = settings.memory
    if dry_run:
        spec = LoadSpec.of(wanted, into, catalog=settings.catalog, **given)
        plan = plan_load(spec, state=StateFolder(state))
        settings.show(plan.to_dict(), lambda: plan_text(plan))
        return
    with settings.open_catalog(make=given["create"]) as catalog:
        spec = LoadSpec.of(wanted, into, catalog=catalog, **given)

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
    """What progress is shown of a load."""
    by_tasks = bool(progress.tasks_total) and progress.stage == "loading"
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


def _sources(sources: tuple[str, ...], told: dict[str, Any], options: dict[str, str]) -> list[Any]:
    """The sources; what is told is for those that are files, options for databases, too."""
    if told == {"format": None, "hive_partitions": True} and not options:
        return list(sources)
    from icestream.pipeline.source_spec import SourceSpec

    wanted: list[Any] = []
    for source in sources:
        if source.startswith("table:"):
            wanted.append(source)
        elif source.startswith(("jdbc:", "postgresql:", "postgres:")):
            database = SourceSpec.parse(source)
            wanted.append(replace(database, options={**options, **database.options}))
        else:
            plain = {key: value for key, value in told.items() if value is not None}
            wanted.append({"path": source, "options": _values(options), **plain})
    return wanted


def _values(options: dict[str, str]) -> dict[str, Any]:
    lists = ("columns", "nulls")
    return {
        key: value.split(",") if key in lists else value.replace("\\t", "\t")
        for key, value in options.items()
    }


def pause(seconds: float) -> None:
    """Wait between two loads; Ctrl-C ends it."""
    threading.Event().wait(seconds)
