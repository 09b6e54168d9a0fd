"""Whether a data file may contain rows that match a filter, by partition and statistics."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import cast

from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import (
    ResidualEvaluator,
    bind,
    expression_evaluator,
    extract_field_ids,
    inclusive_projection,
    manifest_evaluator,
    residual_evaluator_of,
)
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import UUIDType

from icestream.catalogs._pyiceberg.manifests import Metrics, metrics_evaluator
from icestream.read.distant_years import any_year
from icestream.read.request import ScanRequest


class Match(Enum):
    """Which rows of a file match a filter, judged by its partition."""

    NONE = 0
    SOME = 1
    ALL = 2


class PartitionTest:
    """A filter on the partitions of one spec, for its manifests and partitions."""

    def __init__(
        self,
        schema: Schema,
        spec: PartitionSpec,
        row_filter: BooleanExpression,
        *,
        case_sensitive: bool,
    ) -> None:
        self._manifest: Callable[[ManifestFile], bool] = lambda _: True
        self._partition: Callable[[Record], bool] = lambda _: True
        self._residual: ResidualEvaluator | None = None
        self._all = isinstance(row_filter, AlwaysTrue)
        if self._all or spec.is_unpartitioned() or has_uuid_partition(spec, schema):
            return
        spec = any_year(spec)
        projected = inclusive_projection(schema, spec, case_sensitive)(row_filter)
        partition_schema = Schema(*spec.partition_type(schema).fields)
        self._manifest = manifest_evaluator(spec, schema, projected, case_sensitive)
        self._partition = expression_evaluator(partition_schema, projected, case_sensitive)
        used = extract_field_ids(bind(schema, row_filter, case_sensitive))
        self._used = [n for n, field in enumerate(spec.fields) if field.source_id in used]
        if self._used:
            self._residual = residual_evaluator_of(spec, row_filter, case_sensitive, schema)

    def manifest(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may contain files with matching rows."""
        return self._manifest(manifest)

    def partition(self, partition: Record) -> Match:
        """Which rows in the files of a partition match."""
        if self._all:
            return Match.ALL
        if not self._partition(partition):
            return Match.NONE
        if self._residual is None:
            return Match.SOME
        # For null partition values, PyIceberg keeps comparisons that drop null rows, or fails.
        values = [partition[n] for n in self._used]
        if any(value is None or value != value for value in values):
            return Match.SOME
        left = self._residual.residual_for(partition)
        if isinstance(left, AlwaysFalse):
            return Match.NONE
        return Match.ALL if isinstance(left, AlwaysTrue) else Match.SOME


def all_rows_match(request: ScanRequest, task: FileScanTask) -> bool:
    """Whether every row of a task's file matches the filter, judged by the partition.

    The task's residual alone is not reliable. Tasks built by hand or by a REST catalog may lack it,
    and for null partition values PyIceberg keeps comparisons that drop null rows.
    """
    row_filter, file = request.context.row_filter, task.file
    if isinstance(row_filter, AlwaysTrue):
        return True
    metadata = request.data_scan.table_metadata
    spec = metadata.specs().get(file.spec_id or 0)
    if spec is None or not isinstance(task.residual, AlwaysTrue):
        return False
    test = PartitionTest(
        metadata.schema(), spec, row_filter, case_sensitive=request.context.case_sensitive
    )
    return test.partition(file.partition) is Match.ALL


def file_test(
    metadata: TableMetadata, row_filter: BooleanExpression, *, case_sensitive: bool
) -> Callable[[DataFile], bool]:
    """A function that returns whether a file of the table may contain matching rows."""
    schema = metadata.schema()
    by_metrics = metrics_evaluator(schema, row_filter, case_sensitive)
    by_partition = {
        spec_id: expression_evaluator(
            Schema(*spec.partition_type(schema).fields),
            inclusive_projection(schema, any_year(spec), case_sensitive)(row_filter),
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
    """Whether a partition field is a uuid. PyIceberg 0.12 wrongly compares those with bytes."""
    if spec.is_unpartitioned():
        return False
    fields = spec.partition_type(schema).fields
    return any(isinstance(field.field_type, UUIDType) for field in fields)
