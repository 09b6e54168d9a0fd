"""A process pool reads a scan in shares: every row once, errors with their types (S1.8)."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import icestream as ice

_MEMORY = "32MB"


def _read(split: ice.Split) -> tuple[int, str, list[int]]:
    """Runs in a worker: which one, what it read, and the ids."""
    scan = ice.read_splits([split], memory=_MEMORY)
    ids = [value for batch in scan for value in batch.column("id").to_pylist()]
    assert scan.report.finished
    return os.getpid(), split.id, ids


def _read_all(splits: list[ice.Split], memory: str) -> int:
    return sum(batch.num_rows for batch in ice.read_splits(splits, memory=memory))


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        yield pool


@pytest.mark.parametrize(
    "target_bytes",
    [
        pytest.param(None, id="files"),
        pytest.param("1MB", id="1 MB", marks=pytest.mark.slow),
        pytest.param(1, id="row groups", marks=pytest.mark.slow),
    ],
)
def test_the_shares_of_all_workers_are_the_scan(table, pool, target_bytes):
    scan = ice.scan(table, where="id >= 1000")
    splits = scan.splits(target_bytes)
    answers = list(pool.map(_read, splits))
    assert os.getpid() not in {pid for pid, _, _ in answers}
    assert [split_id for _, split_id, _ in answers] == [split.id for split in splits]
    assert len({split.id for split in splits}) == len(splits)
    in_shares = [value for _, _, ids in answers for value in ids]
    whole = pa.Table.from_batches(scan, schema=scan.schema)["id"]
    assert in_shares == whole.to_pylist()
    assert pc.count_distinct(whole).as_py() == len(in_shares)


def test_splits_are_small_plain_data_with_ids_that_last(table):
    once, again = (ice.scan(table).splits("1MB") for _ in range(2))
    assert [split.id for split in once] == [split.id for split in again]
    for split in once:
        pickled = pickle.dumps(split)
        assert len(pickled) < 20_000
        copy = pickle.loads(pickled)
        assert (copy.id, copy.path, copy.row_groups) == (split.id, split.path, split.row_groups)


@pytest.mark.slow
def test_a_worker_may_read_several_splits_that_came_apart(table, pool):
    splits = ice.scan(table).splits("1MB")
    copies = [pickle.loads(pickle.dumps(split)) for split in splits]
    shares = [copies[::2], copies[1::2]]
    rows = sum(pool.map(_read_all, shares, [_MEMORY] * 2))
    assert rows == table.scan().count()


def test_an_error_comes_back_with_its_type_path_and_split(table, pool):
    split = ice.scan(table).splits("1MB")[-1]
    file = Path(split.path.removeprefix("file://"))
    aside = file.with_suffix(".aside")
    file.rename(aside)
    try:
        with pytest.raises(ice.FileMissingError) as caught:
            pool.submit(_read, split).result()
    finally:
        aside.rename(file)
    assert (caught.value.path, caught.value.split) == (split.path, split.id)


def test_a_limit_that_is_too_small_comes_back_with_what_is_needed(table, pool):
    splits = ice.scan(table).splits()
    with pytest.raises(ice.MemoryBudgetError) as caught:
        pool.submit(_read_all, splits, "10kB").result()
    assert caught.value.limit_bytes == 10_000
    assert caught.value.needed_bytes > 10_000
