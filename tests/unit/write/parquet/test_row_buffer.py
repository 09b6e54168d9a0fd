"""The row buffer: all rows, in order, in the sizes asked for, and no more bytes than it says."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icestream.write.parquet.row_buffer import RowBuffer, cut, held_bytes


def _numbers(first: int, rows: int) -> pa.RecordBatch:
    numbers = pa.array(np.arange(first, first + rows))
    batch = pa.record_batch({"n": numbers, "text": numbers.cast(pa.string())})
    return pa.concat_batches([batch])  # In Arrow's memory, not NumPy's.


def _values(batches: list[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch["n"].to_pylist()]


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3000)),
        st.tuples(st.just("ones"), st.integers(1, 40)),
        st.tuples(st.just("take"), st.integers(1, 60_000)),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(steps=_STEPS, max_rows=st.one_of(st.none(), st.integers(1, 2000)))
def test_rows_come_out_once_and_in_the_order_they_came(
    steps: list[tuple[str, int]], max_rows: int | None
) -> None:
    buffer, taken, rows = RowBuffer(), [], 0
    for step, size in steps:
        if step == "take":
            group = buffer.take(size, max_rows)
            assert bool(group) == (len(_values(taken)) < rows)
            assert max_rows is None or len(_values(group)) <= max_rows
            taken += group
        else:
            for batch_rows in [size] if step == "append" else [1] * size:
                buffer.append(_numbers(rows, batch_rows))
                rows += batch_rows
        assert buffer.rows == rows - len(_values(taken))
        assert (buffer.bytes > 0) == (buffer.rows > 0)
    while buffer.rows:
        taken += buffer.take(100_000, max_rows)
    assert _values(taken) == list(range(rows))
    assert buffer.bytes == 0


@pytest.mark.parametrize("batch_rows", [50, 700, 5_000, 40_000])
@pytest.mark.parametrize("wanted_bytes", [100_000, 1_000_000])
def test_a_group_has_the_bytes_that_were_asked_for(batch_rows: int, wanted_bytes: int) -> None:
    buffer, row_bytes = RowBuffer(), _numbers(100_000, 10_000).nbytes / 10_000
    for first in range(100_000, 200_000, batch_rows):
        buffer.append(_numbers(first, batch_rows))
    group = buffer.take(wanted_bytes)
    assert sum(b.num_rows for b in group) * row_bytes == pytest.approx(wanted_bytes, rel=0.05)


def test_one_row_is_given_however_little_is_asked_for() -> None:
    buffer = RowBuffer()
    buffer.append(_numbers(0, 100_000))
    assert _values(buffer.take(1)) == [0]
    assert _values(buffer.take(1)) == [1]


def test_an_empty_batch_is_not_kept() -> None:
    buffer = RowBuffer()
    buffer.append(_numbers(0, 0))
    assert (buffer.rows, buffer.bytes, buffer.take(100)) == (0, 0, [])


def test_batches_of_one_row_are_merged() -> None:
    rows, before = 20_000, pa.total_allocated_bytes()
    buffer = RowBuffer()
    for number in range(rows):
        buffer.append(_numbers(number, 1))
    data_bytes = _numbers(0, rows).nbytes
    assert pa.total_allocated_bytes() - before < 2 * data_bytes
    assert buffer.bytes < 2 * data_bytes
    kept = buffer.take(1 << 30)
    assert len(kept) < 100
    assert _values(kept) == list(range(rows))


def test_few_objects_wait_for_their_merge_at_any_time() -> None:
    buffer, most = RowBuffer(), 0
    for number in range(10_000):
        buffer.append(_numbers(number, 1))
        waiting = sum(len(level) for level in buffer._small)
        most = max(most, waiting + len(buffer._kept))
    assert most < 200


def test_a_slice_does_not_keep_its_parent_alive() -> None:
    before = pa.total_allocated_bytes()
    buffer = RowBuffer()
    parent = _numbers(0, 1_000_000)
    buffer.append(parent.slice(10, 10_000))
    del parent
    gc.collect()
    assert pa.total_allocated_bytes() - before < 500_000
    assert buffer.bytes < 500_000
    assert _values(buffer.take(1 << 30)) == list(range(10, 10_010))


def test_a_batch_that_is_all_used_is_not_copied() -> None:
    buffer, batch = RowBuffer(), _numbers(0, 100_000)
    address = batch["n"].buffers()[1].address
    buffer.append(batch)
    (kept,) = buffer.take(1 << 30)
    assert kept["n"].buffers()[1].address == address


def test_bytes_are_those_of_the_buffers_kept_alive() -> None:
    before = pa.total_allocated_bytes()
    buffer = RowBuffer()
    for first in range(0, 500_000, 50_000):
        buffer.append(_numbers(first, 50_000))
    kept = pa.total_allocated_bytes() - before
    assert buffer.bytes == pytest.approx(kept, rel=0.1)
    group = buffer.take(buffer.bytes // 3)
    assert held_bytes(group) + buffer.bytes >= 0.95 * kept


def test_clear_drops_everything() -> None:
    buffer = RowBuffer()
    buffer.append(_numbers(0, 100_000))
    buffer.append(_numbers(0, 1))
    buffer.clear()
    assert (buffer.rows, buffer.bytes, buffer.take(100)) == (0, 0, [])


def test_cut_slices_have_at_most_the_bytes_given() -> None:
    pieces = list(cut(_numbers(0, 300_000), 100_000))
    assert max(piece.nbytes for piece in pieces) <= 100_000
    assert len(pieces) < 200
    assert _values(pieces) == list(range(300_000))


def test_cut_finds_the_rows_where_the_bytes_are() -> None:
    texts = ["x"] * 10_000 + ["y" * 100_000] * 20 + ["z"] * 10_000
    batch = pa.record_batch({"n": range(len(texts)), "text": texts})
    pieces = list(cut(batch, 250_000))
    assert max(piece.nbytes for piece in pieces) <= 250_000
    assert _values(pieces) == list(range(len(texts)))


def test_cut_leaves_a_row_whole_that_is_larger_than_asked_for() -> None:
    batch = pa.record_batch({"n": [0, 1, 2], "text": ["a", "b" * 10_000, "c"]})
    pieces = list(cut(batch, 100))
    assert _values(pieces) == [0, 1, 2]
    assert max(piece.nbytes for piece in pieces) > 10_000
