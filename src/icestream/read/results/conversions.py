"""The memory that a conversion adds to Arrow data, and the packages that conversions need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pyarrow as pa

from icestream.errors import MissingExtraError

# Python objects with the pointers to them: strings, dates and decimals, and nested values.
_TEXT_BYTES = 64
_OBJECT_BYTES = 112
_NESTED_BYTES = 256
_SAMPLE_ROWS = 10_000
_EXTRAS = {"pandas": "pandas", "polars": "icestream[peers]", "duckdb": "icestream[duckdb]"}


def module_for(method: str, name: str) -> Any:
    """Import an optional package.

    Args:
        method: The method that needs it, for the message.
        name: `"pandas"`, `"polars"` or `"duckdb"`.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{method}() needs {name}: pip install '{_EXTRAS[name]}'"
        ) from error


def nothing_added(_: pa.RecordBatch) -> int:
    """The Arrow data is the result."""
    return 0


def pandas_bytes(batch: pa.RecordBatch) -> int:
    """Bytes that a pandas DataFrame takes beside the Arrow data, estimated by type."""
    return sum(_pandas_column_bytes(column) for column in batch.columns)


def repeats_values(table: pa.Table) -> bool:
    """Whether no column of Python objects is mostly unique, judged by a sample of its rows.

    PyArrow can create equal objects once. For each distinct object, it holds about 300 bytes during
    the conversion, which pays off only for values that repeat.
    """
    rows = table.num_rows
    sample = pa.array(range(0, rows, max(1, rows // _SAMPLE_ROWS)), pa.int64())
    return all(
        len(column.take(sample).unique()) <= max(1, len(sample) // 10)
        for column in table.columns
        if not _is_number(column.type) and not pa.types.is_nested(column.type)
    )


def polars_bytes(batch: pa.RecordBatch) -> int:
    """Bytes that a Polars DataFrame takes beside the Arrow data: it shares fixed-width values."""
    return sum(
        0 if _is_number(column.type) else 16 * len(column) + column.get_total_buffer_size()
        for column in batch.columns
    )


def _pandas_column_bytes(column: pa.Array) -> int:
    kind, rows = column.type, len(column)
    if _is_number(kind) and not (pa.types.is_boolean(kind) and column.null_count):
        return 8 * rows
    size: int = column.nbytes
    if pa.types.is_nested(kind):
        return _NESTED_BYTES * rows + 8 * size
    if pa.types.is_decimal(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return _OBJECT_BYTES * rows
    return _TEXT_BYTES * rows + 2 * size  # With deduplication or without, see `repeats_values`.


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_timestamp)
    return any(test(kind) for test in tests)
