"""Whether a data file might hold rows that match a filter, by partition and statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import expression_evaluator, inclusive_projection
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

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
    }
    return lambda file: (
        by_partition[file.spec_id](file.partition) and by_metrics(cast(Metrics, file))
    )
