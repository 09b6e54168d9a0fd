"""`icestream explain`: what a scan is going to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.output import pairs, size
from icestream.cli.parameters import TableName
from icestream.cli.scan_options import make_scan, scan_options
from icestream.cli.settings import Settings

if TYPE_CHECKING:
    from icestream.report import ScanExplanation


@command(
    "explain",
    short_help="What a scan would read and hold.",
    memory=True,
    examples=(
        "icestream explain shop.orders",
        'icestream explain shop.orders --where "price > 10" --columns id --memory 64MB',
        "icestream explain shop.orders --json",
    ),
)
@click.argument("table", type=TableName())
@scan_options
def explain(settings: Settings, table: str, **asked: Any) -> None:
    """Predict what a scan of TABLE would read and hold; nothing but metadata is read."""
    with (
        settings.open_table(table) as opened,
        make_scan(opened, settings.budget(), **asked) as scanning,
    ):
        found = scanning.explain()
    settings.show({"table": table, **found.to_dict()}, lambda: _text(table, found))


def _text(table: str, found: ScanExplanation) -> list[str]:
    each = f"{size(found.stream_bytes)} each"
    return pairs(
        [
            ("table", table),
            ("snapshot", str(found.snapshot_id) if found.snapshot_id else "none"),
            ("filter", None if found.row_filter == "AlwaysTrue()" else found.row_filter),
            ("files", found.files),
            ("delete files", found.delete_files),
            ("rows", f"{found.rows:,}, before deletes and the filter"),
            ("in storage", size(found.compressed_bytes)),
            ("columns decoded", found.columns),
            ("order", found.order),
            ("streams", f"{found.streams:,}, {each}"),
            ("batch", f"{found.batch_rows:,} rows, {size(found.batch_bytes)}"),
            ("buffers", size(found.buffer_bytes)),
            ("limit", size(found.memory_limit_bytes)),
        ]
    )
