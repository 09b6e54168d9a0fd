"""What the page-by-page reader relies on in PyArrow, and what it makes of it."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.read.parquet import CountReader, ParquetReader

_ROWS = 10_000


@pytest.fixture(scope="module")
def contents() -> bytes:
    sink = io.BytesIO()
    rows = pa.table({"id": list(range(_ROWS)), "s": [f"row {i % 7}" for i in range(_ROWS)]})
    pq.write_table(rows, sink, row_group_size=1_000)
    return sink.getvalue()


def _file(contents: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(contents), pre_buffer=False, buffer_size=1 << 16)


def test_pyarrow_takes_a_new_batch_size_between_the_batches_of_one_iteration(
    contents: bytes,
) -> None:
    reader = _file(contents).reader
    batches = reader.iter_batches(
        100, row_groups=list(range(10)), column_indices=[0, 1], use_threads=False
    )
    sizes, ids = [], []
    for rows in (100, 100, 37, 1, 2_500, 999, 10):
        reader.set_batch_size(rows)
        batch = next(batches)
        sizes.append(batch.num_rows)
        ids.extend(batch.column(0).to_pylist())
    assert sizes == [100, 100, 37, 1, 2_500, 999, 10]
    assert ids == list(range(sum(sizes)))


def test_pyarrow_takes_threading_between_the_batches_of_one_iteration(
    tmp_path: Path, contents: bytes
) -> None:
    """A file object in Python sees which threads read its columns."""
    seen: list[int] = []

    class _Watched(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            seen.append(threading.get_ident())
            return super().read(size)

    file = pq.ParquetFile(
        pa.PythonFile(_Watched(contents), mode="r"), pre_buffer=False, buffer_size=16 << 10
    )
    here = threading.get_ident()
    reader = file.reader
    batches = reader.iter_batches(
        1_000, row_groups=list(range(10)), column_indices=[0, 1], use_threads=False
    )
    threads = {}
    for step, use_threads in enumerate([False, True, False, True, False]):
        reader.set_use_threads(use_threads)
        seen.clear()
        assert next(batches).num_rows == 1_000
        assert seen, "each step begins a row group, so that it has to read"
        threads[step] = set(seen)
    assert threads[0] == threads[2] == threads[4] == {here}
    assert threads[1] != {here}
    assert threads[3] != {here}


def test_a_step_is_as_many_rows_as_asked_for_whatever_the_row_groups(contents: bytes) -> None:
    file = _file(contents)
    reader = ParquetReader(
        pa.BufferReader(contents), file.metadata, tuple(range(2, 6)), [0], 1 << 16, []
    )
    got = []
    for rows in (10, 2_000, 1, 5_000):
        batch = reader.step(rows, use_threads=False)
        assert batch is not None
        assert batch.num_rows <= rows
        got.extend(batch.column(0).to_pylist())
    while (batch := reader.step(5_000, use_threads=True)) is not None:
        got.extend(batch.column(0).to_pylist())
    assert got == list(range(2_000, 6_000))
    assert reader.step(1, use_threads=False) is None
    reader.close()


def test_dictionaries_are_read_as_dictionaries_only_where_asked(contents: bytes) -> None:
    file = _file(contents)
    for dictionaries, is_dictionary in (([], False), ([1], True)):
        reader = ParquetReader(
            pa.BufferReader(contents), file.metadata, (0,), [0, 1], 1 << 16, dictionaries
        )
        batch = reader.step(100, use_threads=False)
        assert batch is not None
        assert pa.types.is_dictionary(batch.column(1).type) is is_dictionary
        assert batch.column(1).to_pylist() == [f"row {i % 7}" for i in range(100)]
        reader.close()


def test_counting_delivers_every_row_once() -> None:
    reader = CountReader(25)
    sizes = []
    while (batch := reader.step(10, use_threads=False)) is not None:
        sizes.append(batch.num_rows)
    assert sizes == [10, 10, 5]
