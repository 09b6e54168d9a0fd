"""Arrow values as text and as JSON."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from icestream.read.distant_years import shown_values

SLICE_ROWS = 8192  # rows that are converted at a time
NULL = str(b"NULL", "ascii")  # compared with `is`, because a value may be the same text
_ESCAPED = r'[\x00-\x1f"\\]'
_WHOLE = r"^(-?\d+)$"


def json_rows(batch: pa.RecordBatch) -> Iterator[pa.StringArray]:
    """Convert rows to JSON objects, some thousands at a time.

    Values that JSON has no type for become text: decimals, times, bytes (base64), NaN and
    infinities.
    """
    names = [json.dumps(name, ensure_ascii=False) for name in batch.schema.names]
    if not names:
        return
    for start in range(0, batch.num_rows, SLICE_ROWS):
        parts: list[Any] = []
        for name, column in zip(names, batch.slice(start, SLICE_ROWS).columns, strict=True):
            parts += [f"{', ' if parts else '{'}{name}: ", json_values(column)]
        yield pc.binary_join_element_wise(*parts, "}", "")


def json_values(column: pa.Array) -> pa.StringArray:
    """Convert each value of a column to JSON."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        texts = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        texts = _floats(column)
    elif pa.types.is_temporal(kind) or pa.types.is_decimal(kind) or _is_plain_text(column):
        texts = pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "")
    else:
        values = shown_values(column)
        texts = pa.array([None if value is None else dumps(value) for value in values], pa.string())
    return texts.fill_null("null")


def dumps(value: Any) -> str:
    """Convert a Python value, as `to_pylist` returns it, to JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_other)
    except ValueError:  # the value has a NaN
        return json.dumps(_without_nan(value), ensure_ascii=False, default=_other)


def flat(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert columns that CSV has no type for to text: nested ones to JSON, bytes to base64."""
    columns = [column if _is_flat(column.type) else _as_text(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def flat_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the batches that `flat` returns."""
    return pa.schema(
        [(field.name, field.type if _is_flat(field.type) else pa.string()) for field in schema]
    )


def text_rows(batch: pa.RecordBatch) -> Iterator[list[str]]:
    """Convert each row to a list of texts."""
    for start in range(0, batch.num_rows, SLICE_ROWS):
        part = batch.slice(start, SLICE_ROWS)
        columns = [
            column.cast(pa.string()) if pa.types.is_temporal(column.type) else column
            for column in part.columns  # Arrow converts times, because Python has no nanoseconds
        ]
        for row in zip(*(shown_values(column) for column in columns), strict=True):
            yield [NULL if value is None else _text(value) for value in row]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else dumps(value).strip('"')
    return text.replace("\n", "\\n").replace("\t", "\\t")


def _as_text(column: pa.Array) -> pa.Array:
    texts: list[str | None] = []
    for value in shown_values(column):
        text = None if value is None else dumps(value)
        nested = isinstance(value, (dict, list))
        texts.append(text if text is None or nested else json.loads(text))
    return pa.array(texts, pa.string())


def _floats(column: pa.Array) -> pa.StringArray:
    """Write whole floats as `1.0`, so that readers that infer types do not see integers."""
    texts = pc.replace_substring_regex(column.cast(pa.string()), _WHOLE, r"\1.0")
    if not pc.all(pc.is_finite(column)).as_py():
        for number, name in (("nan", '"NaN"'), ("-inf", '"-Infinity"'), ("inf", '"Infinity"')):
            texts = pc.if_else(pc.equal(texts, number), name, texts)
    return texts


def _is_plain_text(column: pa.Array) -> bool:
    """Whether a column is text in which no character needs an escape."""
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        return False
    return not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py()


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
