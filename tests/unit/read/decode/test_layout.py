"""What a look at dictionaries holds while many columns are looked at."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.read.decode import layout
from icestream.read.decode.layout import RunLayout
from icestream.read.decode.sizing import Sizing

_COLUMNS = 60
_ROWS = 60_000
_LIMIT_BYTES = 16_000_000


def _many_texts() -> bytes:
    """Columns of texts in large pages; their dictionaries are small."""
    random = np.random.default_rng(2)
    texts = np.array([f"text {i}" for i in range(2_000)])
    columns = {f"c{i}": texts[random.integers(0, 2_000, _ROWS)] for i in range(_COLUMNS)}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="none", max_rows_per_page=_ROWS)
    return sink.getvalue()


def test_a_look_at_many_dictionaries_holds_a_part_of_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contents = _many_texts()
    file = pq.ParquetFile(pa.BufferReader(contents))
    held: list[int] = []
    real = layout._dictionaries_in

    def measured(arrays: Iterable[pa.Array]) -> Iterator[pa.Array | None]:
        held.append(pa.total_allocated_bytes() - before)
        return real(arrays)

    monkeypatch.setattr(layout, "_dictionaries_in", measured)
    leaves = list(range(_COLUMNS))
    sizing = Sizing(_LIMIT_BYTES, 1_000)  # Smaller batches than dictionaries are worth.
    run = RunLayout(pa.BufferReader(contents), file.metadata, (0,), leaves, sizing)
    before = pa.total_allocated_bytes()
    run.dictionaries(file.schema_arrow)
    assert len(held) > 1
    assert max(held) < _LIMIT_BYTES / 8


def test_a_damaged_dictionary_is_found_by_its_checksum_when_it_is_looked_at() -> None:
    texts = ["long text " * 2_000 + str(i) for i in range(20)]
    sink = io.BytesIO()
    pq.write_table(pa.table({"c": texts * 100}), sink, compression="none", write_page_checksum=True)
    contents = bytearray(sink.getvalue())
    file = pq.ParquetFile(pa.BufferReader(bytes(contents)))
    contents[contents.index(b"long text")] ^= 1
    run = RunLayout(
        pa.BufferReader(bytes(contents)), file.metadata, (0,), [0], Sizing(_LIMIT_BYTES, 1_000)
    )
    with pytest.raises(OSError, match="CRC checksum verification failed"):
        run.dictionaries(file.schema_arrow)
