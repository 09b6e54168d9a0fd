"""Splitting batches by partition: each row once, in order, and copied only when it must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from icestream.write.partition import cluster, split


def _rows(number: int, batch: pa.RecordBatch) -> tuple[int, list[Any]]:
    return number, batch.column(0).to_pylist()


def _addresses(batch: pa.RecordBatch) -> list[int]:
    return [buffer.address for column in batch for buffer in column.buffers() if buffer]


def test_rows_are_split_by_partition_in_their_order() -> None:
    batch = pa.record_batch({"row": list(range(8)), "text": list("abcdefgh")})
    ids = np.array([3, 1, 3, 0, 1, 3, 1, 0])
    parts = list(split(batch, ids))
    assert [_rows(*part) for part in parts] == [
        (0, [3, 7]),
        (1, [1, 4, 6]),
        (3, [0, 2, 5]),
    ]
    assert parts[2][1].column(1).to_pylist() == ["a", "c", "f"]


def test_a_batch_of_one_partition_is_handed_on_as_it_is() -> None:
    batch = pa.record_batch({"row": list(range(8))})
    ((number, part),) = split(batch, np.full(8, 7))
    assert number == 7
    assert part is batch


def test_a_clustered_batch_is_sliced_in_its_own_order_and_not_copied() -> None:
    batch = pa.record_batch({"row": list(range(8))})
    parts = list(split(batch, np.array([5, 5, 2, 9, 9, 9, 0, 0])))
    assert [_rows(*part) for part in parts] == [
        (5, [0, 1]),
        (2, [2]),
        (9, [3, 4, 5]),
        (0, [6, 7]),
    ]
    assert all(_addresses(part) == _addresses(batch) for _, part in parts)


@pytest.mark.parametrize("ids", [[0, 10**6, 0], [0, 1, 0], [0, 5, 0], [4, 4, 10**9, 4]])
def test_a_partition_that_comes_back_is_gathered(ids: list[int]) -> None:
    batch = pa.record_batch({"row": list(range(len(ids)))})
    parts = dict(_rows(*part) for part in split(batch, np.array(ids)))
    assert parts == {n: [row for row, of in enumerate(ids) if of == n] for n in ids}


def test_far_apart_numbers_that_do_not_come_back_are_not_copied() -> None:
    batch = pa.record_batch({"row": list(range(3))})
    clustered, present, starts = cluster(batch, np.array([10**9, 0, 0]))
    assert clustered is batch
    assert (present.tolist(), starts.tolist()) == ([10**9, 0], [0, 1, 3])


def test_all_parts_of_a_mixed_batch_share_one_copy() -> None:
    batch = pa.record_batch({"row": list(range(1000))})
    ids = np.arange(1000) % 10
    parts = list(split(batch, ids))
    assert len({tuple(_addresses(part)) for _, part in parts}) == 1
    assert _addresses(parts[0][1]) != _addresses(batch)
