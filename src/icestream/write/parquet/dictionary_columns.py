"""Which columns get a dictionary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

_SAMPLES = 8
_SAMPLE_ROWS = 4096
_SAMPLED_SHARE = 8
_LEAST_ROWS = 1024
_DIFFERENT = 0.96


def dictionary_columns(rows: pa.Table, paths: Iterable[str]) -> list[str]:
    """The Parquet columns to dictionary-encode, chosen from a sample of their rows.

    The writer drops a dictionary that grows to its limit because values hardly ever repeat. That
    costs time, bytes and 30 MB of hash table in every row group. So a column gets no dictionary if
    96 of 100 sampled values differ. The sample has 32,768 values from eight places, or an eighth of
    the rows. If values are drawn evenly from d values, that many differ when d is over 400,000, and
    a dictionary of those is larger than what it saves. Small row groups are not sampled.

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
        path
        for field, column in zip(rows.schema, sample.columns, strict=True)
        for path, values in _leaves(field.name, column.chunks)
        if _all_different(values)
    }
    return [path for path in paths if path not in useless]


def _leaves(path: str, chunks: list[pa.Array]) -> Iterator[tuple[str, list[pa.Array]]]:
    """The values of a column, or of each column inside it, with their Parquet paths."""
    kind = chunks[0].type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaves(path, [chunk.storage for chunk in chunks])
    elif pa.types.is_struct(kind):
        for index, child in enumerate(kind):
            inside = [chunk.field(index).slice(0, _SAMPLE_ROWS) for chunk in chunks]
            yield from _leaves(f"{path}.{child.name}", inside)
    elif pa.types.is_map(kind):
        keys = [_inside(chunk, chunk.keys) for chunk in chunks]
        items = [_inside(chunk, chunk.items) for chunk in chunks]
        yield from _leaves(f"{path}.key_value.key", keys)
        yield from _leaves(f"{path}.key_value.value", items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inside = [_inside(chunk, chunk.values) for chunk in chunks]
        yield from _leaves(f"{path}.list.element", inside)
    elif not (pa.types.is_nested(kind) or pa.types.is_boolean(kind)):  # Booleans never have one.
        yield path, chunks


def _inside(lists: pa.Array, values: pa.Array) -> pa.Array:
    """The first values of sliced lists or maps."""
    first, last = lists.offsets[0].as_py(), lists.offsets[len(lists)].as_py()
    return values.slice(first, min(last - first, _SAMPLE_ROWS))


def _all_different(chunks: list[pa.Array]) -> bool:
    column = pa.chunked_array(chunks)
    values = len(column) - column.null_count
    return bool(values) and pc.count_distinct(column).as_py() >= _DIFFERENT * values
