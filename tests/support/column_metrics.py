"""Iceberg column metrics of data files: from a Parquet footer, or from the Arrow rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

_NANOSECONDS = (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
_COUNTED_IN_MICROS = (TimeType, TimestampType, TimestamptzType)
_COUNTED_IN_NANOS = (TimestampNanoType, TimestamptzNanoType)
_BOUNDED = (
    BooleanType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    DateType,
    StringType,
    BinaryType,
    *_COUNTED_IN_MICROS,
    *_COUNTED_IN_NANOS,
)


def parquet_metrics(
    table: Table, rows: pa.Table, footer: pq.FileMetaData, schema: Schema, *, field_ids: bool
) -> dict[str, Any]:
    """Return a Parquet file's metrics as PyIceberg takes them from the footer, NaN counts added."""
    file_schema = pyarrow_to_schema(
        footer.schema.to_arrow_schema(),
        name_mapping=None if field_ids else schema.name_mapping,
        format_version=table.format_version,
        downcast_ns_timestamp_to_us=table.format_version < 3,
    )
    if any(column.type in _NANOSECONDS for column in rows.columns):
        # PyIceberg's way there goes by `datetime`, which has no nanoseconds.
        return {
            "record_count": footer.num_rows,
            "split_offsets": _split_offsets(footer),
            **column_metrics(rows, schema),
        }
    statistics = data_file_statistics_from_parquet_metadata(
        footer,
        compute_statistics_plan(file_schema, table.properties),
        parquet_path_to_id_mapping(file_schema),
    ).to_serialized_dict()
    # PyIceberg leaves NaN counts empty, which reads as "unknown".
    return {**statistics, "nan_value_counts": nan_counts(rows, schema)}


def _split_offsets(footer: pq.FileMetaData) -> list[int]:
    first_columns = [footer.row_group(number).column(0) for number in range(footer.num_row_groups)]
    return [
        min(column.dictionary_page_offset or column.data_page_offset, column.data_page_offset)
        for column in first_columns
    ]


def column_metrics(rows: pa.Table, schema: Schema) -> dict[str, dict[int, Any]]:
    """Return value, null and NaN counts and untruncated bounds of the flat columns."""
    metrics: dict[str, dict[int, Any]] = {
        "value_counts": {},
        "null_value_counts": {},
        "nan_value_counts": nan_counts(rows, schema),
        "lower_bounds": {},
        "upper_bounds": {},
    }
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        field = schema.find_field(name)
        if not isinstance(field.field_type, PrimitiveType):
            continue
        metrics["value_counts"][field.field_id] = len(column)
        metrics["null_value_counts"][field.field_id] = column.null_count
        bounds = _bounds(column, field.field_type)
        if bounds is not None:
            metrics["lower_bounds"][field.field_id] = bounds[0]
            metrics["upper_bounds"][field.field_id] = bounds[1]
    return metrics


def nan_counts(rows: pa.Table, schema: Schema) -> dict[int, int]:
    """Return the number of NaN in each flat floating-point column, by field id."""
    return {
        schema.find_field(name).field_id: pc.sum(pc.is_nan(column)).as_py() or 0
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if pa.types.is_floating(column.type)
    }


def _bounds(column: pa.ChunkedArray, field_type: PrimitiveType) -> tuple[bytes, bytes] | None:
    if not isinstance(field_type, _BOUNDED):
        return None
    if pa.types.is_floating(column.type):
        column = column.filter(pc.invert(pc.is_nan(column)))  # NaN lies outside bounds.
    if isinstance(field_type, _COUNTED_IN_MICROS + _COUNTED_IN_NANOS):
        unit = "us" if isinstance(field_type, _COUNTED_IN_MICROS) else "ns"
        whole = pa.time64(unit) if isinstance(field_type, TimeType) else pa.timestamp(unit)
        column = column.cast(whole).cast(pa.int64())
    found = pc.min_max(column).as_py()
    if found["min"] is None:
        return None
    lower, upper = found["min"], found["max"]
    if pa.types.is_floating(column.type):
        # Zeros of both signs are equal: -0.0 below, +0.0 above, as Parquet does it.
        lower, upper = lower if lower != 0 else -0.0, upper if upper != 0 else 0.0
    return to_bytes(field_type, lower), to_bytes(field_type, upper)
