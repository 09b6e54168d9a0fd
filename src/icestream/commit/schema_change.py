"""A schema change as part of a commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import update_mapping
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from icestream.commit.change import SchemaChange
from icestream.commit.snapshot.spec_schema import loosen
from icestream.errors import CommitConflictError
from icestream.read.request import name_mapping_of
from icestream.write.target import WriteTarget

_ROOT_ID = -1


class SchemaConflictError(CommitConflictError):
    """Another commit changed the table's schema, and the new files do not fit it."""


def apply_schema_change(
    change: SchemaChange | None, metadata: TableMetadata, *, table: str
) -> tuple[TableMetadata, tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """The table with the new schema, and the updates and requirements of the change.

    Raises:
        SchemaConflictError: If the table's schema has changed since the new one was derived, and
            lacks its columns.
    """
    if change is None or _covers(metadata.schema(), change.schema):
        return metadata, (), ()
    if (
        metadata.current_schema_id != change.base_schema_id
        or metadata.last_column_id != change.base_last_column_id
    ):
        raise SchemaConflictError(
            f"the schema of {table} was changed by another commit while this load evolved it too. "
            "Nothing was changed; start again"
        )
    new_id = max(schema.schema_id for schema in metadata.schemas) + 1
    schema = change.schema.model_copy(update={"schema_id": new_id})
    updates: tuple[TableUpdate, ...] = (
        AddSchemaUpdate(schema_=schema),
        SetCurrentSchemaUpdate(schema_id=-1),
    )
    updates += _mapping_update(metadata, schema, table)
    requirements: tuple[TableRequirement, ...] = (
        AssertCurrentSchemaId(current_schema_id=change.base_schema_id),
        AssertLastAssignedFieldId(last_assigned_field_id=change.base_last_column_id),
    )
    return update_table_metadata(metadata, updates), updates, requirements


def evolved(target: WriteTarget, loosened: Collection[int]) -> SchemaChange | None:
    """The change from the table's schema to that of the new files; None if they are equal.

    Args:
        target: The table, with the schema of the new files.
        loosened: Ids of required fields that hold nulls.
    """
    if target.schema == target.metadata.schema() and not loosened:
        return None
    return SchemaChange.of(target, loosen(target.schema, loosened))


def loosened_in_words(schema: Schema, loosened: Collection[int]) -> tuple[str, ...]:
    """Sentences for a report about required fields that were made optional."""
    names = (schema.find_column_name(field_id) for field_id in sorted(loosened))
    return tuple(f"column {name!r} made optional" for name in names)


def _mapping_update(metadata: TableMetadata, schema: Schema, table: str) -> tuple[TableUpdate, ...]:
    """Add the new columns to the table's name mapping, if it has one."""
    mapping = name_mapping_of(metadata, table)
    if mapping is None:
        return ()
    known = set(metadata.schema().field_ids)
    added: dict[int, list[NestedField]] = defaultdict(list)
    waiting = [(_ROOT_ID, field) for field in schema.fields]
    while waiting:
        parent_id, field = waiting.pop(0)
        if field.field_id not in known:
            added[parent_id].append(field)
        else:
            waiting.extend((field.field_id, child) for child in _children(field.field_type))
    if not added:
        return ()
    text = update_mapping(mapping, {}, added).model_dump_json()
    return (SetPropertiesUpdate(updates={TableProperties.DEFAULT_NAME_MAPPING: text}),)


def _children(kind: IcebergType) -> tuple[NestedField, ...]:
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.key_field, kind.value_field) if isinstance(kind, MapType) else ()


def _covers(current: Schema, wanted: Schema) -> bool:
    """Whether a schema has every column of another one, with the same type and not stricter."""
    for field_id in wanted.field_ids:
        if current.find_column_name(field_id) != wanted.find_column_name(field_id):
            return False
        mine, theirs = current.find_field(field_id), wanted.find_field(field_id)
        if theirs.field_type.is_primitive and mine.field_type != theirs.field_type:
            return False
        if mine.required and not theirs.required:
            return False
    return True
