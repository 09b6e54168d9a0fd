"""The metrics of a data file, from the footer of its Parquet file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.types import (
    DateType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from icestream.catalogs.arrow_io import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    data_file_statistics_from_parquet_metadata,
)
from icestream.write.parquet.parquet_settings import ParquetSettings

_COUNTS = MetricsMode(MetricModeTypes.COUNTS)
_NO_BOUNDS = (_COUNTS, MetricsMode(MetricModeTypes.NONE))
_MOMENTS = (DateType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)


def file_metrics(footer: pq.FileMetaData, settings: ParquetSettings) -> dict[str, Any]:
    """The metrics of a file, as `DataFile` takes them, without its number of rows.

    PyIceberg converts bounds to Python's dates, which end with the year 9999. So the bounds of
    dates and timestamps are taken from the footer as numbers.

    Args:
        footer: The footer of the file.
        settings: The settings that the file was written with.
    """
    plan = settings.statistics_plan
    moments = {
        field_id: column
        for field_id, column in plan.items()
        if isinstance(column.iceberg_type, _MOMENTS) and column.mode not in _NO_BOUNDS
    }
    counted = {field_id: replace(column, mode=_COUNTS) for field_id, column in moments.items()}
    metrics = data_file_statistics_from_parquet_metadata(
        footer, {**plan, **counted}, settings.column_ids
    ).to_serialized_dict()
    del metrics["record_count"]
    for field_id, (low, high) in _bounds(footer, moments, settings.column_ids).items():
        kind = moments[field_id].iceberg_type
        metrics["lower_bounds"][field_id] = to_bytes(kind, low)
        metrics["upper_bounds"][field_id] = to_bytes(kind, high)
    return metrics


def _bounds(
    footer: pq.FileMetaData, moments: dict[int, StatisticsCollector], column_ids: dict[str, int]
) -> dict[int, tuple[int, int]]:
    if not moments or not footer.num_row_groups:
        return {}
    first = footer.row_group(0)
    ids = [column_ids[first.column(n).path_in_schema] for n in range(footer.num_columns)]
    positions = {field_id: n for n, field_id in enumerate(ids) if field_id in moments}
    bounds: dict[int, tuple[int, int]] = {}
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for field_id, position in list(positions.items()):
            column = group.column(position)
            if not column.is_stats_set:
                del positions[field_id]
                bounds.pop(field_id, None)
            elif column.statistics.has_min_max:
                statistics = column.statistics
                low, high = bounds.get(field_id, (statistics.min_raw, statistics.max_raw))
                low, high = min(low, statistics.min_raw), max(high, statistics.max_raw)
                bounds[field_id] = low, high
    return bounds
