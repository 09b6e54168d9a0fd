"""`icestream schema` shows the columns of a table, and changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.options.parameters import TableName, property_option
from icestream.cli.options.settings import Settings
from icestream.cli.output.text import columns

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

_Pairs = tuple[tuple[str, str], ...]


@command(
    "schema",
    short_help="Show the columns of a table; add, rename, widen or drop some.",
    examples=(
        "icestream schema shop.orders",
        "icestream schema shop.orders --json",
        'icestream schema shop.orders --add "discount=decimal(10,2)" --rename price=amount',
        "icestream schema shop.orders --drop country --dry-run",
    ),
)
@click.argument("table", type=TableName())
@property_option("--add", "add", "Add a column", "NAME=TYPE")
@property_option("--rename", "rename", "Rename a column", "OLD=NEW")
@property_option("--widen", "widen", "Give a column a wider type, such as id=long", "NAME=TYPE")
@click.option(
    "--drop", multiple=True, metavar="NAME", help="Drop a column (repeatable). Files keep it."
)
@click.option("--dry-run", is_flag=True, help="Show the new columns, and change nothing.")
def schema(
    settings: Settings,
    table: str,
    add: _Pairs,
    rename: _Pairs,
    widen: _Pairs,
    drop: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Show the columns of TABLE. With options, change them first, in one commit.

    Data files do not change. Fields of structs are named with dots, as in address.city.
    """
    from icestream.operations.upkeep.metadata.schema_update import SchemaUpdate, update_schema

    changes = bool(add or rename or widen or drop)
    with settings.open_table(table) as opened, settings.changing(opened):
        shown = opened.schema()
        if changes:
            wanted = SchemaUpdate(add=dict(add), rename=dict(rename), widen=dict(widen), drop=drop)
            shown = update_schema(opened, wanted, dry_run=dry_run)
    document = {"table": table, "schema_id": shown.schema_id, "columns": _columns(shown)}
    if changes:
        document["dry_run"] = dry_run
    note = f"{table} would have these columns (dry run: nothing was changed)"
    head = [note, ""] if changes and dry_run else []
    settings.show(document, lambda: [*head, *_text(shown)])


def _columns(schema: Schema) -> list[dict[str, Any]]:
    keys = set(schema.identifier_field_ids)
    return [_column(each, keys) for each in schema.fields]


def _column(field: NestedField, keys: set[int]) -> dict[str, Any]:
    return {
        "id": field.field_id,
        "name": field.name,
        "type": str(field.field_type),
        "required": field.required,
        "is_key": field.field_id in keys,
        "doc": field.doc,
    }


def _text(schema: Schema) -> list[str]:
    rows = [
        (
            each["id"],
            each["name"],
            each["type"],
            " ".join(
                w for w, is_so in (("required", "required"), ("key", "is_key")) if each[is_so]
            ),
            each["doc"] or "",
        )
        for each in _columns(schema)
    ]
    return columns(("id", "column", "type", "", ""), rows)
