"""The estimates of what conversions add are at least what frames really take."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from icestream.read.results.conversions import pandas_bytes, polars_bytes, repeats_values

COLUMNS = {
    "ints": [1, None] * 500,
    "floats": [0.5] * 1000,
    "flags": [True, None] * 500,
    "text": [f"a text of {n}" for n in range(1000)],
    "accents": [f"é{n}" for n in range(1000)],
    "bytes": [bytes([n % 256]) * 20 for n in range(1000)],
    "days": [date(2024, 1, 1 + n % 28) for n in range(1000)],
    "times": [time(n % 24) for n in range(1000)],
    "moments": [datetime(2024, 1, 1, n % 24) for n in range(1000)],
    "prices": [Decimal(n) / 100 for n in range(1000)],
    "lists": [[n] for n in range(1000)],
    "structs": [{"a": n, "b": "x"} for n in range(1000)],
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_frame_takes_at_most_what_was_estimated(name: str) -> None:
    batch = pa.record_batch({name: pa.array(COLUMNS[name])})
    table = pa.Table.from_batches([batch])
    frame = table.to_pandas()
    assert frame.memory_usage(deep=True, index=False).sum() <= 1.1 * pandas_bytes(batch)
    shared = batch.get_total_buffer_size()
    assert pl.from_arrow(table, rechunk=False).estimated_size() <= shared + polars_bytes(batch)
    assert pandas_bytes(batch.slice(0, 0)) == 0


def test_unique_objects_are_not_looked_up_while_they_are_converted() -> None:
    rows = 30_000
    repeated = pa.table({"id": range(rows), "country": ["NO", "SE"] * (rows // 2)})
    unique = repeated.append_column("name", pa.array([f"name {n}" for n in range(rows)]))
    assert repeats_values(repeated)
    assert not repeats_values(unique)
    assert repeats_values(repeated.slice(0, 0))
