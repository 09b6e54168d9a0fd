"""Real dlt pipelines load through icestream: append, replace, merge, once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
import pytest
from dlt.destinations.adapters import iceberg_adapter
from dlt.pipeline.exceptions import PipelineStepFailed
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.integrations import dlt_destination
from tests.integrations.dlt_orders import ROWS, catalog, orders, pipeline, settings
from tests.support.process import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]  # The destination is deprecated.


@pytest.fixture
def shop(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dlt.Pipeline]:
    for name, value in settings(folder).items():
        monkeypatch.setenv(name, value)
    shop_pipeline = pipeline(folder)
    yield shop_pipeline
    if shop_pipeline.is_active:
        shop_pipeline.deactivate()


@pytest.fixture
def there(folder: Path) -> Iterator[SqlCatalog]:
    """Where the pipeline's tables are."""
    opened = catalog(folder)
    yield opened
    opened.close()


def _table(there: SqlCatalog, name: str = "orders") -> Table:
    return there.load_table(f"raw.{name}")


def _rows(table: Table) -> list[dict[str, Any]]:
    return sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def _ids(table: Table) -> list[int]:
    return [row["id"] for row in _rows(table)]


def _jobs(info: Any) -> int:
    (package,) = info.load_packages
    return sum(job.job_file_info.table_name == "orders" for job in package.jobs["completed_jobs"])


def test_an_append_of_several_files_is_one_snapshot(shop: dlt.Pipeline, there: SqlCatalog) -> None:
    info = shop.run(orders(0, ROWS), write_disposition="append")
    assert _jobs(info) == 3
    table = _table(there)
    assert _ids(table) == list(range(ROWS))
    assert len(table.metadata.snapshots) == 1
    shop.run(orders(ROWS, ROWS + 5), write_disposition="append")
    assert _ids(table) == list(range(ROWS + 5))
    assert len(table.metadata.snapshots) == 2


def test_a_replace_of_several_files_replaces_once(shop: dlt.Pipeline, there: SqlCatalog) -> None:
    shop.run(orders(0, ROWS), write_disposition="append")
    info = shop.run(orders(100, 100 + ROWS), write_disposition="replace")
    assert _jobs(info) == 3
    table = _table(there)
    assert _ids(table) == list(range(100, 100 + ROWS))
    assert len(table.metadata.snapshots) == 2


def test_a_replace_without_rows_empties_the_table(shop: dlt.Pipeline, there: SqlCatalog) -> None:
    shop.run(orders(0, ROWS), write_disposition="append")
    shop.run(orders(0, 0), write_disposition="replace")
    assert _ids(_table(there)) == []


def test_a_merge_updates_by_the_primary_key_and_inserts(
    shop: dlt.Pipeline, there: SqlCatalog
) -> None:
    shop.run(orders(0, ROWS), write_disposition="merge")
    info = shop.run(orders(20, 45, text="new"), write_disposition="merge")
    assert _jobs(info) == 3
    rows = _rows(_table(there))
    assert [row["id"] for row in rows] == list(range(45))
    assert [row["text"] for row in rows] == [f"text {n}" for n in range(20)] + ["new"] * 25
    assert len(_table(there).metadata.snapshots) == 2


