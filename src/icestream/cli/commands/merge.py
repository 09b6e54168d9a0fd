"""`icestream merge` merges files into a table by a key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.options.change_options import merge_options, snapshot_options
from icestream.cli.options.parameters import Columns, TableName, property_option, reader_values
from icestream.cli.options.settings import Settings
from icestream.cli.output.progress import Counts, Progress
from icestream.write.sources.formats import FILE_FORMATS

if TYPE_CHECKING:
    from icestream.write.sources.file_stream import SourceFiles


@command(
    "merge",
    short_help="Merge files into a table by a key.",
    memory=True,
    examples=(
        "icestream merge changes.csv --into shop.orders --on id",
        "icestream merge changes.csv --into shop.orders --on id --when-not-matched ignore",
        "icestream merge changes.csv --into shop.orders --on id --write-mode merge-on-read --json",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=str))
@click.option("--into", required=True, type=TableName(), metavar="TABLE", help="Table to change.")
@click.option(
    "--on",
    type=Columns(),
    metavar="A,B",
    help="Key columns.  [default: the table's identifier fields]",
)
@partial(merge_options, only=True)
@snapshot_options
@click.option(
    "--format",
    "format_",
    type=click.Choice(FILE_FORMATS),
    help="Format of the files.  [default: from their names]",
)
@property_option(
    "--option", "reader_options", "Reader option, such as delimiter=; or encoding=latin-1"
)
def merge(
    settings: Settings,
    files: tuple[str, ...],
    into: str,
    format_: Any,
    properties: tuple[tuple[str, str], ...],
    reader_options: tuple[tuple[str, str], ...],
    **options: Any,
) -> None:
    """Merge FILES into a table by a key: update matching rows, insert others, in one snapshot.

    FILES are paths, globs or folders of Parquet, CSV, JSON, Arrow IPC or ORC files. Updated
    rows keep their values in columns that are missing from the files.
    """
    import icestream as ice
    from icestream.cli.output.report_text import write_text
    from icestream.write.sources.file_stream import SourceFiles

    with settings.open_table(into) as table:
        budget = settings.budget()
        types = table.schema().as_arrow()
        source = SourceFiles(
            files,
            format=format_,
            types=types,
            memory=budget,
            options=reader_values(dict(reader_options)),
        )
        progress = Progress(
            f"merge into {into}", lambda: _counts(source), budget, shown=not settings.quiet
        )
        with settings.changing(table), progress:
            report = ice.merge(table, source, memory=budget, properties=dict(properties), **options)
    settings.show({"table": into, **report.to_dict()}, lambda: write_text(into, report))


def _counts(source: SourceFiles) -> Counts:
    stage = "changing the table" if source.is_read else "reading files"
    return Counts(source.rows_read, None, source.files_read, len(source.paths), stage)
