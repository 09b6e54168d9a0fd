"""What writers share: files of the target size, and row groups that move with their lease."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from icestream.memory.budget import MemoryBudget
from icestream.write.parquet.encode_pool import EncodePool
from icestream.write.parquet.row_buffer import RowBuffer
from tests.support.writing import Parts, local_path, row_groups

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


@pytest.fixture
def pool() -> Iterator[EncodePool]:
    pool = EncodePool(2)
    yield pool
    pool.close()


def test_a_row_group_moves_from_the_buffer_to_the_threads_with_its_bytes(parts, pool) -> None:
    budget = MemoryBudget("8MB")
    context = parts.context(budget, pool)
    buffer, lease = RowBuffer(), budget.force(0)
    buffer.append(_rows(parts, [1] * 5_000))
    lease.resize(buffer.bytes)
    writer = context.rolling_writer(1 << 20)
    context.submit(writer, buffer, lease, buffer.bytes // 2)
    assert lease.held_bytes == buffer.bytes
    assert 2_000 < buffer.rows < 3_000
    pool.flush()
    assert budget.held_bytes == lease.held_bytes
    context.submit(writer, buffer, lease, buffer.bytes)
    pool.flush()
    assert budget.held_bytes == buffer.rows == 0
    (file,) = writer.close()
    assert len(row_groups(file)) == 2


def test_a_row_group_has_at_most_the_rows_that_the_table_allows(
    catalog: SqlCatalog, pool: EncodePool
) -> None:
    properties = {"write.parquet.row-group-limit": "100"}
    parts = Parts(catalog.create_table("db.t", _SCHEMA, properties=properties))
    context = parts.context(MemoryBudget("8MB"), pool)
    buffer = RowBuffer()
    buffer.append(_rows(parts, [1] * 250))
    context.submit(context.rolling_writer(1 << 20), buffer, context.budget.force(0), 1 << 20)
    assert buffer.rows == 150


def test_files_have_the_partition_and_order_they_are_opened_with(parts, pool) -> None:
    context = parts.context(MemoryBudget("8MB"), pool)
    writer = context.rolling_writer(1 << 20, partition_path="place=5", partition=(5,))
    writer.write_row_group([_rows(parts, [5])])
    (file,) = writer.close()
    assert "/place=5/" in file.path
    assert (file.partition, file.spec_id) == ((5,), parts.target.spec.spec_id)
    assert file.sort_order_id is None
    assert local_path(file).exists()
