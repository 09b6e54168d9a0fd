"""Rows of many partitions in memory: charged, sorted once, and known to be clustered or not."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from icestream.errors import MemoryBudgetError
from icestream.memory.budget import MemoryBudget
from icestream.write.writers.partition_buffer import PartitionBuffer
from tests.support.writing import Parts

_SCHEMA = Schema(
    NestedField(1, "place", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
)
_BY_PLACE = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "place"))


@pytest.fixture
def parts(catalog: SqlCatalog) -> Parts:
    return Parts(catalog.create_table("db.places", _SCHEMA, partition_spec=_BY_PLACE))


def _rows(parts: Parts, places: list[int], text: str = "text") -> pa.RecordBatch:
    return parts.batch({"place": places, "text": [text] * len(places)})


def _buffer(parts: Parts, memory: int | str = "3MB") -> tuple[PartitionBuffer, MemoryBudget]:
    budget = MemoryBudget(memory)
    return PartitionBuffer(parts.partitioner(), budget, table="db.places"), budget


def test_rows_are_sorted_by_partition_and_stay_on_lease_until_settled(parts: Parts) -> None:
    buffer, budget = _buffer(parts)
    buffer.append(_rows(parts, [7, 3, 7]))
    buffer.append(_rows(parts, [3]))
    assert len(buffer) == 4
    assert budget.held_bytes == buffer.bytes > 0
    rows = buffer.take()
    (batch,) = rows.rows(0, 4)
    assert batch.column("place").to_pylist() == [7, 7, 3, 3]
    assert len(buffer) == 0
    assert budget.held_bytes > 0
    buffer.settle()
    assert budget.held_bytes == 0


def test_rows_that_are_put_back_come_again(parts: Parts) -> None:
    buffer, _ = _buffer(parts)
    buffer.append(_rows(parts, [1, 2, 1, 3]))
    rows = buffer.take()
    buffer.put_back(rows.only(rows.spans()[:2]))
    assert len(buffer) == 3
    again = buffer.take()
    assert [span.partition_id for span in again.spans()] == [0, 1]


@pytest.mark.parametrize(
    ("batches", "clustered"),
    [
        ([[1, 1, 2], [2, 3]], True),
        ([[1, 2, 1]], False),
        ([[1, 2], [1, 1]], False),
        ([[5, 5], [4]], True),
    ],
)
def test_a_partition_that_reappears_is_not_clustered(
    parts: Parts, batches: list[list[int]], clustered: bool
) -> None:
    buffer, _ = _buffer(parts)
    for places in batches:
        buffer.append(_rows(parts, places))
    assert buffer.clustered is clustered


def test_it_is_full_at_a_third_of_the_limit_or_earlier_if_the_budget_is_exhausted(parts) -> None:
    buffer, budget = _buffer(parts, "300kB")
    assert buffer.limit_bytes == 100_000
    for piece in buffer.pieces(_rows(parts, list(range(500)), "x" * 100)):
        buffer.append(piece)
    assert not buffer.full
    others = budget.force(300_000)
    assert buffer.full
    others.release()
    buffer.append(_rows(parts, list(range(400)), "x" * 100))
    assert buffer.full


def test_a_row_larger_than_the_buffer_says_what_is_needed(parts: Parts) -> None:
    buffer, budget = _buffer(parts, "300kB")
    with pytest.raises(MemoryBudgetError, match=r"a row of db\.places takes") as caught:
        buffer.append(_rows(parts, [1], "x" * 200_000))
    assert caught.value.needed_bytes >= 600_000
    assert budget.held_bytes == 0


def test_a_slice_does_not_keep_its_parent(parts: Parts) -> None:
    buffer, _ = _buffer(parts)
    buffer.append(_rows(parts, list(range(5_000))).slice(10, 20))
    assert buffer.bytes < 5_000
    buffer.clear()
    assert len(buffer) == 0
