"""Packing many splits into few tasks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.read.split import Split
from icestream.spark.tasks.packing import pack, wanted_tasks

MB = 1 << 20
CONTEXT: Any = None  # Packing looks at sizes alone.

sizes = st.lists(st.integers(0, 600 * MB), max_size=60)


def _splits(sizes_bytes: list[int]) -> list[Split]:
    return [
        Split(
            path=f"file:///data/{number}.parquet",
            rows=1,
            bytes=size,
            format="parquet",
            row_groups=None,
            filtered=False,
            deletes=(),
            constants=(),
            context=CONTEXT,
        )
        for number, size in enumerate(sizes_bytes)
    ]


def _sizes(runs: list[list[Split]]) -> list[int]:
    return [sum(split.bytes for split in run) for run in runs]


@given(sizes, st.integers(1, 40))
def test_every_split_is_read_once_and_in_plan_order(sizes_bytes: list[int], tasks: int) -> None:
    splits = _splits(sizes_bytes)
    runs = pack(splits, tasks=tasks)
    assert [split for run in runs for split in run] == splits
    assert all(runs)


@given(sizes, st.integers(1, 40))
def test_there_are_as_many_tasks_as_wanted_where_there_are_splits(
    sizes_bytes: list[int], tasks: int
) -> None:
    runs = pack(_splits(sizes_bytes), tasks=tasks)
    assert len(runs) >= min(tasks, len(sizes_bytes))


@given(sizes, st.integers(1, 40))
def test_no_task_of_several_splits_exceeds_the_cap(sizes_bytes: list[int], tasks: int) -> None:
    cap = 512 * MB
    for run in pack(_splits(sizes_bytes), tasks=tasks, most_bytes=cap):
        largest = max(split.bytes for split in run)
        assert sum(split.bytes for split in run) <= max(cap, largest)


@given(sizes, st.integers(1, 40))
def test_a_task_has_at_most_a_fair_share_and_one_split_more(
    sizes_bytes: list[int], tasks: int
) -> None:
    splits = _splits(sizes_bytes)
    if not splits:
        return
    opening = MB * len(splits)
    fair = (sum(sizes_bytes) + opening) / tasks
    assert max(_sizes(pack(splits, tasks=tasks))) <= fair + max(sizes_bytes) + MB


def test_equal_files_make_equal_tasks() -> None:
    runs = pack(_splits([20 * MB] * 32), tasks=wanted_tasks(cores=2))
    assert [len(run) for run in runs] == [8, 8, 8, 8]


def test_small_files_do_not_each_become_a_task() -> None:
    runs = pack(_splits([1000] * 5000), tasks=wanted_tasks(cores=4))
    assert 8 <= len(runs) <= 10


def test_a_large_table_gets_more_tasks_so_that_none_exceeds_the_cap() -> None:
    runs = pack(_splits([128 * MB] * 80), tasks=wanted_tasks(cores=2), most_bytes=512 * MB)
    assert max(_sizes(runs)) <= 512 * MB
    assert 20 <= len(runs) <= 27


def test_one_large_file_does_not_keep_the_small_ones_from_being_spread() -> None:
    runs = pack(_splits([500 * MB] + [MB] * 9), tasks=4)
    assert [len(run) for run in runs] == [1, 3, 3, 3]


def test_no_splits_make_no_tasks() -> None:
    assert pack([], tasks=4) == []


@pytest.mark.parametrize("tasks", [1, 3, 7])
def test_packing_is_the_same_every_time(tasks: int) -> None:
    splits = _splits([7 * MB, 3 * MB, 3 * MB, 90 * MB, 0, 12 * MB, 12 * MB])
    assert pack(splits, tasks=tasks) == pack(list(splits), tasks=tasks)
