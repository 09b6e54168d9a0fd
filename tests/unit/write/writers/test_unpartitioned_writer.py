"""The unpartitioned writer: every row once, inside the budget, and nothing left when it fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from icestream.errors import MemoryBudgetError, WriteError, WriterClosedError
from icestream.memory.budget import MemoryBudget
from icestream.write.parquet.encode_pool import EncodePool
from icestream.write.writers.unpartitioned_writer import UnpartitionedWriter
from tests.support.leaks import assert_no_leaks
from tests.support.tables import commit_files, make_catalog
from tests.support.writing import Parts, read_back, row_groups

_SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "number", DoubleType()),
    NestedField(3, "text", StringType()),
)
_RANDOM = np.random.default_rng(3)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


def _parts(catalog: SqlCatalog, **properties: str) -> Parts:
    named = {name.replace("__", ".").replace("_", "-"): v for name, v in properties.items()}
    return Parts(catalog.create_table("db.t", _SCHEMA, properties=named))


class _Writing:
    """A writer with a budget and threads of its own."""

    def __init__(self, parts: Parts, memory: str = "16MB", threads: int = 2) -> None:
        self.budget = MemoryBudget(memory)
        self.pool = EncodePool(threads)
        self.writer = UnpartitionedWriter(parts.context(self.budget, self.pool))

    def __enter__(self) -> _Writing:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()
        assert self.budget.held_bytes == 0


def _rows(parts: Parts, first: int, rows: int) -> pa.RecordBatch:
    ids = np.arange(first, first + rows)
    text = pa.array(ids % 500).cast(pa.string())
    return parts.batch({"id": ids, "number": _RANDOM.random(rows), "text": text})


def _ids(files: list[Any]) -> np.ndarray[Any, Any]:
    return read_back(files)["id"].to_numpy()


@pytest.mark.parametrize("batch_rows", [50, 10_000, 300_000])
def test_every_row_is_written_once_inside_the_budget(catalog: SqlCatalog, batch_rows: int) -> None:
    parts = _parts(catalog, write__target_file_size_bytes="2000000")
    rows = 30_000 if batch_rows == 50 else 900_000
    with assert_no_leaks(), _Writing(parts) as writing:
        for first in range(0, rows, batch_rows):
            writing.writer.write(_rows(parts, first, batch_rows))
        files = writing.writer.close()
    assert (np.sort(_ids(files)) == np.arange(rows)).all()
    assert 0 < writing.budget.peak_bytes <= writing.budget.limit_bytes
    assert sorted(parts.data_files()) == sorted(
        Path(file.path.removeprefix("file://")) for file in files
    )


def test_the_table_reads_what_was_written(catalog: SqlCatalog) -> None:
    parts = _parts(catalog)
    batch = _rows(parts, 0, 50_000)
    with _Writing(parts) as writing:
        writing.writer.write(batch)
        files = writing.writer.close()
    commit_files(parts.table, [file.to_data_file() for file in files])
    assert parts.table.scan().to_arrow().to_batches()[0].equals(batch)


def test_a_load_below_the_target_is_one_file_in_order(catalog: SqlCatalog) -> None:
    parts = _parts(
        catalog,
        write__target_file_size_bytes="50000000",
        write__parquet__row_group_size_bytes="1000000",
    )
    with _Writing(parts, memory="128MB", threads=4) as writing:
        for first in range(0, 1_000_000, 20_000):
            writing.writer.write(_rows(parts, first, 20_000))
        (file,) = writing.writer.close()
    assert len(row_groups(file)) > 2
    assert (_ids([file]) == np.arange(1_000_000)).all()


def test_files_of_all_lanes_come_near_the_target(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, write__target_file_size_bytes="2000000")
    with _Writing(parts, memory="64MB") as writing:
        for first in range(0, 2_000_000, 50_000):
            writing.writer.write(_rows(parts, first, 50_000))
        files = writing.writer.close()
        assert len(writing.writer._lanes) == 2
    sizes = sorted(file.bytes / 2_000_000 for file in files)
    assert len(sizes) > 5
    # The last file of each lane is as full as the stream left it.
    assert sizes[2:] == pytest.approx([1] * len(sizes[2:]), abs=0.15)


def test_a_batch_larger_than_the_budget_is_cut(catalog: SqlCatalog) -> None:
    parts = _parts(catalog)
    batch = _rows(parts, 0, 1_000_000)
    assert batch.nbytes > 16_000_000
    with _Writing(parts, memory="8MB") as writing:
        before = pa.total_allocated_bytes()
        writing.writer.write(batch)
        assert pa.total_allocated_bytes() - before < 8_000_000
        files = writing.writer.close()
    assert writing.budget.peak_bytes <= 8_000_000
    assert (_ids(files) == np.arange(1_000_000)).all()


def test_a_large_batch_is_not_kept_alive(catalog: SqlCatalog) -> None:
    parts = _parts(catalog)
    with _Writing(parts, memory="8MB") as writing:
        before = pa.total_allocated_bytes()
        batch = pa.concat_batches([_rows(parts, 0, 1_000_000)])
        writing.writer.write(batch)
        del batch
        assert pa.total_allocated_bytes() - before < 8_000_000
        writing.writer.abort()


def test_row_groups_have_at_most_the_rows_that_the_table_wants(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, write__parquet__row_group_limit="3000")
    with _Writing(parts) as writing:
        for first in range(0, 40_000, 8_000):
            writing.writer.write(_rows(parts, first, 8_000))
        (file,) = writing.writer.close()
    assert set(row_groups(file)[:-1]) == {3000}


def test_row_groups_have_about_the_bytes_that_the_table_wants(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, write__parquet__row_group_size_bytes="500000")
    with _Writing(parts) as writing:
        for first in range(0, 200_000, 10_000):
            writing.writer.write(_rows(parts, first, 10_000))
        (file,) = writing.writer.close()
    row_bytes = _rows(parts, 0, 10_000).nbytes / 10_000
    sizes = [rows * row_bytes for rows in row_groups(file)[:-1]]
    assert sizes == pytest.approx([500_000] * len(sizes), rel=0.1)


def test_row_groups_follow_the_budget_where_it_is_smaller(catalog: SqlCatalog) -> None:
    parts = _parts(catalog)
    with _Writing(parts, memory="8MB", threads=1) as writing:
        for first in range(0, 400_000, 10_000):
            writing.writer.write(_rows(parts, first, 10_000))
        (file,) = writing.writer.close()
    row_bytes = _rows(parts, 0, 10_000).nbytes / 10_000
    assert max(row_groups(file)) * row_bytes <= 1.05 * 8_000_000 / 3


def test_groups_shrink_while_others_hold_the_budget(catalog: SqlCatalog) -> None:
    parts = _parts(catalog)
    with _Writing(parts, memory="16MB", threads=1) as writing:
        other = writing.budget.force(16_000_000)
        for first in range(0, 400_000, 10_000):
            writing.writer.write(_rows(parts, first, 10_000))
        assert writing.budget.peak_bytes < 16_000_000 + 5_000_000
        other.release()
        (file,) = writing.writer.close()
    assert (_ids([file]) == np.arange(400_000)).all()


def test_a_writer_without_rows_makes_no_file(catalog: SqlCatalog) -> None:
    parts = _parts(catalog)
    with _Writing(parts) as writing:
        writing.writer.write(_rows(parts, 0, 0))
        assert writing.writer.close() == []
    assert parts.data_files() == []


def test_abort_leaves_nothing(catalog: SqlCatalog) -> None:
    parts = _parts(catalog, write__target_file_size_bytes="500000")
    with assert_no_leaks(), _Writing(parts) as writing:
        for first in range(0, 500_000, 10_000):
            writing.writer.write(_rows(parts, first, 10_000))
        assert parts.data_files()
        writing.writer.abort()
        writing.writer.abort()
        assert writing.budget.held_bytes == 0
    assert parts.data_files() == []


def test_abort_after_close_keeps_the_files(catalog: SqlCatalog) -> None:
    parts = _parts(catalog)
    with _Writing(parts) as writing:
        writing.writer.write(_rows(parts, 0, 100))
        files = writing.writer.close()
        writing.writer.abort()
    assert len(_ids(files)) == 100


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_writer_that_has_ended_takes_nothing_more(catalog: SqlCatalog, end: str) -> None:
    parts = _parts(catalog)
    with _Writing(parts) as writing:
        writing.writer.write(_rows(parts, 0, 100))
        getattr(writing.writer, end)()
        with pytest.raises(WriterClosedError):
            writing.writer.write(_rows(parts, 0, 100))
        with pytest.raises(WriterClosedError):
            writing.writer.close()


class _FullIO:
    """Stands in for storage that is full after some files."""

    def __init__(self, io: Any, files: int) -> None:
        self._io = io
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)

    def new_output(self, location: str) -> Any:
        self._files -= 1
        if self._files < 0:
            raise OSError(28, "No space left on device")
        return self._io.new_output(location)


@pytest.mark.parametrize("files", [0, 3])
def test_storage_that_is_full_is_an_error_with_a_path_and_leaves_nothing(
    catalog: SqlCatalog, files: int
) -> None:
    parts = _parts(catalog, write__target_file_size_bytes="500000")
    parts.target = replace(parts.target, io=_FullIO(parts.target.io, files))
    with assert_no_leaks(), _Writing(parts) as writing:
        with pytest.raises(WriteError, match="No space left") as caught:
            _write_all(writing.writer, parts, 500_000)
        assert caught.value.path.endswith(".parquet")
        writing.writer.abort()
        del caught
    assert parts.data_files() == []


def _write_all(writer: UnpartitionedWriter, parts: Parts, rows: int) -> None:
    for first in range(0, rows, 10_000):
        writer.write(_rows(parts, first, 10_000))
    writer.close()


def test_a_failed_close_leaves_nothing(catalog: SqlCatalog) -> None:
    parts = _parts(catalog)
    parts.target = replace(parts.target, io=_FullIO(parts.target.io, 0))
    with _Writing(parts) as writing:
        writing.writer.write(_rows(parts, 0, 100))
        with pytest.raises(WriteError):
            writing.writer.close()
        assert writing.budget.held_bytes == 0
    assert parts.data_files() == []


class _LateFailure:
    """Stands in for storage that completes `good_closes` more files, and refuses after that."""

    def __init__(self, io: Any) -> None:
        self._io = io
        self.good_closes = 1_000

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)

    def new_output(self, location: str) -> Any:
        output = self._io.new_output(location)
        create = output.create
        output.create = lambda overwrite=False: _Refusing(create(overwrite), self)
        return output


class _Refusing:
    def __init__(self, stream: Any, storage: _LateFailure) -> None:
        self._stream = stream
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        self._stream.close()
        self._storage.good_closes -= 1
        if self._storage.good_closes < 0:
            raise OSError("refused")


def test_a_lane_that_was_closed_is_deleted_when_another_fails_to_close(catalog: SqlCatalog) -> None:
    parts = _parts(
        catalog,
        write__target_file_size_bytes="3000000",
        write__parquet__row_group_size_bytes="500000",
    )
    storage = _LateFailure(parts.target.io)
    parts.target = replace(parts.target, io=storage)
    with _Writing(parts, memory="64MB") as writing:
        lanes = writing.writer._lanes
        while len(lanes) < 2 or not all(lane._current for lane in lanes):
            writing.writer.write(_rows(parts, 0, 100_000))
            writing.pool.flush()
        storage.good_closes = 1
        with pytest.raises(WriteError, match="refused"):
            writing.writer.close()
    assert parts.data_files() == []


def test_a_file_ends_early_where_its_bloom_filters_take_too_much(catalog: SqlCatalog) -> None:
    enabled = {"write.parquet.bloom-filter-enabled.column.id": "true"}
    parts = _parts(catalog, **enabled)
    with _Writing(parts, memory="8MB", threads=1) as writing:
        for first in range(0, 1_000_000, 20_000):
            writing.writer.write(_rows(parts, first, 20_000))
        files = writing.writer.close()
    group_filter_bytes = 128 << 10  # For some 100,000 rows.
    assert len(files) > 1
    assert max(len(row_groups(file)) for file in files) <= 8_000_000 // 8 // group_filter_bytes + 1
    assert (_ids(files) == np.arange(1_000_000)).all()


def test_a_limit_too_small_for_any_row_group_says_what_is_needed(catalog: SqlCatalog) -> None:
    parts = _parts(catalog)
    with pytest.raises(MemoryBudgetError, match="writing needs") as caught:
        _Writing(parts, memory="2MB")
    needed = caught.value.needed_bytes
    assert caught.value.limit_bytes == 2_000_000 < needed
    with _Writing(parts, memory=str(needed)) as writing:
        writing.writer.write(_rows(parts, 0, 300_000))
        files = writing.writer.close()
    assert len(_ids(files)) == 300_000
    assert writing.budget.peak_bytes <= needed


def test_a_row_too_large_for_the_limit_says_what_is_needed(catalog: SqlCatalog) -> None:
    parts = _parts(catalog)
    row = parts.batch({"id": [1], "number": [1.0], "text": ["x" * 4_000_000]})
    with _Writing(parts, memory="8MB", threads=1) as writing:
        with pytest.raises(MemoryBudgetError, match=r"a row of db\.t takes 4 MB") as caught:
            writing.writer.write(row)
        writing.writer.abort()
    with _Writing(parts, memory=str(caught.value.needed_bytes), threads=1) as writing:
        for _ in range(5):
            writing.writer.write(row)
        files = writing.writer.close()
    assert len(_ids(files)) == 5
    assert writing.budget.peak_bytes <= caught.value.needed_bytes
