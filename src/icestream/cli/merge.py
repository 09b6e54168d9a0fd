"""`icestream merge`: files into a table, by a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from icestream.cli.change_options import merge_options, snapshot_options
from icestream.cli.command import command
from icestream.cli.parameters import Columns, TableName
from icestream.cli.progress import Counts, Progress
from icestream.cli.settings import Settings

if TYPE_CHECKING:
    from icestream.write.source_files import SourceFiles


@command(
    "merge",
    short_help="Files into a table, by a key.",
    memory=True,
    examples=(
        "icestream merge changes.csv --into shop.orders --on id",
        "icestream merge changes.csv --into shop.orders --on id --when-not-matched ignore",
        "icestream merge changes.csv --into shop.orders --on id --write-mode merge-on-read --json",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=str))
@click.option("--into", required=True, type=TableName(), metavar="TABLE", help="The table.")
@click.option(
    "--on",
    type=Columns(),
    metavar="A,B",
    help="The key; the table's identifier fields if left out.",
)
@merge_options
@snapshot_options
@click.option(
    "--format",
    "format_",
    type=click.Choice(["parquet", "csv", "json", "arrow", "orc"]),
    help="What the files are, if their names do not say it.",
)
def merge(
    settings: Settings,
    files: tuple[str, ...],
    into: str,
    format_: Any,
    properties: tuple[tuple[str, str], ...],
    **options: Any,
) -> None:
    """Merge FILES into a table by a key: update what matches, insert the rest, in one snapshot.

    FILES are paths, globs or folders of Parquet, CSV, JSON lines, Arrow IPC or ORC files. Columns
    that they lack keep their values.
    """
    import icestream as ice
    from icestream.cli.write_text import write_text
    from icestream.write.source_files import SourceFiles

    with settings.open_table(into) as table:
        source = SourceFiles(files, format=format_, types=table.schema().as_arrow())
        budget = settings.budget()
        progress = Progress(
            f"merge into {into}", lambda: _counts(source), budget, shown=not settings.quiet
        )
        with settings.changing(table), progress:
            report = ice.merge(table, source, memory=budget, properties=dict(properties), **options)
    settings.show({"table": into, **report.to_dict()}, lambda: write_text(into, report))


def _counts(source: SourceFiles) -> Counts:
    stage = "changing the table" if source.is_read else "reading files"
    return Counts(source.rows_read, None, source.files_read, len(source.paths), stage)
