"""Ray Data reads and writes tables, each task inside its memory."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.process import REPOSITORY
from tests.support.tables import commit_files, write_parquet_file

pytestmark = [
    pytest.mark.slow,  # A cluster takes half a minute on a busy machine.
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("default"),
]

_FILES, _FILE_ROWS = 3, 1_000
_ROWS = _FILES * _FILE_ROWS
_MEMORY = "32MB"


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    import ray

    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src")])
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # Paths of sockets must be short.
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 * 2**20,
            log_to_driver=False,
            configure_logging=False,
            _temp_dir=folder,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield
        ray.shutdown()


@pytest.fixture
def table(catalog: SqlCatalog, _cluster: None) -> Table:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = catalog.create_table("db.t", schema)
    for first in range(0, _ROWS, _FILE_ROWS):
        ids = range(first, first + _FILE_ROWS)
        ice.append(table, pa.table({"id": ids, "name": [str(n) for n in ids]}))
    return table


@pytest.fixture
def copy(catalog: SqlCatalog, table: Table) -> Table:
    return catalog.create_table("db.copy", table.schema())


def _ids(table: Table) -> list[int]:
    rows = ice.scan(table, columns=["id"]).to_reader().read_all()
    return sorted(rows["id"].to_pylist())


def _data_files(table: Table) -> set[Path]:
    return set(Path(table.location().removeprefix("file://")).rglob("*.parquet"))


def _markers(table: Table) -> list[Path]:
    return list(Path(table.location().removeprefix("file://")).rglob("icestream-in-flight-*"))


def _rows(batch: pa.Table) -> pa.Table:
    return batch


def _fail_late(batch: pa.Table) -> pa.Table:
    if batch["id"][0].as_py() >= _FILE_ROWS:
        raise ValueError("a row that can't be converted")
    return batch


def _with_country(batch: pa.Table) -> pa.Table:
    return batch.append_column("country", pa.array(["NO"] * batch.num_rows))


def test_a_dataset_has_the_rows_and_columns_of_the_scan(table: Table) -> None:
    dataset = ice.ray.read(table, where="id >= 500", columns=["id"], memory=_MEMORY)
    assert dataset.schema().names == ["id"]
    rows = [row["id"] for row in dataset.iter_rows()]
    assert sorted(rows) == list(range(500, _ROWS))
    assert dataset.limit(7).count() == 7


def test_tasks_apply_masks_and_transforms(table: Table) -> None:
    first_two = ice.ray.read(
        table, mask={"name": "null"}, transform=lambda batch: batch.slice(0, 2), memory=_MEMORY
    )
    assert first_two.count() < _ROWS
    assert {row["name"] for row in first_two.iter_rows()} == {None}


def test_tables_may_be_given_by_name(catalog: SqlCatalog, table: Table, copy: Table) -> None:
    dataset = ice.ray.read("db.t", catalog=catalog, where="id < 10", memory=_MEMORY)
    report = ice.ray.write(dataset, "db.copy", catalog=catalog, memory=_MEMORY)
    assert report.rows_inserted == 10
    assert _ids(copy.refresh()) == list(range(10))


def test_an_empty_scan_keeps_its_columns(table: Table) -> None:
    dataset = ice.ray.read(table, where="id < 0", memory=_MEMORY)
    assert dataset.schema().names == ["id", "name"]
    assert dataset.count() == 0


def test_an_append_is_one_snapshot_of_the_files_of_all_tasks(table: Table, copy: Table) -> None:
    dataset = ice.ray.read(table, memory=_MEMORY, ray_options={"override_num_blocks": 3})
    report = ice.ray.write(dataset.map_batches(_rows, batch_format="pyarrow"), copy, load_id="a")
    assert report.rows_inserted == _ROWS
    assert len(copy.refresh().snapshots()) == 1
    assert _ids(copy) == list(range(_ROWS))
    again = ice.ray.write(dataset, copy, load_id="a")
    assert again.already_committed
    assert _ids(copy) == list(range(_ROWS))
    assert _markers(copy) == []


def test_an_overwrite_replaces_the_rows_of_a_filter(table: Table) -> None:
    dataset = ice.ray.read(table, where="id < 10", memory=_MEMORY)
    report = ice.ray.write(dataset, table, mode="overwrite", where="id < 500", memory=_MEMORY)
    assert (report.rows_inserted, report.rows_deleted) == (10, 500)
    assert _ids(table) == [*range(10), *range(500, _ROWS)]
    everything = ice.ray.read(table, where="id < 3", memory=_MEMORY)
    ice.ray.write(everything, table, mode="overwrite", memory=_MEMORY)
    assert _ids(table) == [0, 1, 2]


def test_a_merge_streams_rows_through_the_driver(table: Table) -> None:
    import ray

    rows = pa.table({"id": [5, _ROWS], "name": ["five", "new"]})
    report = ice.ray.write(ray.data.from_arrow(rows), table, mode="merge", on="id", memory="64MB")
    assert (report.rows_updated, report.rows_inserted) == (1, 1)
    assert _ids(table) == list(range(_ROWS + 1))


def test_evolving_adds_the_new_column_in_the_same_commit(table: Table, copy: Table) -> None:
    rows = ice.ray.read(table, memory=_MEMORY).map_batches(_with_country, batch_format="pyarrow")
    report = ice.ray.write(rows, copy, schema_mode="evolve", memory=_MEMORY)
    assert report.schema_changes
    assert copy.refresh().schema().column_names == ["id", "name", "country"]


def test_a_failed_job_leaves_no_file_and_no_snapshot(table: Table, copy: Table) -> None:
    rows = ice.ray.read(table, memory=_MEMORY, ray_options={"override_num_blocks": 3})
    with pytest.raises(ice.TaskFailedError, match=r"db.copy failed") as caught:
        ice.ray.write(rows.map_batches(_fail_late, batch_format="pyarrow"), copy, memory=_MEMORY)
    assert "\n" not in str(caught.value)
    assert copy.refresh().snapshots() == []
    assert _data_files(copy) == set()
    assert _markers(copy) == []


def test_an_error_of_a_task_is_icestreams_own(table: Table, copy: Table) -> None:
    rows = ice.ray.read(table, memory=_MEMORY).map_batches(_with_country, batch_format="pyarrow")
    with pytest.raises(ice.SchemaMismatchError, match="'country'") as caught:
        ice.ray.write(rows, copy, memory=_MEMORY)
    assert type(caught.value) is ice.SchemaMismatchError
    assert "\n" not in str(caught.value)
    assert _data_files(copy) == set()


def test_a_refused_commit_leaves_no_file(
    table: Table, copy: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ice.ray.read(table, memory=_MEMORY)
    with pytest.raises(ice.InvalidArgumentError, match="no branch 'none'"):
        ice.ray.write(rows, copy, memory=_MEMORY, branch="none")

    def unreachable(*_: object, **__: object) -> None:
        raise ice.CatalogError("gone")

    monkeypatch.setattr("icestream.commit.landing.TableLanding.refresh", unreachable)
    with pytest.raises(ice.CatalogError, match="gone"):
        ice.ray.write(rows, copy, memory=_MEMORY)
    assert _data_files(copy) == set()
    assert _markers(copy) == []


def test_arguments_that_do_not_fit_are_refused_before_a_job(table: Table) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=r"call limit\(\) on the dataset"):
        ice.ray.read(table, limit=3)
    for options in ({"mode": "upsert"}, {"on": "id"}, {"where": "id = 1"}, {"when_matched": "x"}):
        with pytest.raises(ice.InvalidArgumentError, match="mode"):
            ice.ray.write(None, table, **options)


def _size(batch: pa.Table) -> pa.Table:
    """Runs in the task that reads: its resident size, without shared memory."""
    (line,) = re.findall(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    return pa.table({"rows": [batch.num_rows], "bytes": [int(line) * 1024]})


@pytest.mark.usefixtures("_cluster")
def test_a_task_streams_a_share_that_is_larger_than_its_memory(catalog: SqlCatalog) -> None:
    from ray.data import DataContext

    rows, block_bytes = 10_000_000, 16 << 20
    random = np.random.default_rng(6)
    data = pa.table({f"c{n}": random.integers(0, 2**62, rows) for n in range(6)})
    table = catalog.create_table("db.large", data.schema)
    options = {"row_group_rows": rows // 4, "use_dictionary": False}
    commit_files(table, [write_parquet_file(table, data, **options)])
    share_bytes = data.nbytes
    del data
    context = DataContext.get_current()
    before, context.target_max_block_size = context.target_max_block_size, block_bytes
    dataset = ice.ray.read(table, memory=_MEMORY, ray_options={"override_num_blocks": 1})
    seen = dataset.map_batches(_size, batch_format="pyarrow", batch_size=None).to_pandas()
    context.target_max_block_size = before
    assert seen["rows"].sum() == rows
    # The limit, Ray's block and its copy, and a worker with Ray, pandas and PyArrow.
    assert seen["bytes"].max() < 32_000_000 + 3 * block_bytes + 200_000_000 < share_bytes
