"""The schema that gives a partition spec its types."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform

from icestream.commit.schema_change import loosen


def schema_for(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """The current schema; or the newest that still has the columns that the spec is made from.

    Without them, PyIceberg would drop the partition values of the spec's files. A dropped field is
    null, also where its column is required.
    """
    sources = {field.source_id for field in spec.fields}
    newest_first = sorted(metadata.schemas, key=lambda schema: schema.schema_id, reverse=True)
    schemas = (metadata.schema(), *newest_first)
    schema = next((s for s in schemas if sources <= s.field_ids), metadata.schema())
    void = [f.source_id for f in spec.fields if isinstance(f.transform, VoidTransform)]
    return loosen(schema, void) if void else schema
