"""Splits among workers: every row once in each epoch, in an order that the seed decides."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.integrations.torch_loader import SplitLoader
from tests.integrations.table_of_splits import FILE_ROWS, FILES, ids, make_table
from tests.support.process import REPOSITORY

_ALL = list(range(FILES * FILE_ROWS))
# What the loader needs of PyTorch, whose wheel brings CUDA: a stand-in for two names.
_TORCH = """
from dataclasses import dataclass

@dataclass
class WorkerInfo:
    id: int
    num_workers: int

worker_info = None

class IterableDataset:
    pass

def get_worker_info():
    return worker_info
"""


@pytest.fixture
def splits(catalog: SqlCatalog) -> list[ice.Split]:
    splits = ice.scan(make_table(catalog)).splits(target_bytes=1)
    assert len(splits) == 4 * FILES  # each row group
    return splits


def _read(loader: SplitLoader) -> list[int]:
    return list(chain.from_iterable(loader))


@pytest.mark.parametrize("workers", [1, 2, 5, 40])
def test_workers_together_read_every_row_once(splits: list[ice.Split], workers: int) -> None:
    loader = SplitLoader(splits, seed=1, memory="16MB", convert=ids)
    shares = [_read(loader.for_worker(number, workers)) for number in range(workers)]
    assert sorted(chain.from_iterable(shares)) == _ALL


def test_ranks_of_workers_share_too(splits: list[ice.Split]) -> None:
    shares = [
        _read(
            SplitLoader(splits, seed=1, convert=ids, rank=rank, ranks=2).for_worker(number, workers)
        )
        for rank, workers in ((0, 3), (1, 3))
        for number in range(workers)
    ]
    assert sorted(chain.from_iterable(shares)) == _ALL


def test_each_epoch_has_its_own_order_which_the_seed_decides(splits: list[ice.Split]) -> None:
    loader, again = SplitLoader(splits, seed=7, convert=ids), SplitLoader(splits, seed=7)
    epochs = []
    for epoch in range(3):
        loader.set_epoch(epoch)
        again.set_epoch(epoch)
        assert [split.id for split in loader.splits()] == [split.id for split in again.splits()]
        epochs.append(_read(loader))
    assert epochs[0] != epochs[1] != epochs[2]
    assert all(sorted(epoch) == _ALL for epoch in epochs)
    other = SplitLoader(splits, seed=8)
    assert [split.id for split in other.splits()] != [
        split.id for split in SplitLoader(splits, seed=7).splits()
    ]


def test_without_a_seed_the_order_is_that_of_the_plan(splits: list[ice.Split]) -> None:
    assert _read(SplitLoader(splits, convert=ids)) == _ALL


def test_without_convert_batches_come_as_they_are(splits: list[ice.Split]) -> None:
    batch = next(iter(SplitLoader(splits, batch_size=100)))
    assert isinstance(batch, pa.RecordBatch)
    assert batch.num_rows == 100


@pytest.mark.parametrize(("worker", "workers"), [(2, 2), (-1, 2), (0, 0)])
def test_a_worker_that_is_not_there_is_refused(
    splits: list[ice.Split], worker: int, workers: int
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=f"worker is {worker}"):
        SplitLoader(splits).for_worker(worker, workers)


def _processes(folder: Path, loader: SplitLoader, method: str, *, path: str) -> dict[str, Any]:
    pickled = folder / "loader.pickle"
    pickled.write_bytes(pickle.dumps(loader))
    done = subprocess.run(
        [sys.executable, "-m", "tests.integrations.table_of_splits", str(pickled), "3", method],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_may_be_processes(tmp_path: Path, splits: list[ice.Split], method: str) -> None:
    loader = SplitLoader(splits, seed=3, memory="16MB", convert=ids)
    result = _processes(tmp_path, loader, method, path="")
    expected = [_read(loader.for_worker(number, 3)) for number in range(3)]
    assert result["shares"] == expected
    assert sorted(chain.from_iterable(expected)) == _ALL


@pytest.mark.slow
def test_in_a_data_loaders_workers_torch_says_which_share_to_read(
    tmp_path: Path, splits: list[ice.Split]
) -> None:
    package = tmp_path / "site" / "torch" / "utils" / "data"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(_TORCH)
    for folder in (package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    loader = SplitLoader(splits, seed=3, memory="16MB", convert=ids)
    result = _processes(tmp_path, loader, "spawn", path=str(tmp_path / "site"))
    assert "IterableDataset" in result["bases"]
    assert result["shares"] == [_read(loader.for_worker(number, 3)) for number in range(3)]
