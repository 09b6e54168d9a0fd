"""`icestream tables` lists the tables of a catalog, or describes one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.options.parameters import TableName
from icestream.cli.options.settings import Settings
from icestream.cli.output.text import columns, moment, pairs

if TYPE_CHECKING:
    from pyiceberg.table import Table

_SNAPSHOTS_SHOWN = 10


@command(
    "tables",
    short_help="List tables, or show the columns and snapshots of one.",
    examples=(
        "icestream tables",
        "icestream tables shop.orders",
        "icestream tables shop.orders --json",
    ),
)
@click.argument("table", required=False, type=TableName())
def tables(settings: Settings, table: str | None) -> None:
    """List the tables of the catalog, or show columns, partitioning and snapshots of TABLE."""
    if table is None:
        from icestream.catalogs.lookup import list_tables

        with settings.open_catalog() as catalog:
            listing = {"catalog": catalog.name, "namespaces": list_tables(catalog)}
        settings.show(listing, lambda: _listing_text(listing))
        return
    with settings.open_table(table) as opened:
        description = _description(table, opened)
    settings.show(description, lambda: _description_text(description))


def _listing_text(listing: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for namespace, names in listing["namespaces"].items():
        lines += names or [f"{namespace} (no tables)"]
    return lines or [f"catalog {listing['catalog']!r} has no namespaces"]


def _description(name: str, table: Table) -> dict[str, Any]:
    metadata = table.metadata
    schema, spec, order = table.schema(), table.spec(), table.sort_order()
    keys = set(schema.identifier_field_ids)
    return {
        "table": name,
        "uuid": str(metadata.table_uuid),
        "location": metadata.location,
        "format_version": metadata.format_version,
        "current_snapshot_id": metadata.current_snapshot_id,
        "columns": [
            {
                "id": field.field_id,
                "name": field.name,
                "type": str(field.field_type),
                "required": field.required,
                "is_key": field.field_id in keys,
                "doc": field.doc,
            }
            for field in schema.fields
        ],
        "partition_by": [
            {
                "name": field.name,
                "column": schema.find_column_name(field.source_id),
                "transform": str(field.transform),
            }
            for field in spec.fields
        ],
        "sort_by": [
            {
                "column": schema.find_column_name(field.source_id),
                "transform": str(field.transform),
                "direction": field.direction.value,
                "nulls": field.null_order.value,
            }
            for field in order.fields
        ],
        "snapshots": [_snapshot(each) for each in metadata.snapshots],
        "refs": [
            {"name": name, "type": ref.snapshot_ref_type.value, "snapshot_id": ref.snapshot_id}
            for name, ref in sorted(metadata.refs.items())
        ],
        "properties": dict(sorted(metadata.properties.items())),
    }


def _snapshot(snapshot: Any) -> dict[str, Any]:
    summary = snapshot.summary
    return {
        "snapshot_id": snapshot.snapshot_id,
        "parent_snapshot_id": snapshot.parent_snapshot_id,
        "committed_ms": snapshot.timestamp_ms,
        "operation": summary.operation.value if summary else None,
        "summary": dict(summary.additional_properties) if summary else {},
    }


def _description_text(description: dict[str, Any]) -> list[str]:
    refs = [f"{ref['name']} ({ref['type']})" for ref in description["refs"]]
    facts = pairs(
        [
            ("table", description["table"]),
            ("location", description["location"]),
            ("format version", description["format_version"]),
            ("partitioned by", ", ".join(map(_field, description["partition_by"])) or "nothing"),
            ("sorted by", ", ".join(map(_field, description["sort_by"])) or None),
            ("branches and tags", ", ".join(refs) or None),
        ]
    )
    fields = [
        (
            each["id"],
            each["name"],
            each["type"],
            " ".join(
                word for word, is_so in (("required", "required"), ("key", "is_key")) if each[is_so]
            ),
            each["doc"] or "",
        )
        for each in description["columns"]
    ]
    return [
        *facts,
        "",
        *columns(("id", "column", "type", "", ""), fields),
        "",
        *_history(description),
    ]


def _history(description: dict[str, Any]) -> list[str]:
    snapshots = list(reversed(description["snapshots"]))
    if not snapshots:
        return ["no snapshots: the table is empty"]
    rows = [
        (
            str(each["snapshot_id"]),
            moment(each["committed_ms"]),
            each["operation"],
            _count(each, "added-records"),
            _count(each, "deleted-records"),
            _count(each, "total-records"),
            _count(each, "total-data-files"),
        )
        for each in snapshots[:_SNAPSHOTS_SHOWN]
    ]
    header = ("snapshot", "committed (UTC)", "operation", "added", "removed", "rows", "files")
    more = len(snapshots) - len(rows)
    tail = [f"... and {more:,} older: --json has all"] if more else []
    return [*columns(header, rows), *tail]


def _count(snapshot: dict[str, Any], name: str) -> int:
    return int(snapshot["summary"].get(name, 0))


def _field(field: dict[str, str]) -> str:
    text = field["column"]
    if field["transform"] != "identity":
        text = f"{field['transform']}({field['column']})"
    return f"{text} {field['direction']}" if "direction" in field else text