def test_the_last_row_of_a_key_counts_and_flagged_rows_delete(
    shop: dlt.Pipeline, there: SqlCatalog
) -> None:
    hints: Any = {"changed": {"dedup_sort": "desc"}, "gone": {"hard_delete": True}}

    @dlt.resource(name="orders", primary_key="id", write_disposition="merge", columns=hints)
    def feed(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        yield from rows

    shop.run(feed([{"id": n, "changed": 0, "gone": False} for n in range(4)]))
    shop.run(
        feed(
            [
                {"id": 1, "changed": 9, "gone": False},
                {"id": 1, "changed": 5, "gone": True},
                {"id": 2, "changed": 1, "gone": True},
            ]
        )
    )
    rows = _rows(_table(there))
    assert [(row["id"], row["changed"]) for row in rows] == [(0, 0), (1, 9), (3, 0)]


def test_a_merge_without_a_key_appends_as_dlt_does(shop: dlt.Pipeline, there: SqlCatalog) -> None:
    for _ in range(2):
        shop.run([{"id": 1}], table_name="orders", write_disposition="merge")
    assert _ids(_table(there)) == [1, 1]


def test_a_new_column_and_a_wider_type_evolve_the_table(
    shop: dlt.Pipeline, there: SqlCatalog
) -> None:
    shop.run(orders(0, 2), write_disposition="append")
    shop.run(orders(2, 4, price=1.5), write_disposition="append")
    assert [row["price"] for row in _rows(_table(there))] == [None, None, 1.5, 1.5]
    assert len(_table(there).metadata.snapshots) == 2


def test_dlts_own_columns_and_tables_stay_out(shop: dlt.Pipeline, there: SqlCatalog) -> None:
    shop.run(orders(0, 2, tags=["a", "b"]), write_disposition="append")
    assert there.list_tables("raw") == [("raw", "orders")]
    assert _table(there).schema().column_names == ["id", "text", "tags"]
    assert _rows(_table(there))[0]["tags"] == '["a","b"]'


def test_the_hint_partition_partitions_a_new_table(shop: dlt.Pipeline, there: SqlCatalog) -> None:
    resource = orders(0, 4, country="NO")
    resource.apply_hints(columns={"country": {"partition": True}})
    shop.run(resource, write_disposition="append")
    assert [field.name for field in _table(there).spec().fields] == ["country"]


def test_the_load_keeps_to_its_limit(
    folder: Path, shop: dlt.Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[ice.WriteReport] = []
    real = dlt_destination.append
    monkeypatch.setattr(
        dlt_destination, "append", lambda *a, **k: reports.append(real(*a, **k)) or reports[-1]
    )
    monkeypatch.setenv("DATA_WRITER__BUFFER_MAX_ITEMS", "5000")
    monkeypatch.setenv("DATA_WRITER__FILE_MAX_ITEMS", "20000")
    small = pipeline(folder, memory="16MB")
    text = "x" * 500
    small.run(
        ({"id": n, "text": f"{n} {text}"} for n in range(60_000)),
        table_name="orders",
        write_disposition="append",
    )
    first = reports[0]
    assert len(reports) == 3
    assert first.rows_inserted == 60_000
    assert first.memory_limit_bytes == 16_000_000
    # A lease is corrected to the measured size of its batch, which may be a little larger.
    assert first.peak_bytes_held <= 1.05 * first.memory_limit_bytes
    assert all(report.already_committed for report in reports[1:])


def test_a_job_that_fails_after_its_commit_is_not_loaded_twice(
    shop: dlt.Pipeline, there: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = dlt_destination.append, [0]

    def append(*args: Any, **kwargs: Any) -> ice.WriteReport:
        report = real(*args, **kwargs)
        calls[0] += 1
        if calls[0] == 1:
            raise ConnectionError("the answer was lost")
        return report

    monkeypatch.setattr(dlt_destination, "append", append)
    shop.run(orders(0, ROWS), write_disposition="append")
    assert calls[0] > 1
    assert _ids(_table(there)) == list(range(ROWS))


@pytest.mark.slow
@pytest.mark.parametrize("around", ["before", "after"])
def test_a_killed_load_is_complete_and_not_doubled_after_the_next_run(
    folder: Path, there: SqlCatalog, around: str
) -> None:
    command = [sys.executable, "-m", "tests.integrations.dlt_orders", str(folder)]
    killed = subprocess.run([*command, around], cwd=REPOSITORY, capture_output=True, text=True)
    assert killed.returncode == 9, killed.stderr
    resumed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert _ids(_table(there)) == list(range(ROWS))
    assert len(_table(there).metadata.snapshots) == 1


@pytest.mark.parametrize("disposition", ["append", "replace", "merge"])
def test_nested_tables_are_refused_by_name_before_anything_is_loaded(
    shop: dlt.Pipeline, there: SqlCatalog, disposition: Any
) -> None:
    rows = [{"id": number, "items": [{"sku": "a", "parts": [1, 2]}]} for number in range(ROWS)]
    nested = dlt.resource(rows, name="orders", primary_key="id", max_table_nesting=2)
    with pytest.raises(PipelineStepFailed, match=r"orders__items.* max_table_nesting=0 "):
        shop.run(nested, write_disposition=disposition)
    assert not there.namespace_exists("raw")
    shop.abort_packages()
    flat = dlt.resource(rows, name="orders", primary_key="id", max_table_nesting=0)
    for _ in range(2):
        shop.run(flat, write_disposition="merge")
    assert _ids(_table(there)) == list(range(ROWS))
    assert _rows(_table(there))[0]["items"] == '[{"sku":"a","parts":[1,2]}]'
    assert there.list_tables("raw") == [("raw", "orders")]


_REFUSED: dict[str, Any] = {
    "scd2": {"write_disposition": {"disposition": "merge", "strategy": "scd2"}},
    "merge_key": {"write_disposition": "merge", "merge_key": "day"},
    "dedup_sort": {
        "write_disposition": "merge",
        "primary_key": "id",
        "columns": {"day": {"dedup_sort": "asc"}},
    },
}


@pytest.mark.parametrize("hints", _REFUSED.values(), ids=_REFUSED.keys())
def test_what_icestream_does_not_do_fails_at_once_and_by_name(
    shop: dlt.Pipeline, there: SqlCatalog, hints: dict[str, Any]
) -> None:
    resource = dlt.resource([{"id": 1, "day": 1}], name="orders", **hints)
    with pytest.raises(PipelineStepFailed, match="UnsupportedFeatureError"):
        shop.run(resource)
    assert not there.namespace_exists("raw")


def test_the_destination_names_its_successor() -> None:
    with pytest.deprecated_call(match=r"use icestream\.integrations\.dlt_filesystem\.filesystem"):
        dlt_destination.icestream_destination(catalog="here")


def test_hints_of_the_adapter_are_refused(shop: dlt.Pipeline, there: SqlCatalog) -> None:
    with pytest.raises(PipelineStepFailed, match="iceberg_adapter"):
        shop.run(iceberg_adapter(orders(0, 2), partition="id"))
    assert not there.namespace_exists("raw")
