"""Schema updates: add, rename, widen and drop columns, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller

from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, NestedField, PrimitiveType

from icestream.catalogs._pyiceberg.commits import schema_updates
from icestream.commit.landing import TableLanding
from icestream.commit.ref_change import RefChange, change_refs
from icestream.errors import CommitConflictError, InvalidArgumentError, UnknownColumnError

_ALIASES = {
    "int64": "long",
    "bigint": "long",
    "int32": "int",
    "integer": "int",
    "float64": "double",
    "float32": "float",
    "bool": "boolean",
    "text": "string",
    "varchar": "string",
}
_TYPES = (
    "boolean, int, long, float, double, decimal(10,2), date, time, timestamp, timestamptz, string, "
    "uuid or binary"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaUpdate:
    """Changes of columns. Nested columns are named with dots, as in `address.city`.

    Attributes:
        add: New columns with their types. They are null in all rows.
        rename: New names of columns.
        widen: New types of columns: int to long, float to double, or a larger decimal.
        drop: Columns to drop. Their values become invisible; the files keep them.
    """

    add: Mapping[str, str] = field(default_factory=dict, repr=False)
    rename: Mapping[str, str] = field(default_factory=dict, repr=False)
    widen: Mapping[str, str] = field(default_factory=dict, repr=False)
    drop: Sequence[str] = ()

    def changes(self) -> Iterator[Callable[[UpdateSchema], object]]:
        """The changes for PyIceberg's update."""
        for name in self.drop:
            yield methodcaller("delete_column", _path(name))
        for name, kind in self.widen.items():
            yield methodcaller("update_column", _path(name), type_of(kind))
        for name, new_name in self.rename.items():
            yield methodcaller("rename_column", _path(name), new_name)
        for name, kind in self.add.items():
            yield methodcaller("add_column", _path(name), type_of(kind))

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that must exist."""
        return (*self.drop, *self.widen, *self.rename)


def update_schema(table: Table, changes: SchemaUpdate, *, dry_run: bool = False) -> Schema:
    """Change the columns of a table, in one commit. Data files do not change.

    Args:
        table: The table.
        changes: The changes.
        dry_run: Whether to return the new schema, and change nothing.

    Returns:
        The new schema.

    Raises:
        InvalidArgumentError: If a change is not possible, such as a narrower type.
        CommitConflictError: If another commit changed the schema meanwhile. Nothing was changed.
    """
    label = ".".join(table.name())
    before = TableLanding(table).refresh()
    _refuse_unknown_columns(before.schema(), changes.names, label)
    _refuse_used_columns(before, changes.drop, label)
    try:
        wanted, _, _ = schema_updates(table, changes.changes())
    except InvalidArgumentError:
        raise
    except (ValueError, ValidationError) as error:
        raise InvalidArgumentError(f"the columns of {label} can't be changed: {error}") from error
    if dry_run:
        return wanted

    def change(metadata: TableMetadata) -> RefChange | None:
        if metadata.schema().as_struct() == wanted.as_struct():
            return None
        if metadata.current_schema_id != before.current_schema_id:
            raise CommitConflictError(
                f"another commit changed the columns of {label} meanwhile. Nothing was changed; "
                "look at them, and start again"
            )
        _, updates, requirements = schema_updates(table, changes.changes())
        return RefChange(updates, requirements)

    return change_refs(table, change, what="the change of the columns").schema()


def type_of(text: str) -> IcebergType:
    """The Iceberg type of a name such as `long` or `decimal(10,2)`.

    Raises:
        InvalidArgumentError: If there is no such type.
    """
    name = _ALIASES.get(text.strip().lower(), text.strip().lower())
    try:
        kind = NestedField.model_validate(
            {"id": 1, "name": "any", "type": name, "required": False}
        ).field_type
    except Exception:
        kind = None
    if not isinstance(kind, PrimitiveType):
        raise InvalidArgumentError(f"{text!r} is not a type of columns: give {_TYPES}")
    return kind


def _path(name: str) -> tuple[str, ...]:
    return tuple(name.split("."))


def _refuse_unknown_columns(schema: Schema, names: Sequence[str], table: str) -> None:
    missing = [name for name in names if name not in schema.column_names]
    if missing:
        raise UnknownColumnError(
            f"{table} has no column {missing[0]!r}: it has {', '.join(schema.column_names)}"
        )


def _refuse_used_columns(metadata: TableMetadata, names: Sequence[str], table: str) -> None:
    """Refuse to drop columns by which rows are partitioned, sorted or identified."""
    schema = metadata.schema()
    partitioned = {
        field.source_id
        for field in metadata.spec().fields
        if not isinstance(field.transform, VoidTransform)
    }
    order = next(o for o in metadata.sort_orders if o.order_id == metadata.default_sort_order_id)
    uses = (
        ("its partitions are made from it", partitioned),
        ("its rows are sorted by it", {field.source_id for field in order.fields}),
        ("it is part of the key", set(schema.identifier_field_ids)),
    )
    for name in names:
        ids = set(Schema(schema.find_field(name)).field_ids)
        for reason, used in uses:
            if ids & used:
                raise InvalidArgumentError(f"{name!r} of {table} can't be dropped: {reason}")
