"""Files of partitions: several open at once, each described in order of appearance."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from icestream.errors import MemoryBudgetError
from icestream.memory.budget import MemoryBudget
from icestream.write.parquet.encode_pool import EncodePool
from icestream.write.writers.partition_files import PartitionFiles
from tests.support.writing import Parts, read_back, row_groups

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


class _Files:
    def __init__(self, parts: Parts, pool: EncodePool, memory: int | str = "8MB") -> None:
        self.parts = parts
        self.budget = MemoryBudget(memory)
        self.partitioner = parts.partitioner()
        self.files = PartitionFiles(parts.context(self.budget, pool), self.partitioner)

    def number(self, place: int) -> int:
        """The number of a place's partition."""
        return int(self.partitioner.ids(_rows(self.parts, [place]))[0])


def test_files_are_in_order_of_appearance_with_the_values_of_their_partition(parts, pool) -> None:
    writing = _Files(parts, pool)
    numbers = {place: writing.number(place) for place in (9, 4, 6)}
    for place in (6, 9, 4):
        writing.files.write(numbers[place], [_rows(parts, [place] * 10)])
    writing.files.finish(numbers[4], [_rows(parts, [4] * 5)])
    files = writing.files.close()
    assert [(file.partition, file.rows) for file in files] == [((9,), 10), ((4,), 15), ((6,), 10)]
    assert all(f"place={file.partition[0]}/" in file.path for file in files)
    assert row_groups(files[1]) == [10, 5]
    assert writing.budget.held_bytes == 0


def test_rows_after_the_end_of_a_partition_go_to_another_file(parts, pool) -> None:
    writing = _Files(parts, pool)
    number = writing.number(1)
    writing.files.finish(number, [_rows(parts, [1, 1])])
    writing.files.finish(number, [_rows(parts, [1])])
    files = writing.files.close()
    assert sorted(file.rows for file in files) == [1, 2], "threads finish them in any order"
    assert len({file.path for file in files}) == 2


def test_many_rows_become_row_groups_within_the_share_of_the_limit(parts, pool) -> None:
    writing = _Files(parts, pool, "4MB")
    batches = [_rows(parts, [1] * 1_000, "x" * 1_000) for _ in range(5)]
    writing.files.write(writing.number(1), batches)
    files = writing.files.close()
    assert len(row_groups(files[0])) > 4
    assert read_back(files).num_rows == 5_000


def test_room_is_limited_and_an_open_partition_always_has_it(parts, pool) -> None:
    writing = _Files(parts, pool, "4MB")
    numbers = [writing.number(place) for place in range(10)]
    opened = 0
    while writing.files.has_room(numbers[opened]):
        writing.files.write(numbers[opened], [_rows(parts, [opened])])
        opened += 1
    assert 2 <= opened < 10
    assert writing.files.has_room(numbers[0])
    writing.files.finish(numbers[0])
    assert writing.files.has_room(numbers[opened])
    writing.files.abort()


def test_abort_deletes_open_and_finished_files(parts, pool) -> None:
    writing = _Files(parts, pool)
    writing.files.write(writing.number(1), [_rows(parts, [1])])
    writing.files.finish(writing.number(2), [_rows(parts, [2])])
    pool.flush()
    assert len(parts.data_files()) == 2
    writing.files.abort()
    assert parts.data_files() == []
    assert writing.budget.held_bytes == 0


def test_a_limit_too_small_for_row_groups_is_refused_with_what_is_enough(parts, pool) -> None:
    with pytest.raises(MemoryBudgetError, match="writing partitions needs") as caught:
        _Files(parts, pool, "1MB")
    _Files(parts, pool, caught.value.needed_bytes)


def test_files_of_a_sorted_table_have_its_order(catalog: SqlCatalog, pool: EncodePool) -> None:
    order = SortOrder(SortField(1, IdentityTransform()))
    table = catalog.create_table("db.s", _SCHEMA, partition_spec=_BY_PLACE, sort_order=order)
    writing = _Files(Parts(table), pool)
    writing.files.finish(writing.number(1), [_rows(writing.parts, [1])])
    (file,) = writing.files.close()
    assert file.sort_order_id == table.sort_order().order_id > 0
