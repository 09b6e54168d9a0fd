"""Orphans beside writes that are under way, or that died."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.in_flight import InFlightWrite
from icestream.operations.upkeep.folder import StoredFile
from icestream.operations.upkeep.orphan_search import orphan_search
from icestream.operations.upkeep.orphan_search.references import References
from icestream.operations.upkeep.orphans import delete_write
from icestream.write.target import WriteTarget
from tests.support.stored import (
    folder_of,
    leave_a_write,
    make_older,
    referenced_files,
    stored_files,
)

DAY = 24 * 60 * 60
_SCHEMA = pa.schema([("id", pa.int64())])


def _rows(first: int) -> pa.Table:
    return pa.table({"id": range(first, first + 10)}, schema=_SCHEMA)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = catalog.create_table("db.t", _SCHEMA)
    ice.append(table, _rows(0))
    return table


def _reasons(report: ice.OrphansReport) -> set[tuple[str, str | None]]:
    return {(file.reason, file.write_id) for file in report.files}


def test_a_dead_write_is_found_with_its_marker(table: Table) -> None:
    write_id, files, marker = leave_a_write(table)
    report = ice.orphans(table, older_than=0, delete=True)
    assert {file.path for file in report.files} == {f"file://{p}" for p in [*files, marker]}
    assert _reasons(report) == {("in-flight", write_id)}
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_a_dead_write_is_as_old_as_its_markers_renewal(table: Table) -> None:
    leave_a_write(table, age_seconds=10 * DAY, marker_age_seconds=1 * DAY)
    report = ice.orphans(table, delete=True)
    assert (report.count, report.kept_young) == (0, 3)
    assert ice.orphans(table, older_than=DAY / 2).count == 3


def test_a_renewal_counts_though_the_store_says_that_the_marker_is_older(table: Table) -> None:
    _, _, marker = leave_a_write(table, age_seconds=10 * DAY, marker_age_seconds=1 * DAY)
    make_older(marker, 10 * DAY)
    assert ice.orphans(table).kept_young == 3


@pytest.mark.parametrize("verb", ["orphans", "health"])
def test_a_marker_that_the_store_does_not_give_is_not_taken_for_one_of_a_dead_write(
    table: Table, verb: str
) -> None:
    _, files, marker = leave_a_write(table, marker_age_seconds=0, pid=os.getpid())
    trouble = OSError("the store does not answer")
    with (
        mock.patch.object(StoredFile, "read", side_effect=trouble),
        pytest.raises(ice.CatalogError, match=f"{marker.name}.*does not answer"),
    ):
        _ = ice.health(table) if verb == "health" else ice.orphans(table, older_than=0, delete=True)
    assert all(path.exists() for path in files)


def test_a_marker_that_is_gone_by_now_does_not_matter(table: Table) -> None:
    leave_a_write(table)
    with mock.patch.object(StoredFile, "read", side_effect=FileNotFoundError("gone")):
        assert ice.orphans(table, older_than=0).count == 3


def test_a_file_that_is_too_long_for_a_marker_counts_by_its_name_and_age(table: Table) -> None:
    write_id, _, marker = leave_a_write(table, pid=os.getpid())
    marker.write_bytes(marker.read_bytes() + b" " * (1 << 20))
    make_older(marker, DAY)
    assert _reasons(ice.orphans(table, older_than=0)) == {("in-flight", write_id)}


def test_a_process_that_runs_is_not_believed_for_more_than_three_days(table: Table) -> None:
    leave_a_write(table, age_seconds=4 * DAY, pid=1)
    with mock.patch("icestream.operations.upkeep.markers._process_start_ms", return_value=0):
        assert ice.orphans(table).count == 3


def test_a_process_that_began_after_the_write_is_another_one(table: Table) -> None:
    write_id, _, _ = leave_a_write(table, age_seconds=365 * DAY, marker_age_seconds=2 * DAY)
    report = ice.orphans(table, older_than=DAY)
    assert _reasons(report) == {("in-flight", write_id)}
    leave_a_write(table, age_seconds=365 * DAY, marker_age_seconds=2 * DAY, pid=os.getpid())
    assert ice.orphans(table, older_than=DAY).count == 6


def test_a_process_that_has_ended_but_that_its_parent_has_not_noticed_does_not_run(
    table: Table,
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # the child stays a zombie
        write_id, _, _ = leave_a_write(table, pid=child.pid)
        with mock.patch("icestream.operations.upkeep.markers._process_start_ms", return_value=0):
            report = ice.orphans(table, older_than=0)
    assert _reasons(report) == {("in-flight", write_id)}


def test_a_marker_left_after_the_commit_is_an_orphan_and_its_files_are_not(table: Table) -> None:
    target = WriteTarget.of(table)
    ice.commit_files(table, ice.write_files(target, _rows(10)))
    left = InFlightWrite(target, operation="append")
    left.mark()
    marker = Path(left.marker.removeprefix("file://"))
    assert marker.exists()
    with mock.patch("icestream.operations.upkeep.markers._runs_here", return_value=False):
        report = ice.orphans(table, older_than=0, delete=True)
    assert [file.path for file in report.files] == [f"file://{marker}"]
    assert table.refresh().scan().to_arrow().num_rows == 20
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_a_marker_that_was_cut_off_counts_by_its_name_and_age(table: Table) -> None:
    write_id, _, marker = leave_a_write(table, age_seconds=60)
    marker.write_text('{"write-id": "')
    make_older(marker, 60)
    assert ice.orphans(table, older_than=120).kept_young == 3
    assert _reasons(ice.orphans(table, older_than=30)) == {("in-flight", write_id)}


def test_the_marker_of_an_earlier_version_counts(table: Table) -> None:
    write_id, _, marker = leave_a_write(table, age_seconds=60)
    marker.rename(marker.with_suffix(".json"))
    assert _reasons(ice.orphans(table, older_than=30)) == {("in-flight", write_id)}


def test_a_dead_write_is_found_where_the_tables_data_lies_elsewhere(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    data, metadata = tmp_path / "far/data", tmp_path / "far/metadata"
    properties = {"write.data.path": f"file://{data}", "write.metadata.path": f"file://{metadata}"}
    table = catalog.create_table("db.far", _SCHEMA, properties=properties)
    ice.append(table, _rows(0))
    (data / "of-another-table.parquet").write_bytes(b"data")
    leave_a_write(table, folder=data / "0101", metadata_folder=metadata)
    _, others, marker = leave_a_write(
        table,
        folder=data,
        metadata_folder=metadata,
        table_uuid="of another table",
        table_location=f"file://{tmp_path / 'another'}",
    )
    report = ice.orphans(table, older_than=0, delete=True)
    assert report.files_deleted == 3
    kept = {str(path) for path in [data / "of-another-table.parquet", *others, marker]}
    assert stored_files(tmp_path / "far") == referenced_files(table) | kept


def test_what_a_killed_creation_left_is_found_by_the_table_that_came_after_it(
    table: Table,
) -> None:
    _, left, marker = leave_a_write(table, table_uuid="of a table that never was")
    report = ice.orphans(table, older_than=0, delete=True)
    assert {file.reason for file in report.files} == {"in-flight"}
    assert report.files_deleted == len(left) + 1
    assert not marker.exists()
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_what_is_committed_during_the_search_is_kept(table: Table) -> None:
    files = ice.write_files(table, _rows(10))
    real = References.add
    calls = []

    def add(references: References, of: Table) -> None:
        real(references, of)
        calls.append(len(references))
        if len(calls) == 1:  # right after the table was looked at for the first time
            ice.commit_files(table.catalog.load_table("db.t"), files)

    with (
        mock.patch.object(References, "add", add),
        mock.patch("icestream.operations.upkeep.markers._runs_here", return_value=False),
    ):
        report = ice.orphans(table, older_than=0, delete=True)
    assert report.count == 0
    assert calls[1] > calls[0]
    assert table.refresh().scan().to_arrow().num_rows == 20


def test_a_table_replaced_during_the_search_is_not_touched(table: Table) -> None:
    path = folder_of(table) / "data/stray.parquet"
    path.write_bytes(b"stray")
    real = orphan_search.Markers.read
    calls = []

    def read(*arguments: object, **others: object) -> orphan_search.Markers:
        calls.append(arguments)
        if len(calls) == 2:
            catalog = table.catalog
            catalog.drop_table("db.t")
            catalog.create_table("db.t", _SCHEMA)
        return real(*arguments, **others)

    with (
        mock.patch.object(orphan_search.Markers, "read", read),
        pytest.raises(ice.CatalogError, match="another table of that name"),
    ):
        ice.orphans(table, older_than=0, delete=True)
    assert path.exists()


def test_a_marker_stays_as_long_as_a_file_of_its_write_cannot_be_deleted(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from icestream.operations.upkeep.folder import StoredFile

    _, files, marker = leave_a_write(table)
    stuck, real = files[0].name, StoredFile.delete
    monkeypatch.setattr(StoredFile, "delete", lambda file: file.name != stuck and real(file))
    report = ice.orphans(table, older_than=0, delete=True)
    assert set(report.not_deleted) == {f"file://{files[0]}", f"file://{marker}"}
    assert marker.exists()
    monkeypatch.undo()
    assert ice.orphans(table, older_than=0, delete=True).files_deleted == 2


def test_a_write_of_several_workers_is_deleted_as_a_whole(table: Table) -> None:
    before = stored_files(folder_of(table))
    target = ice.write_target(table)
    for task in range(3):
        ice.write_files(target, _rows(task), task=task)
    beside = ice.write_files(table, _rows(50))
    delete_write(target)
    marker = next(path for path in stored_files(folder_of(table)) if "in-flight" in path)
    kept = {beside[0].path.removeprefix("file://"), marker}
    assert stored_files(folder_of(table)) == before | kept
    assert beside[0].write_id in marker
