"""How many bytes rows take once they are converted, before they are.

What an array says of itself won't do: a slice of text views counts all the text it looks into, and
dictionaries and runs hold a value once that is written out for every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from icestream.write.schema.nested import has_offsets, ranges
from icestream.write.schema.types import is_bytes, is_text

_OFFSET_BYTES = 4


def written_out_bytes(array: pa.Array) -> int:
    """About how many bytes the array takes with every value written out."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return written_out_bytes(array.storage)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return int(_lengths(array).sum()) + _OFFSET_BYTES * len(array)
    if isinstance(kind, pa.DictionaryType):
        return _repeated_bytes(array.dictionary, _counts(array))
    if isinstance(kind, pa.RunEndEncodedType):
        return _repeated_bytes(array.values, _runs(array))
    if pa.types.is_struct(kind):
        return sum(written_out_bytes(array.field(i)) for i in range(kind.num_fields))
    if not pa.types.is_nested(kind):
        return int(array.nbytes)
    if pa.types.is_map(kind):
        return _below_bytes(array, array.keys) + _below_bytes(array, array.items)
    return _below_bytes(array, array.values)


def cut_written_out(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `max_bytes` each once every value is written out.

    A slice of one row may take more.
    """
    # What the whole buffers take is an upper bound, and much quicker to find.
    if batch.get_total_buffer_size() <= max_bytes and not any(
        _may_repeat(field.type) for field in batch.schema
    ):
        return iter([batch])
    return cut_by(batch, max_bytes, lambda piece: sum(map(written_out_bytes, piece.columns)))


def cut_by(
    batch: pa.RecordBatch, max_bytes: int, size_of: Callable[[pa.RecordBatch], int]
) -> Iterator[pa.RecordBatch]:
    """The batch in slices of at most `max_bytes` each by a measure of their size, or of one row.

    Slices are cut again if the bytes are distributed unevenly over the rows.
    """
    waiting = [batch]
    while waiting:
        piece = waiting.pop()
        count = -(-size_of(piece) // max_bytes) if piece.num_rows > 1 else 1
        if count <= 1:
            yield piece
            continue
        rows = max(1, piece.num_rows // count)
        starts = range(0, piece.num_rows, rows)
        waiting.extend(piece.slice(start, rows) for start in reversed(starts))


def _may_repeat(kind: pa.DataType) -> bool:
    """Whether rows may share a value that is held once."""
    if isinstance(kind, pa.BaseExtensionType):
        return _may_repeat(kind.storage_type)
    if isinstance(kind, (pa.DictionaryType, pa.RunEndEncodedType)):
        return True
    types = pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return True
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return True
    return any(_may_repeat(kind.field(i).type) for i in range(kind.num_fields))


def _below_bytes(lists: pa.Array, values: pa.Array) -> int:
    """Bytes of the values that lists hold: their share of all values from first to last."""
    if not len(lists):
        return 0
    if has_offsets(lists.type):
        first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
        return _OFFSET_BYTES * len(lists) + written_out_bytes(values.slice(first, last - first))
    starts, lengths = ranges(lists)
    total = int(lengths.sum())
    if not total:
        return _OFFSET_BYTES * len(lists)
    some = lengths > 0
    first, last = int(starts[some].min()), int((starts + lengths)[some].max())
    around = written_out_bytes(values.slice(first, last - first))
    return _OFFSET_BYTES * len(lists) + around * total // (last - first)


def _repeated_bytes(values: pa.Array, counts: npt.NDArray[np.int64]) -> int:
    """Bytes of values that are repeated so many times each."""
    rows = int(counts.sum())
    if not (is_text(values.type) or is_bytes(values.type)):
        return written_out_bytes(values) * rows // max(1, len(values))
    return int(_lengths(values) @ counts) + _OFFSET_BYTES * rows


def _lengths(text: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of each text; 0 for nulls."""
    if pa.types.is_string_view(text.type) or pa.types.is_binary_view(text.type):
        # Arrow has no function for it: a view of 16 bytes begins with the length.
        views = np.frombuffer(text.buffers()[1] or b"", np.int32).reshape(-1, 4)
        lengths = views[text.offset : text.offset + len(text), 0].astype(np.int64)
        if text.null_count:
            lengths[text.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    given = pc.fill_null(pc.binary_length(text), 0).to_numpy(zero_copy_only=False)
    return np.asarray(given, dtype=np.int64)


def _counts(array: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    used = array.indices.drop_null().to_numpy().astype(np.int64)
    size = len(array.dictionary)
    used = used[(used >= 0) & (used < size)]  # the conversion refuses what is not in it
    return np.bincount(used, minlength=size).astype(np.int64)


def _runs(array: pa.RunEndEncodedArray) -> npt.NDArray[np.int64]:
    ends = array.run_ends.to_numpy().astype(np.int64)
    seen = np.clip(ends, array.offset, array.offset + len(array))
    counts: npt.NDArray[np.int64] = np.diff(seen, prepend=array.offset)
    return counts
