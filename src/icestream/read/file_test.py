"""Whether a data file might hold rows that match a filter, by partition and statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import UUIDType

from icestream._pyiceberg import Metrics, metrics_evaluator


def file_test(
    metadata: TableMetadata, row_filter: BooleanExpression, *, case_sensitive: bool
) -> Callable[[DataFile], bool]:
    """A function that says whether a file of the table might hold matching rows."""
    schema = metadata.schema()
    by_metrics = metrics_evaluator(schema, row_filter, case_sensitive)
    by_partition = {
        spec_id: expression_evaluator(
            Schema(*spec.partition_type(schema).fields),
            inclusive_projection(schema, spec, case_sensitive)(row_filter),
            case_sensitive,
        )
        for spec_id, spec in metadata.specs().items()
        if not has_uuid_partition(spec, schema)
    }

    def might_match(file: DataFile) -> bool:
        by_key = by_partition.get(file.spec_id or 0)
        return (by_key is None or by_key(file.partition)) and by_metrics(cast(Metrics, file))

    return might_match


def has_uuid_partition(spec: PartitionSpec, schema: Schema) -> bool:
    """Whether partition values are uuids: PyIceberg 0.12 compares them with bytes, to no avail."""
    if spec.is_unpartitioned():
        return False
    fields = spec.partition_type(schema).fields
    return any(isinstance(field.field_type, UUIDType) for field in fields)
