"""Which unreferenced files are orphans, and why the others are kept."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.stored import folder_of, leave_a_write, make_older

DAY = 24 * 60 * 60


_SCHEMA = pa.schema([("id", pa.int64())])


def _rows(first: int) -> pa.Table:
    return pa.table({"id": range(first, first + 10)}, schema=_SCHEMA)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = catalog.create_table("db.t", _SCHEMA)
    ice.append(table, _rows(0))
    return table


def test_a_dead_write_is_as_old_as_its_newest_file(table: Table) -> None:
    _, files, _ = leave_a_write(table, age_seconds=10 * DAY)
    make_older(files[1], 1 * DAY)
    report = ice.orphans(table, delete=True)
    assert (report.count, report.kept_young) == (0, 3)


def test_a_write_whose_process_runs_is_not_touched_however_old_its_files(table: Table) -> None:
    _, files, _ = leave_a_write(table, marker_age_seconds=0, pid=os.getpid())
    make_older(files[0], 10 * DAY)
    report = ice.orphans(table, older_than=0, delete=True)
    assert (report.count, report.kept_in_flight) == (0, 3)


def test_a_process_of_another_machine_counts_by_age_alone(table: Table) -> None:
    leave_a_write(table, pid=os.getpid(), host="another-machine")
    assert ice.orphans(table, older_than=60).kept_young == 3
    assert ice.orphans(table, older_than=0).count == 3


def test_manifests_newer_than_a_live_writes_start_may_be_its_own(table: Table) -> None:
    leave_a_write(table, marker_age_seconds=0, age_seconds=0, pid=os.getpid())
    before = folder_of(table) / "metadata/old-m0.avro"
    meanwhile = folder_of(table) / "metadata/new-m0.avro"
    for path, age in ((before, DAY), (meanwhile, 0)):
        path.write_bytes(b"manifest")
        make_older(path, age)
    report = ice.orphans(table, older_than=0)
    assert [file.path for file in report.files] == [f"file://{before}"]
    assert report.kept_in_flight == 4


def test_files_written_but_not_committed_yet_survive_while_their_process_runs(
    table: Table,
) -> None:
    files = ice.write_files(table, _rows(10))
    assert ice.orphans(table, older_than=0, delete=True).kept_in_flight == 2
    ice.commit_files(table, files)
    assert table.refresh().scan().to_arrow().num_rows == 20
