"""The partitioned writer: whatever order rows come in, few files, bounded memory, nothing left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, HourTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from icestream.errors import InvalidDataError, MemoryBudgetError, WriteError, WriterClosedError
from icestream.memory.budget import MemoryBudget
from icestream.write.new_file import NewFile
from icestream.write.parquet.encode_pool import EncodePool
from icestream.write.writers.partitioned_writer import PartitionedWriter
from tests.support.leaks import assert_no_leaks
from tests.support.tables import all_types_rows, all_types_schema, commit_files, make_catalog
from tests.support.writing import Parts, local_path, read_back, row_groups

_SCHEMA = Schema(
    NestedField(1, "place", LongType(), required=False),
    NestedField(2, "number", LongType(), required=False),
    NestedField(3, "text", StringType(), required=False),
)
_BY_PLACE = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "place"))
_MB = 1_000_000


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return catalog.create_table("db.places", _SCHEMA, partition_spec=_BY_PLACE)


class Writing:
    """A writer with all that it needs."""

    def __init__(self, table: Table, memory: int | str = 2 * _MB, **options: Any) -> None:
        self.parts = Parts(table)
        self.budget = MemoryBudget(memory)
        self.pool = EncodePool(2)
        context = self.parts.context(self.budget, self.pool)
        self.writer = PartitionedWriter(context, self.parts.partitioner(), **options)

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def rows(self, places: Iterable[int | None], first: int = 0) -> pa.RecordBatch:
        """Rows of these places, numbered from `first`."""
        listed = list(places)
        numbers = np.arange(first, first + len(listed))
        texts = [f"row {first + n} is at {place}" for n, place in enumerate(listed)]
        return self.parts.batch({"place": listed, "number": numbers, "text": texts})

    def write(self, places: Any, batch_rows: int = 5_000) -> list[NewFile]:
        """Write rows of these places in batches, and close."""
        for start in range(0, len(places), batch_rows):
            self.writer.write(self.rows(places[start : start + batch_rows], start))
        return self.writer.close()


def _contents(files: list[NewFile]) -> Counter[tuple[Any, ...]]:
    """All rows, after a look that each is in a file of its place and counted there."""
    found: Counter[tuple[Any, ...]] = Counter()
    for file in files:
        rows = pq.ParquetFile(local_path(file)).read()
        assert rows.num_rows == file.rows
        assert set(rows.column("place").to_pylist()) == set(file.partition)
        found.update(zip(*rows.to_pydict().values(), strict=True))
    return found


def _assert_holds(files: list[NewFile], places: Any) -> None:
    numbered = enumerate(places.tolist())
    assert _contents(files) == Counter((p, n, f"row {n} is at {p}") for n, p in numbered)


_RANDOM = np.random.default_rng(1)
_ORDERS = {
    "random": _RANDOM.integers(0, 200, 30_000),
    "clustered": np.sort(_RANDOM.integers(0, 200, 30_000)),
    "few": _RANDOM.integers(0, 2, 30_000),
    "one": np.zeros(30_000, np.int64),
    "skewed": np.minimum(_RANDOM.geometric(0.5, 30_000) ** 3, 1_000),
    "clustered, then random": np.concatenate(
        [np.sort(_RANDOM.integers(0, 200, 40_000)), _RANDOM.integers(0, 200, 20_000)]
    ),
    "clustered, then again": np.tile(np.sort(_RANDOM.integers(0, 100, 15_000)), 2),
}


@pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS.keys())
def test_every_row_is_in_a_file_of_its_partition_and_the_limit_holds(table, order) -> None:
    with assert_no_leaks(), Writing(table) as writing:
        files = writing.write(order)
        _assert_holds(files, order)
        assert len(files) <= 2 * len(set(order.tolist()))
        assert writing.budget.peak_bytes <= writing.budget.limit_bytes
        assert writing.budget.held_bytes == 0
        assert sorted(map(local_path, files)) == writing.parts.data_files()


def test_random_partitions_are_spilled_and_get_one_file_each(table: Table) -> None:
    with Writing(table) as writing:
        files = writing.write(_ORDERS["random"])
        assert len(files) == 200
        assert writing.writer.spilled_bytes > 0


def test_clustered_partitions_are_closed_as_they_end_without_a_spill(table: Table) -> None:
    places = _ORDERS["clustered"]
    with Writing(table) as writing:
        for start in range(0, len(places), 5_000):
            writing.writer.write(writing.rows(places[start : start + 5_000], start))
        writing.pool.flush()
        assert len(writing.parts.data_files()) > 100  # Long before the end.
        files = writing.writer.close()
        _assert_holds(files, places)
        assert len(files) == 200
        assert writing.writer.spilled_bytes == 0
        assert all(len(row_groups(file)) == 1 for file in files)


def test_a_clustered_partition_larger_than_the_buffer_is_one_file_without_a_spill(table) -> None:
    places = np.repeat([7, 3, 5], 20_000)
    with Writing(table) as writing:
        files = writing.write(places)
        _assert_holds(files, places)
        assert [file.partition for file in files] == [(7,), (3,), (5,)]
        assert writing.writer.spilled_bytes == 0
        assert all(len(row_groups(file)) > 1 for file in files)


def test_few_partitions_get_row_groups_as_rows_come_without_a_spill(table: Table) -> None:
    with Writing(table) as writing:
        files = writing.write(_ORDERS["few"])
        assert len(files) == 2
        assert writing.writer.spilled_bytes == 0
        assert all(len(row_groups(file)) > 1 for file in files)


def test_partitions_that_come_back_with_each_batch_are_not_taken_for_clustered(table) -> None:
    places = np.tile(np.sort(np.random.default_rng(2).integers(0, 100, 2_000)), 15)
    with Writing(table) as writing:
        files = writing.write(places, batch_rows=2_000)
        _assert_holds(files, places)
        assert len(files) == 100


def test_few_files_are_open_at_once_however_many_partitions_are_large(table: Table) -> None:
    once = np.repeat(np.arange(12), 5_000)
    places = np.concatenate([[1, 0], once, once])  # The first two rows end the clustered mode.
    with Writing(table) as writing:
        files = writing.write(places)
        assert writing.writer.spilled_bytes > 0
        assert writing.budget.peak_bytes <= writing.budget.limit_bytes
        _assert_holds(files, places)
        assert len(files) == 12
        assert max(len(row_groups(file)) for file in files) > 1


def test_bytes_go_back_to_the_budget_when_the_buffer_is_emptied(table: Table) -> None:
    places = _ORDERS["random"]
    held = []
    with Writing(table) as writing:
        for start in range(0, len(places), 1_000):
            writing.writer.write(writing.rows(places[start : start + 1_000], start))
            held.append(writing.budget.held_bytes)
        writing.writer.abort()
    assert writing.writer.spilled_bytes > 0
    assert min(held[20:]) < max(held) / 2


def test_a_small_load_is_sorted_in_memory(table: Table) -> None:
    places = _RANDOM.integers(0, 500, 5_000)
    with Writing(table) as writing:
        files = writing.write(places, batch_rows=100)
        _assert_holds(files, places)
        assert len(files) == len(set(places.tolist()))
        assert writing.writer.spilled_bytes == 0


def test_a_large_partition_among_small_ones_is_one_file_of_groups_and_spilled_rows(table) -> None:
    random = np.random.default_rng(3)
    places = np.where(random.random(60_000) < 0.5, 1_000, random.integers(0, 300, 60_000))
    with Writing(table) as writing:
        files = writing.write(places)
        _assert_holds(files, places)
        assert len(files) == 301
        (large,) = (file for file in files if file.partition == (1_000,))
        assert len(row_groups(large)) > 1
        assert writing.writer.spilled_bytes > 0


def test_rows_stay_as_they_came_within_a_partition_that_was_spilled(table: Table) -> None:
    with Writing(table) as writing:
        for file in writing.write(_ORDERS["random"]):
            numbers = pq.ParquetFile(local_path(file)).read().column("number").to_pylist()
            assert numbers == sorted(numbers)


def test_a_partition_rolls_to_a_new_file_at_the_target_size(catalog: SqlCatalog) -> None:
    table = catalog.create_table(
        "db.small_files",
        _SCHEMA,
        partition_spec=_BY_PLACE,
        properties={"write.target-file-size-bytes": "8000"},
    )
    places = np.random.default_rng(4).integers(0, 12, 30_000)
    with Writing(table) as writing:
        files = writing.write(places)
        _assert_holds(files, places)
    assert writing.writer.spilled_bytes > 0
    by_place = Counter(file.partition for file in files)
    assert len(by_place) == 12
    assert min(by_place.values()) > 1
    full = [file for file, after in pairwise(files) if file.partition == after.partition]
    assert all(0.8 * 8_000 <= file.bytes <= 1.2 * 8_000 for file in full)


def test_batches_of_one_row_and_of_the_whole_load_give_the_same_files(table: Table) -> None:
    places = np.random.default_rng(5).integers(0, 50, 40_000)
    counts = []
    for batch_rows in (1, len(places)):
        # A limit that the whole load exceeds many times over.
        with Writing(table, 2 * _MB) as writing:
            few = places[:5_000] if batch_rows == 1 else places
            files = writing.write(few, batch_rows)
            _assert_holds(files, few)
            assert writing.budget.peak_bytes <= writing.budget.limit_bytes
            counts.append(len(files))
    assert counts == [50, 50]


def test_nothing_written_is_no_file(table: Table) -> None:
    with Writing(table) as writing:
        writing.writer.write(writing.rows([]))
        assert writing.writer.close() == []
        assert writing.parts.data_files() == []


def test_null_is_a_partition_and_pyiceberg_reads_what_was_written(catalog: SqlCatalog) -> None:
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(5), "bucket"),
        PartitionField(1, 1001, IdentityTransform(), "place"),
    )
    table = catalog.create_table("db.two_fields", _SCHEMA, partition_spec=spec)
    places = [None if place % 7 == 0 else place for place in range(50)] * 1_000
    with Writing(table) as writing:
        files = writing.write(places)
        commit_files(table, [file.to_data_file() for file in files])
    read = table.scan().to_arrow().sort_by("number")
    assert read.column("place").to_pylist() == places
    assert table.scan("place = 12").to_arrow().num_rows == 1_000
    assert table.scan("place is null").to_arrow().num_rows == places.count(None)
    assert all("bucket=" in file.path and "place=" in file.path for file in files)


def test_rows_of_every_type_survive_the_spill(catalog: SqlCatalog) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(30), "id_bucket"))
    table = catalog.create_table("db.all_types", all_types_schema(), partition_spec=spec)
    rows = all_types_rows(3_000)
    with Writing(table) as writing:
        for batch in rows.to_batches(max_chunksize=500):
            fields = writing.parts.file_schema
            arrays = [batch.column(field.name).cast(field.type) for field in fields]
            writing.writer.write(pa.RecordBatch.from_arrays(arrays, schema=fields))
        files = writing.writer.close()
        assert writing.writer.spilled_bytes > 0
    # Not through PyIceberg, which reads null lists of structs as empty ones.
    read = read_back(files).sort_by("id")
    for name in read.column_names:
        assert str(read.column(name).to_pylist()) == str(rows.column(name).to_pylist()), name


@pytest.mark.parametrize("order", _ORDERS.values(), ids=_ORDERS.keys())
def test_abort_leaves_no_file_and_no_lease(table: Table, order: Any) -> None:
    with assert_no_leaks(), Writing(table) as writing:
        for start in range(0, len(order), 5_000):
            writing.writer.write(writing.rows(order[start : start + 5_000], start))
        writing.writer.abort()
        assert writing.parts.data_files() == []
        assert writing.budget.held_bytes == 0
        writing.writer.abort()


def test_abort_after_close_keeps_the_files(table: Table) -> None:
    with Writing(table) as writing:
        files = writing.write(_ORDERS["few"])
        writing.writer.abort()
        assert len(writing.parts.data_files()) == len(files)


def test_a_writer_that_ended_takes_no_more(table: Table) -> None:
    for end in ("close", "abort"):
        with Writing(table) as writing:
            getattr(writing.writer, end)()
            with pytest.raises(WriterClosedError, match=r"db\.places"):
                writing.writer.write(writing.rows([1]))
            with pytest.raises(WriterClosedError):
                writing.writer.close()


def test_a_file_that_can_not_be_written_fails_the_close_and_nothing_is_left(table) -> None:
    with assert_no_leaks(), Writing(table) as writing:
        for start in range(0, 30_000, 5_000):
            writing.writer.write(writing.rows(_ORDERS["random"][start : start + 5_000], start))
        # A file where the folder of the tenth partition should be.
        data = Path(table.location().removeprefix("file://"), "data")
        data.mkdir()
        (data / f"place={_ORDERS['random'][10]}").touch()
        with pytest.raises(WriteError, match="place="):
            writing.writer.close()
        assert len(writing.parts.data_files()) == 1
        assert writing.budget.held_bytes == 0
        with pytest.raises(WriterClosedError):
            writing.writer.close()


def test_a_spill_directory_that_is_gone_is_a_write_error_and_nothing_is_left(table, tmp_path):
    with assert_no_leaks(), Writing(table, spill_directory=str(tmp_path / "gone")) as writing:
        with pytest.raises(WriteError, match="gone"):
            writing.write(_ORDERS["random"])
        writing.writer.abort()
        assert writing.parts.data_files() == []
        assert writing.budget.held_bytes == 0


def test_a_limit_too_small_for_row_groups_says_what_is_needed(table: Table) -> None:
    with pytest.raises(MemoryBudgetError, match="raise memory") as caught:
        Writing(table, "1MB")
    with Writing(table, caught.value.needed_bytes) as writing:
        assert len(writing.write(_ORDERS["few"])) == 2


def test_a_row_too_large_for_the_limit_says_what_is_needed(table: Table) -> None:
    def row(writing: Writing) -> pa.RecordBatch:
        return writing.parts.batch({"place": [1], "number": [1], "text": ["x" * _MB]})

    with Writing(table) as writing:
        with pytest.raises(MemoryBudgetError, match=r"db\.places takes 1 MB") as caught:
            writing.writer.write(row(writing))
        writing.writer.abort()
    with Writing(table, caught.value.needed_bytes) as writing:
        writing.writer.write(row(writing))
        assert len(writing.writer.close()) == 1


def test_a_value_without_a_partition_is_refused_by_name(catalog: SqlCatalog) -> None:
    schema = all_types_schema()
    at = schema.find_field("timestamp").field_id
    table = catalog.create_table(
        "db.days",
        schema,
        partition_spec=PartitionSpec(PartitionField(at, 1000, HourTransform(), "d")),
    )
    with Writing(table) as writing:
        rows = all_types_rows(10)
        fields = writing.parts.file_schema
        arrays = [rows.column(f.name).combine_chunks().cast(f.type) for f in fields]
        position = fields.get_field_index("timestamp")
        arrays[position] = pa.array([2**63 - 1] * 10).cast(fields.field(position).type)
        with pytest.raises(InvalidDataError, match="timestamp"):
            writing.writer.write(pa.RecordBatch.from_arrays(arrays, schema=fields))
        writing.writer.abort()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    runs=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6_000)), min_size=1, max_size=40),
    batch_rows=st.sampled_from([37, 1_000, 20_000]),
    shuffled=st.booleans(),
)
def test_any_order_of_runs_of_rows_is_written_whole(table, runs, batch_rows, shuffled) -> None:
    places = np.repeat([place for place, _ in runs], [rows for _, rows in runs])
    if shuffled:
        np.random.default_rng(len(places)).shuffle(places)
    with Writing(table, 2 * _MB) as writing:
        files = writing.write(places, batch_rows)
        assert sum(file.rows for file in files) == len(places)
        tables = [pq.ParquetFile(local_path(file)).read() for file in files]
        rows = pa.concat_tables(tables).sort_by("number")
        assert rows.column("place").to_pylist() == places.tolist()
        assert rows.column("number").to_pylist() == list(range(len(places)))
        for file, contents in zip(files, tables, strict=True):
            assert contents.column("place").unique().to_pylist() == list(file.partition)
        assert writing.budget.peak_bytes <= writing.budget.limit_bytes
        assert writing.budget.held_bytes == 0
