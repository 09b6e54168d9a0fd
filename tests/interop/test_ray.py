"""Ray tasks read a scan in shares, each inside its memory (S1.8)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray
from pyiceberg.table import Table

import icestream as ice
from tests.support.process import REPOSITORY
from tests.support.tables import commit_files, make_catalog, write_parquet_file

pytestmark = pytest.mark.interop

_LIMIT_BYTES = 32_000_000
_SHARE_ROWS = 5_000_000
_SHARE_BYTES = 32 * _SHARE_ROWS


def _read(split: ice.Split, memory: int) -> dict[str, Any]:
    """Runs in a Ray worker: reads a share and measures itself."""
    import icestream.read.scan  # noqa: F401  # Imports are not measured.
    from tests.support.measured_call import measure

    def consume() -> tuple[int, int]:
        rows = total = 0
        for batch in ice.read_splits([split], memory=memory):
            rows += batch.num_rows
            total += batch.nbytes
        return rows, total

    (rows, total), rss_growth_bytes, arrow_bytes = measure(consume, ())
    return {
        "pid": os.getpid(),
        "split": split.id,
        "rows": rows,
        "bytes": total,
        "rss_growth_bytes": rss_growth_bytes,
        "arrow_bytes": arrow_bytes,
        "allocator": pa.default_memory_pool().backend_name,
    }


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """One file with one row group of 160 MB: a share that can't be held in the worker's memory."""
    catalog = make_catalog(tmp_path_factory.mktemp("large"))
    random = np.random.default_rng(6)
    rows = pa.table({f"c{i}": random.integers(0, 2**62, _SHARE_ROWS) for i in range(4)})
    table = catalog.create_table("db.large", rows.schema)
    options = {"row_group_rows": _SHARE_ROWS, "use_dictionary": False}
    commit_files(table, [write_parquet_file(table, rows, **options)])
    yield table
    catalog.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        configure_logging=False,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    yield
    ray.shutdown()


def test_ray_tasks_read_every_row_once(table, cluster):
    splits = ice.scan(table).splits("1MB")
    task = ray.remote(_read)
    answers = ray.get([task.remote(split, _LIMIT_BYTES) for split in splits])
    assert os.getpid() not in {answer["pid"] for answer in answers}
    assert [answer["split"] for answer in answers] == [split.id for split in splits]
    assert sum(answer["rows"] for answer in answers) == table.scan().count()


def test_a_share_larger_than_the_memory_of_a_ray_worker_is_read_inside_it(large, cluster):
    (split,) = ice.scan(large).splits()
    answer = ray.get(ray.remote(_read).remote(split, _LIMIT_BYTES))
    assert answer["rows"] == _SHARE_ROWS
    assert answer["bytes"] >= _SHARE_BYTES > _LIMIT_BYTES + 64_000_000
    assert answer["arrow_bytes"] <= _LIMIT_BYTES
    assert answer["rss_growth_bytes"] <= _LIMIT_BYTES + 64_000_000


def test_an_error_in_a_ray_task_names_the_file(table, cluster):
    split = ice.scan(table).splits()[0]
    task = ray.remote(_read)
    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(task.remote(split, 1_000))
    assert isinstance(caught.value.as_instanceof_cause(), ice.MemoryBudgetError)
