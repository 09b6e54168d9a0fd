"""What the page-by-page reader relies on in PyArrow, and what it makes of it."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from icestream.read.decode.layout import RunLayout
from icestream.read.decode.parquet import CountReader, ParquetReader
from icestream.read.decode.sizing import Sizing

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


def _chosen(
    columns: dict[str, Any], *, row_group: int = 0, leaves: list[int] | None = None, **options: Any
) -> list[str]:
    """The paths of the columns that are worth decoding through their dictionary."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **options)
    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    group = file.metadata.row_group(row_group)
    if leaves is None:
        leaves = list(range(group.num_columns))
    layout = RunLayout(
        pa.BufferReader(sink.getvalue()), file.metadata, (row_group,), leaves, Sizing(10**9, 10**6)
    )
    chosen = layout.dictionaries(file.schema_arrow)
    return [group.column(leaf).path_in_schema for leaf in chosen]


_REPEATED = [f"one of seven {i % 7}" for i in range(_ROWS)]
_DISTINCT = [f"row {i}" for i in range(_ROWS)]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_strings_that_repeat_are_worth_their_dictionary(kind: pa.DataType) -> None:
    values = pa.array(_REPEATED, pa.string()).cast(kind)
    assert _chosen({"number": list(range(_ROWS)), "text": values}) == ["text"]


def test_strings_without_a_dictionary_are_decoded_plainly() -> None:
    """Nulls take so few bytes that their size alone would speak for a dictionary."""
    values = pa.array([None] * _ROWS, pa.string())
    assert _chosen({"text": values}) == ["text"]
    assert _chosen({"text": values}, use_dictionary=False) == []


def test_a_dictionary_as_long_as_the_column_is_not_worth_it() -> None:
    assert _chosen({"text": _DISTINCT}) == []


def test_a_column_that_gave_its_dictionary_up_on_the_way_is_decoded_plainly() -> None:
    values = _REPEATED + _DISTINCT
    assert _chosen({"text": values}, dictionary_pagesize_limit=1_000, data_page_size=1_000) == []


def test_only_flat_strings_are_chosen_of_all_that_have_dictionaries() -> None:
    columns = {
        "list": pa.array([[text] for text in _REPEATED]),
        "struct": pa.array([{"text": text} for text in _REPEATED]),
        "bytes": pa.array(_REPEATED).cast(pa.binary()),
        "number": [i % 7 for i in range(_ROWS)],
        "text": _REPEATED,
    }
    assert _chosen(columns) == ["text"]


def test_only_columns_that_are_read_are_chosen_and_by_the_row_group_given() -> None:
    columns = {"a": _REPEATED + _DISTINCT, "b": _DISTINCT + _REPEATED, "c": 2 * _REPEATED}
    assert _chosen(columns, row_group_size=_ROWS) == ["a", "c"]
    assert _chosen(columns, row_group_size=_ROWS, row_group=1) == ["b", "c"]
    assert _chosen(columns, row_group_size=_ROWS, leaves=[0, 1]) == ["a"]


def test_counting_delivers_every_row_once() -> None:
    reader = CountReader(25)
    sizes = []
    while (batch := reader.step(10, use_threads=False)) is not None:
        sizes.append(batch.num_rows)
    assert sizes == [10, 10, 5]
