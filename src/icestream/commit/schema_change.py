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
from icestream.errors import CommitConflictError
from icestream.read.request import name_mapping_of
from icestream.write.target import WriteTarget

_ROOT_ID = -1


class SchemaConflictError(CommitConflictError):
    """The table's schema was changed by others in a way that the files written do not fit."""


def apply_schema_change(
    change: SchemaChange | None, metadata: TableMetadata, *, table: str
) -> tuple[TableMetadata, tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """The table with the new schema, and what makes it so.

    Raises:
        SchemaConflictError: If the table's schema has changed since the new one was derived, and
            does not have its columns.
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
    """The change that makes the schema of a write's files the table's; None if it is that already.

    Args:
        target: The table, with the schema that files were written with.
        loosened: Ids of required fields that turned out to hold nulls.
    """
    if target.schema == target.metadata.schema() and not loosened:
        return None
    return SchemaChange.of(target, loosen(target.schema, loosened))


def loosened_in_words(schema: Schema, loosened: Collection[int]) -> tuple[str, ...]:
    """What a report says of required fields that were made optional."""
    names = (schema.find_column_name(field_id) for field_id in sorted(loosened))
    return tuple(f"column {name!r} made optional" for name in names)


def _mapping_update(metadata: TableMetadata, schema: Schema, table: str) -> tuple[TableUpdate, ...]:
    """Have the table's name mapping know the new columns, if it has one."""
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
    """Whether a schema has every column of another one: same id, name, type, not stricter."""
    for field_id in wanted.field_ids:
        if current.find_column_name(field_id) != wanted.find_column_name(field_id):
            return False
        mine, theirs = current.find_field(field_id), wanted.find_field(field_id)
        if theirs.field_type.is_primitive and mine.field_type != theirs.field_type:
            return False
        if mine.required and not theirs.required:
            return False
    return True


def loosen(schema: Schema, field_ids: Collection[int]) -> Schema:
    """The schema with some fields made optional, at any depth."""
    fields = [_loosen_field(field, field_ids) for field in schema.fields]
    return Schema(
        *fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids
    )


def _loosen_field(field: NestedField, ids: Collection[int]) -> NestedField:
    return field.model_copy(
        update={
            "required": field.required and field.field_id not in ids,
            "field_type": _loosen_type(field.field_type, ids),
        }
    )


def _loosen_type(kind: IcebergType, ids: Collection[int]) -> IcebergType:
    if isinstance(kind, StructType):
        return StructType(*(_loosen_field(field, ids) for field in kind.fields))
    if isinstance(kind, ListType):
        return kind.model_copy(
            update={
                "element_type": _loosen_type(kind.element_type, ids),
                "element_required": kind.element_required and kind.element_id not in ids,
            }
        )
    if isinstance(kind, MapType):
        return kind.model_copy(
            update={
                "key_type": _loosen_type(kind.key_type, ids),
                "value_type": _loosen_type(kind.value_type, ids),
                "value_required": kind.value_required and kind.value_id not in ids,
            }
        )
    return kind
