"""Arrow values as text and as JSON has them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

SLICE_ROWS = 1024  # rows that become Python objects at a time


def json_rows(batch: pa.RecordBatch) -> Iterator[str]:
    """Each row as a JSON object on one line.

    What JSON lacks is text: decimals, times, bytes (base64), NaN and the infinities.
    """
    for start in range(0, batch.num_rows, SLICE_ROWS):
        part = _times_as_text(batch.slice(start, SLICE_ROWS))
        for row in part.to_pylist():
            yield dumps(row)


def dumps(value: Any) -> str:
    """A value of `to_pylist` as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_other)
    except ValueError:  # NaN somewhere in it
        return json.dumps(_without_nan(value), ensure_ascii=False, default=_other)


def flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with columns that CSV can't have as text: nested ones as JSON, bytes as base64."""
    columns = [column if _is_flat(column.type) else _as_text(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def flat_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of what `flat` gives."""
    return pa.schema(
        [(field.name, field.type if _is_flat(field.type) else pa.string()) for field in schema]
    )


def text_rows(batch: pa.RecordBatch) -> Iterator[list[str]]:
    """Each row as texts, for people."""
    for start in range(0, batch.num_rows, SLICE_ROWS):
        part = _times_as_text(batch.slice(start, SLICE_ROWS))
        for row in zip(*(column.to_pylist() for column in part.columns), strict=True):
            yield ["" if value is None else _text(value) for value in row]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else dumps(value).strip('"')
    return text.replace("\n", "\\n").replace("\t", "\\t")


def _as_text(column: pa.Array) -> pa.Array:
    texts: list[str | None] = []
    for value in column.to_pylist():
        text = None if value is None else dumps(value)
        nested = isinstance(value, (dict, list))
        texts.append(text if text is None or nested else json.loads(text))
    return pa.array(texts, pa.string())


def _times_as_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times through Arrow: Python has no nanoseconds."""
    columns = [
        column.cast(pa.string()) if pa.types.is_temporal(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _is_flat(kind: pa.DataType) -> bool:
    return not (
        pa.types.is_nested(kind)
        or isinstance(kind, pa.BaseExtensionType)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _other(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(each) for each in value]
    return value
