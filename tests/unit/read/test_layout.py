"""What a look at dictionaries holds while many columns are looked at."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.read import layout
from icestream.read.layout import RunLayout
from icestream.read.sizing import Sizing

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
