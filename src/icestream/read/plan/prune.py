"""Skip row groups that can't contain matching rows, by their statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.types import PrimitiveType, TimestampNanoType, TimestamptzNanoType

from icestream.catalogs._pyiceberg.manifests import metrics_evaluator
from icestream.read.project.projection import FieldIds, leaf_count
from icestream.read.split import ReadContext

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(slots=True)
class _RowGroupMetrics:
    """A row group's statistics in the form of a data file's metrics."""

    record_count: int
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


def row_group_test(
    context: ReadContext, file_schema: pa.Schema, ids: FieldIds
) -> Callable[[pq.RowGroupMetaData], bool]:
    """A function that returns whether a row group may contain rows that match the filter.

    Only columns outside lists and maps have usable statistics. Columns that the file lacks are
    ignored, because they may have a default or a partition value.
    """
    schema = context.read_schema
    used = extract_field_ids(bind(schema, context.row_filter, context.case_sensitive))
    leaves = _leaf_of_id(file_schema, ids, used)
    kinds = {i: schema.find_type(i) for i in leaves}
    might_match = metrics_evaluator(schema, context.row_filter, context.case_sensitive)

    def test(group: pq.RowGroupMetaData) -> bool:
        metrics = _RowGroupMetrics(group.num_rows)
        for field_id, (leaf, arrow) in leaves.items():
            _add_column(metrics, field_id, group.column(leaf), kinds[field_id], arrow)
        return might_match(metrics)

    return test


def _leaf_of_id(
    file_schema: pa.Schema, ids: FieldIds, used: set[int]
) -> dict[int, tuple[int, pa.DataType]]:
    leaves: dict[int, tuple[int, pa.DataType]] = {}
    counter = 0

    def walk(fields: list[pa.Field], scope: Any) -> None:
        nonlocal counter
        for arrow in fields:
            field_id = scope.field_id(arrow, arrow.name)
            kind = arrow.type
            if isinstance(kind, pa.StructType):
                walk(list(kind), scope.below(arrow.name))
                continue
            if field_id in used and kind.num_fields == 0:
                leaves[field_id] = counter, kind
            counter += leaf_count(kind)

    walk(list(file_schema), ids.root())
    return leaves


def _add_column(
    metrics: _RowGroupMetrics,
    field_id: int,
    column: pq.ColumnChunkMetaData,
    kind: Any,
    arrow: pa.DataType,
) -> None:
    if not isinstance(kind, PrimitiveType):
        return
    statistics = column.statistics if column.is_stats_set else None
    if statistics is None:
        return
    metrics.value_counts[field_id] = column.num_values
    if statistics.has_null_count:
        metrics.null_value_counts[field_id] = statistics.null_count
    if not statistics.has_min_max:
        return
    try:
        if pa.types.is_timestamp(arrow):
            low, high = (_moment(v, arrow, kind) for v in (statistics.min_raw, statistics.max_raw))
        elif pa.types.is_date32(arrow):
            low, high = statistics.min_raw, statistics.max_raw
        else:
            low, high = statistics.min, statistics.max
        lower, upper = to_bytes(kind, low), to_bytes(kind, high)
    except Exception:  # PyArrow or PyIceberg can't convert these statistics.
        return
    if isinstance(lower, bytes) and isinstance(upper, bytes):  # Not text in a binary column.
        metrics.lower_bounds[field_id] = lower
        metrics.upper_bounds[field_id] = upper


def _moment(raw: int, source: pa.TimestampType, kind: PrimitiveType) -> int:
    """A bound in the table's unit, rounded towards zero like the projected values."""
    unit = "ns" if isinstance(kind, (TimestampNanoType, TimestamptzNanoType)) else "us"
    scaled = abs(raw) * _PER_SECOND[unit] // _PER_SECOND[source.unit]
    return scaled if raw >= 0 else -scaled
