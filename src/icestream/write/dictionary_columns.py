"""Which columns are worth a dictionary."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

_SAMPLES = 8
_SAMPLE_ROWS = 4096
_SAMPLED_SHARE = 8
_LEAST_ROWS = 8192
_DIFFERENT = 0.96


def dictionary_columns(rows: pa.Table, paths: Iterable[str]) -> list[str]:
    """The Parquet columns that are dictionary-encoded, judged by a sample of their rows.

    A dictionary of values that hardly ever repeat is given up when it has grown to its limit: time
    and bytes are lost on it in every row group. A column goes without if 96 of 100 sampled values
    differ: 32,768 values from eight places, or an eighth of the rows. Drawn evenly from d values,
    that many differ when d is over 400,000, and a dictionary of those is larger than it saves.
    Few rows and nested columns are not judged.

    Args:
        rows: The first row group of a file.
        paths: All Parquet columns.
    """
    if rows.num_rows < _LEAST_ROWS:
        return list(paths)
    step = rows.num_rows // _SAMPLES
    length = min(_SAMPLE_ROWS, step // _SAMPLED_SHARE)
    sample = pa.concat_tables([rows.slice(i * step, length) for i in range(_SAMPLES)])
    useless = {
        field.name
        for field, column in zip(rows.schema, sample.columns, strict=True)
        if _is_judged(field.type) and _all_different(column)
    }
    return [path for path in paths if path not in useless]


def _is_judged(arrow_type: pa.DataType) -> bool:
    # A boolean never has a dictionary.
    return not (pat.is_nested(arrow_type) or pat.is_boolean(arrow_type) or pat.is_null(arrow_type))


def _all_different(column: pa.ChunkedArray) -> bool:
    if isinstance(column.type, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks])
    values = len(column) - column.null_count
    return bool(values) and pc.count_distinct(column).as_py() >= _DIFFERENT * values
