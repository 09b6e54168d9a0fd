"""Schemas of older partition specs, and schemas with optional fields."""

from __future__ import annotations

from collections.abc import Collection

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType


def schema_for(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """The current schema, or the newest one that still has the source columns of the spec.

    Without them, PyIceberg would drop the partition values of the spec's files. A dropped partition
    field is null, even if its source column is required.
    """
    sources = {field.source_id for field in spec.fields}
    newest_first = sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    schemas = (metadata.schema(), *newest_first)
    schema = next((s for s in schemas if sources <= s.field_ids), metadata.schema())
    void = [f.source_id for f in spec.fields if isinstance(f.transform, VoidTransform)]
    return loosen(schema, void) if void else schema


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
    # These are created anew: a copy would keep the field that PyIceberg has cached in the original.
    if isinstance(kind, ListType):
        element = _loosen_type(kind.element_type, ids)
        required = kind.element_required and kind.element_id not in ids
        return ListType(kind.element_id, element, element_required=required)
    if isinstance(kind, MapType):
        key, value = _loosen_type(kind.key_type, ids), _loosen_type(kind.value_type, ids)
        required = kind.value_required and kind.value_id not in ids
        return MapType(kind.key_id, key, kind.value_id, value, value_required=required)
    return kind
