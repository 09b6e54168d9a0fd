"""Orphans listed and deleted by tasks: the report of `icestream.orphans`, and nothing more gone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
import icestream.spark as ice_spark
from icestream.operations.upkeep.folder import Folder
from icestream.spark.tasks import storage_tasks
from icestream.spark.tasks.storage_tasks import SparkStorage
from tests.spark.test_delete import filled
from tests.support.loads import BY_PART, listing, rows_of
from tests.support.stored import folder_of

_OLD = 1_000_000_000


def _litter(table: Table) -> list[str]:
    """Files that nothing refers to, some of them in folders of their own."""
    folder = Path(folder_of(table))
    names = [f"data/part={n % 3}/left-{n}.parquet" for n in range(12)]
    names += ["data/lost.parquet", "metadata/lost.avro", "elsewhere/deep/er/than/that/lost.parquet"]
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"lost")
        os.utime(path, (_OLD, _OLD))
    return sorted(names)


@pytest.mark.parametrize("few", [0, 1000], ids=["deleted by tasks", "deleted here"])
def test_the_report_is_that_of_a_search_in_process(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(storage_tasks, "_FEW_FILES", few)
    monkeypatch.setattr(storage_tasks, "_FILES_PER_SHARE", 4)
    table = filled(catalog, spec=BY_PART)
    rows, kept = rows_of(table), listing(table)
    lost = _litter(table)
    expected = ice.orphans(table, older_than=3600).to_dict()
    report = ice_spark.orphans(spark, "db.t", catalog=catalog, older_than=3600)
    found = report.to_dict()
    for facts in (expected, found):
        facts.pop("seconds")
        facts.pop("written_before_ms")
    assert found == expected
    assert report.count == len(lost)
    assert listing(table) == kept | set(lost)
    done = ice_spark.orphans(spark, table, older_than=3600, delete=True)
    assert (done.files_deleted, done.not_deleted) == (len(lost), ())
    assert listing(table) == kept
    assert rows_of(table) == rows


def test_tasks_list_every_file_once(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog, spec=BY_PART)
    _litter(table)
    folder = Folder(table.io, table.location())
    expected = sorted(file.key for file in folder.files())
    for shares in (1, 100):
        monkeypatch.setattr(storage_tasks, "_SHARES_PER_TASK", shares)
        storage = SparkStorage(spark, table.io)
        assert sorted(file.key for file in storage.files(folder)) == expected


def test_local_folders_are_listed_here_if_tasks_run_elsewhere(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    storage = SparkStorage(spark, table.io)
    storage._is_here = False
    monkeypatch.setattr(storage_tasks, "map_shares", None)
    folder = Folder(table.io, table.location())
    files = list(storage.files(folder))
    assert len(files) == len(list(folder.files()))
    assert storage.delete(files[:0]) == []


def test_files_that_a_failed_job_left_are_deleted_here(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no executors today")

    monkeypatch.setattr(storage_tasks, "_FEW_FILES", 0)
    table = filled(catalog)
    _litter(table)
    folder = Folder(table.io, table.location())
    lost = [file for file in folder.files() if "lost" in file.name]
    monkeypatch.setattr(storage_tasks, "map_shares", fail)
    assert SparkStorage(spark, table.io).delete(lost) == []
    assert not [name for name in listing(table) if "lost" in name]


def test_other_tables_are_found_by_tasks_as_well(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog)
    nested = catalog.create_table("db.nested", table.schema(), location=f"{table.location()}/in")
    ice.append(nested, ice.scan(table).to_reader().read_all())
    with pytest.raises(ice.CatalogError, match="nested"):
        ice_spark.orphans(spark, table, older_than=0)
