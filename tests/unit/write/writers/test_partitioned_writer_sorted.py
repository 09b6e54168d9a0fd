"""The partitioned writer on sorted tables: every file in order, however large the load."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import (
    UNSORTED_SORT_ORDER,
    NullOrder,
    SortDirection,
    SortField,
    SortOrder,
)
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import LongType, NestedField, StringType

from icestream.errors import WriterClosedError
from icestream.memory.budget import MemoryBudget
from icestream.write.new_file import NewFile
from icestream.write.parquet.encode_pool import EncodePool
from icestream.write.writers.partitioned_writer import PartitionedWriter
from tests.support.leaks import assert_no_leaks
from tests.support.tables import commit_files, make_catalog
from tests.support.writing import Parts, local_path, read_back

_SCHEMA = Schema(
    NestedField(1, "place", LongType(), required=False),
    NestedField(2, "number", LongType(), required=False),
    NestedField(3, "text", StringType(), required=False),
)
_BY_PLACE = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "place"))
_BY_NUMBER = SortOrder(SortField(2, IdentityTransform()))
_MB = 1_000_000


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


def _table(
    catalog: SqlCatalog,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    order: SortOrder = _BY_NUMBER,
    **properties: str,
) -> Table:
    return catalog.create_table(
        "db.sorted", _SCHEMA, partition_spec=spec, sort_order=order, properties=properties
    )


class Writing:
    """A writer with all that it needs."""

    def __init__(self, table: Table, memory: int | str = 2 * _MB) -> None:
        self.parts = Parts(table)
        self.budget = MemoryBudget(memory)
        self.pool = EncodePool(2)
        context = self.parts.context(self.budget, self.pool)
        self.writer = PartitionedWriter(context, self.parts.partitioner())

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def write(self, places: Any, numbers: Any, batch_rows: int = 5_000) -> list[NewFile]:
        """Write rows of these places and numbers in batches, and close."""
        for start in range(0, len(places), batch_rows):
            end = start + batch_rows
            self.writer.write(self.rows(places[start:end], numbers[start:end]))
        return self.writer.close()

    def rows(self, places: Any, numbers: Any) -> pa.RecordBatch:
        """Rows of these places and numbers."""
        texts = [f"text {number}" for number in numbers]
        return self.parts.batch({"place": places, "number": numbers, "text": texts})


def _numbers(file: NewFile) -> list[int]:
    numbers: list[int] = pq.ParquetFile(local_path(file)).read().column("number").to_pylist()
    return numbers


def _random(rows: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 10**9, rows)


def test_a_small_load_is_sorted_without_a_spill(catalog: SqlCatalog) -> None:
    numbers = _random(3_000)
    with Writing(_table(catalog)) as writing:
        (file,) = writing.write(np.zeros(3_000, np.int64), numbers, batch_rows=100)
        assert _numbers(file) == sorted(numbers.tolist())
        assert file.sort_order_id == writing.parts.target.sort_order.order_id > 0
        assert writing.writer.spilled_bytes == 0


def test_a_load_larger_than_memory_is_sorted_as_a_whole(catalog: SqlCatalog) -> None:
    numbers = _random(80_000)
    with assert_no_leaks(), Writing(_table(catalog)) as writing:
        (file,) = writing.write(numbers % 7, numbers)
        assert _numbers(file) == sorted(numbers.tolist())
        rows = read_back([file])
        assert rows.column("place").to_pylist() == (rows.column("number").to_numpy() % 7).tolist()
        assert writing.writer.spilled_bytes > 0
        assert writing.budget.peak_bytes <= writing.budget.limit_bytes
        assert writing.budget.held_bytes == 0


def test_files_follow_one_another_in_the_order(catalog: SqlCatalog) -> None:
    table = _table(catalog, **{"write.target-file-size-bytes": "100000"})
    numbers = _random(80_000)
    with Writing(table) as writing:
        files = writing.write(numbers % 7, numbers)
    assert len(files) > 3
    assert all(file.sort_order_id for file in files)
    contents = [_numbers(file) for file in files]
    assert all(before[-1] <= after[0] for before, after in pairwise(contents))
    assert list(chain(*contents)) == sorted(numbers.tolist())


def test_each_partition_is_sorted_and_has_one_file(catalog: SqlCatalog) -> None:
    places, numbers = np.random.default_rng(2).integers(0, 40, 60_000), _random(60_000)
    with Writing(_table(catalog, _BY_PLACE)) as writing:
        files = writing.write(places, numbers)
        assert writing.writer.spilled_bytes > 0
        assert writing.budget.peak_bytes <= writing.budget.limit_bytes
    assert len(files) == 40
    for file in files:
        assert file.sort_order_id
        assert _numbers(file) == np.sort(numbers[places == file.partition[0]]).tolist()


def test_clustered_partitions_are_sorted_and_closed_as_they_end_without_a_spill(catalog) -> None:
    places, numbers = np.sort(np.random.default_rng(3).integers(0, 50, 60_000)), _random(60_000)
    with Writing(_table(catalog, _BY_PLACE)) as writing:
        files = writing.write(places, numbers)
        assert writing.writer.spilled_bytes == 0
    assert len(files) == 50
    for file in files:
        assert _numbers(file) == np.sort(numbers[places == file.partition[0]]).tolist()


def test_a_clustered_partition_larger_than_the_buffer_is_still_sorted_as_a_whole(catalog) -> None:
    places = np.repeat([5, 1, 9, 4], [40_000, 100, 30_000, 50])
    numbers = _random(len(places))
    with Writing(_table(catalog, _BY_PLACE)) as writing:
        files = writing.write(places, numbers)
        assert writing.writer.spilled_bytes > 0
    assert [file.partition for file in files] == [(5,), (1,), (9,), (4,)]
    for file in files:
        assert _numbers(file) == np.sort(numbers[places == file.partition[0]]).tolist()


def test_rows_in_order_already_come_out_as_they_went_in(catalog: SqlCatalog) -> None:
    numbers = np.arange(80_000)
    with Writing(_table(catalog)) as writing:
        (file,) = writing.write(numbers % 7, numbers)
        assert _numbers(file) == numbers.tolist()


def test_transforms_directions_and_nulls_decide_over_spilled_runs(catalog: SqlCatalog) -> None:
    order = SortOrder(
        SortField(2, TruncateTransform(100), SortDirection.DESC, NullOrder.NULLS_FIRST),
        SortField(3, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST),
    )
    numbers = [None if n % 50 == 0 else int(n) for n in _random(50_000) % 5_000]
    with Writing(_table(catalog, order=order)) as writing:
        (file,) = writing.write([0] * len(numbers), numbers)
        assert writing.writer.spilled_bytes > 0

    def place(number: int | None) -> tuple[int, int, str]:
        group = (0, 0) if number is None else (1, -(number // 100))
        return (*group, f"text {number}")

    assert _numbers(file) == sorted(numbers, key=place)


def test_pyiceberg_reads_the_rows_and_the_order_id(catalog: SqlCatalog) -> None:
    table = _table(catalog, _BY_PLACE)
    numbers = _random(1_000)
    with Writing(table) as writing:
        files = writing.write(numbers % 3, numbers)
    commit_files(table, [file.to_data_file() for file in files])
    assert set(table.inspect.files().column("sort_order_id").to_pylist()) == {1}
    read = table.scan().to_arrow().column("number").to_pylist()
    assert sorted(read) == sorted(numbers.tolist())


def test_abort_leaves_nothing(catalog: SqlCatalog) -> None:
    numbers = _random(40_000)
    with assert_no_leaks(), Writing(_table(catalog)) as writing:
        writing.writer.write(writing.rows(numbers % 7, numbers))
        writing.writer.abort()
        assert writing.parts.data_files() == []
        assert writing.budget.held_bytes == 0
        with pytest.raises(WriterClosedError):
            writing.writer.close()


def test_without_a_sort_order_rows_keep_their_order_and_files_have_none(catalog) -> None:
    numbers = _random(3_000)
    with Writing(_table(catalog, order=UNSORTED_SORT_ORDER)) as writing:
        (file,) = writing.write(np.zeros(3_000, np.int64), numbers)
    assert _numbers(file) == numbers.tolist()
    assert file.sort_order_id is None
