"""The least size of rows, and the limit that an error recommends."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from icestream.errors import MemoryBudgetError
from icestream.memory.budget import MemoryBudget
from icestream.read.results.collected import Collection, collect, least_width
from icestream.read.results.conversions import nothing_added


@pytest.mark.parametrize(
    "values",
    [
        pa.array(range(1000), pa.int64()),
        pa.array([True, None] * 500),
        pa.array([Decimal("1.5")] * 1000),
        pa.array([date(2024, 1, 1)] * 1000),
        pa.array(["", "a", None, "b"] * 250),
        pa.array([b"1234"] * 1000, pa.binary(4)),
        pa.array([[1, 2], None] * 500),
        pa.array([{"a": 1, "b": "x"}, None] * 500),
        pa.array([[("k", 1)]] * 1000, pa.map_(pa.string(), pa.int64())),
        pa.nulls(1000),
        pa.nulls(1000, pa.struct([("a", pa.int64()), ("b", pa.int64())])),
    ],
    ids=lambda values: str(values.type),
)
def test_no_array_is_smaller_than_the_least_width_of_its_type(values: pa.Array) -> None:
    assert 1000 * least_width(values.type) <= values.get_total_buffer_size()


def test_text_that_surely_does_not_fit_is_refused_after_one_batch() -> None:
    schema, budget = pa.schema([("text", pa.string())]), MemoryBudget(100_000)
    read = 0

    def batches():
        nonlocal read
        for _ in range(100):
            read += 1
            yield pa.record_batch([pa.array(["12345678"] * 1000)], schema=schema)

    wanted = Collection(schema, "db.t", "a table", budget, nothing_added, 100_000, lambda: 100_000)
    with pytest.raises(MemoryBudgetError, match=r"about 1\.2 MB as a table") as refused:
        collect(batches(), wanted)
    assert read == 1
    assert refused.value.needed_bytes > 1_200_000
    assert budget.held_bytes == 0
