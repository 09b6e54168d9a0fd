"""Compaction of tables with deleted rows, and beside changes that others commit."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.landing import TableLanding
from icestream.operations.upkeep import compact as compact_module
from tests.support.commits import delete_entries
from tests.support.delete_files import commit_equality_deletes, commit_position_deletes
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import data_file_paths, data_files

_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


def _append(table: Table, first: int, part: str = "a") -> None:
    rows = {"id": range(first, first + 100), "part": [part] * 100}
    ice.append(table, pa.table(rows, schema=_SCHEMA))


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Four files of 100 rows, numbered from 0 on."""
    table = catalog.create_table("db.t", _SCHEMA)
    for n in range(4):
        _append(table, 100 * n)
    return table.refresh()


@pytest.fixture
def partitioned(catalog: SqlCatalog) -> Table:
    """Four files of 100 rows: two of partition a, two of partition b."""
    table = catalog.create_table("db.p", _SCHEMA)
    with table.update_spec() as update:
        update.add_identity("part")
    for n in range(4):
        _append(table, 100 * n, "aabb"[n])
    return table.refresh()


def _ids(table: Table) -> list[int]:
    ids: list[int] = table.refresh().scan().to_arrow()["id"].to_pylist()
    return sorted(ids)


def _without(*deleted: int) -> list[int]:
    return [i for i in range(400) if i not in deleted]


def test_deleted_rows_are_gone_for_good_and_so_are_their_delete_files(table: Table) -> None:
    paths = data_file_paths(table)
    commit_position_deletes(table, {paths[0]: [1, 2], paths[2]: [5]}, one_file=True)
    report = ice.compact(table)
    assert (report.rows_rewritten, report.rows_deleted) == (397, 3)
    assert (report.files_removed, report.files_added, report.delete_files_removed) == (4, 1, 1)
    assert delete_entries(table.refresh()) == []
    assert _ids(table) == _without(1, 2, 205)
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["total-delete-files"] == "0"
    assert head.summary["total-position-deletes"] == "0"
    assert head.summary["total-records"] == "397"


def test_a_single_file_with_deleted_rows_is_rewritten(partitioned: Table) -> None:
    table = partitioned
    ice.delete(table, "id >= 100")
    (path,) = data_file_paths(table)
    commit_position_deletes(table, {path: [0]})
    report = ice.compact(table)
    assert (report.files_removed, report.files_added, report.rows_deleted) == (1, 1, 1)
    assert _ids(table) == list(range(1, 100))


def test_a_large_file_with_deleted_rows_is_rewritten_and_others_are_not(table: Table) -> None:
    paths = data_file_paths(table)
    commit_position_deletes(table, {paths[1]: [7]})
    report = ice.compact(table, target_file_bytes=100)
    assert report.files_removed == 1
    assert report.delete_files_removed == 1
    assert set(data_file_paths(table.refresh())) > {paths[0], paths[2], paths[3]}
    assert _ids(table) == _without(107)


def test_a_file_whose_rows_are_all_deleted_goes_without_a_successor(table: Table) -> None:
    paths = data_file_paths(table)
    commit_position_deletes(table, {paths[0]: range(100)})
    report = ice.compact(table, target_file_bytes=100)
    assert (report.files_removed, report.files_added) == (1, 0)
    assert len(data_files(table.refresh())) == 3
    assert _ids(table) == list(range(100, 400))


def test_a_delete_file_stays_while_it_applies_to_a_file_that_is_not_rewritten(
    partitioned: Table,
) -> None:
    table = partitioned
    paths = data_file_paths(table)
    commit_position_deletes(table, {paths[0]: [0], paths[1]: [1]}, one_file=True)
    report = ice.compact(table, where="id < 100")
    assert (report.files_removed, report.delete_files_removed) == (1, 0)
    assert _ids(table) == _without(0, 101)
    report = ice.compact(table, where="id < 200")
    assert report.delete_files_removed == 1
    assert delete_entries(table.refresh()) == []
    assert _ids(table) == _without(0, 101)


def test_a_delete_file_for_files_of_two_groups_goes_with_the_second(table: Table) -> None:
    paths = data_file_paths(table)
    kept = paths.index(min(paths))  # outside of the delete file's bounds
    first = 100 * kept
    others = {path: [0] for path in paths if path != paths[kept]}
    commit_position_deletes(table, others, one_file=True)
    with mock.patch("icestream.operations.upkeep.groups._FILES_PER_GROUP", 2):
        report = ice.compact(table, where=f"id < {first} or id >= {first + 100}")
    assert len(report.snapshot_ids) == 2
    assert report.delete_files_removed == 1
    removed = [
        snapshot.summary["total-delete-files"]
        for snapshot in table.refresh().snapshots()[-2:]
        if snapshot.summary
    ]
    assert removed == ["1", "0"]
    assert paths[kept] in data_file_paths(table)  # older than the delete file, and still there
    assert _ids(table) == _without(*({0, 100, 200, 300} - {first}))


def test_delete_files_that_apply_to_nothing_are_removed(table: Table) -> None:
    first, *_ = data_file_paths(table)
    commit_position_deletes(table, {first: [0]})
    # PyIceberg's overwrite leaves the delete file of a file that it removes.
    table.delete("id < 100")
    assert len(delete_entries(table.refresh())) == 1
    ice.compact(table)
    assert delete_entries(table.refresh()) == []
    assert _ids(table) == list(range(100, 400))


def test_delete_files_that_apply_to_nothing_are_removed_where_nothing_else_is_to_do(
    table: Table,
) -> None:
    first, *_ = data_file_paths(table)
    commit_position_deletes(table, {first: [0]})
    table.delete("id < 100")
    report = ice.compact(table, target_file_bytes=100)
    assert (report.groups, report.delete_files_removed) == (0, 1)
    assert len(report.snapshot_ids) == 1
    assert delete_entries(table.refresh()) == []
    assert ice.compact(table, target_file_bytes=100).snapshot_ids == ()
    assert _ids(table) == list(range(100, 400))


def test_tables_with_equality_deletes_are_refused(table: Table) -> None:
    commit_equality_deletes(table, ["id"], [{"id": 5}])
    before = stored_files(folder_of(table))
    with pytest.raises(ice.UnsupportedFeatureError, match="equality"):
        ice.compact(table)
    assert stored_files(folder_of(table)) == before


def _beside(change: Callable[[Table], object], *, before_group: int = 1) -> mock._patch[object]:
    """Have another one change the table right before a group is committed."""
    real = TableLanding.land
    landed = []

    def land(landing: TableLanding, *arguments: object) -> object:
        landed.append(arguments)
        if len(landed) == before_group:
            table = landing._table
            change(table.catalog.load_table(table.name()))
        return real(landing, *arguments)  # type: ignore[arg-type]

    return mock.patch.object(compact_module.TableLanding, "land", land)


def test_an_append_meanwhile_is_no_conflict(table: Table) -> None:
    with _beside(lambda other: _append(other, 400)):
        report = ice.compact(table)
    assert report.groups_refused == 0
    assert _ids(table) == list(range(500))
    assert len(data_files(table)) == 2


def test_rows_deleted_meanwhile_do_not_come_back(table: Table) -> None:
    # The trap: the new file is newer than the delete, which would no longer apply to its rows.
    first = data_file_paths(table)[0]
    with (
        _beside(lambda other: commit_position_deletes(other, {first: [3]})),
        pytest.raises(ice.CommitConflictError, match="reappear"),
    ):
        ice.compact(table)
    assert _ids(table) == _without(3)
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_rows_deleted_meanwhile_and_another_snapshot_on_top_do_not_come_back(
    table: Table,
) -> None:
    first = data_file_paths(table)[0]

    def change(other: Table) -> None:
        commit_position_deletes(other, {first: [3]})
        _append(other, 400)

    with _beside(change), pytest.raises(ice.CommitConflictError):
        ice.compact(table)
    assert _ids(table) == [i for i in range(500) if i != 3]


def test_rows_deleted_meanwhile_by_value_do_not_come_back(table: Table) -> None:
    with (
        _beside(lambda other: commit_equality_deletes(other, ["id"], [{"id": 3}])),
        pytest.raises(ice.CommitConflictError),
    ):
        ice.compact(table)


def test_files_replaced_meanwhile_are_not_replaced_again(table: Table) -> None:
    with (
        _beside(lambda other: ice.delete(other, "id = 3")),
        pytest.raises(ice.CommitConflictError),
    ):
        ice.compact(table)
    assert _ids(table) == _without(3)
    assert stored_files(folder_of(table)) == referenced_files(table)


@pytest.mark.parametrize("file", range(4))
def test_only_the_group_with_a_conflict_is_left_as_it_is(partitioned: Table, file: int) -> None:
    # Also where the first group's commit comes between the delete and the second one's.
    table = partitioned
    paths = data_file_paths(table)
    with (
        mock.patch("icestream.operations.upkeep.groups._FILES_PER_GROUP", 2),
        _beside(lambda other: commit_position_deletes(other, {paths[file]: [3]})),
    ):
        report = ice.compact(table)
    assert (report.groups, report.groups_refused, len(report.conflicts)) == (2, 1, 1)
    assert len(report.snapshot_ids) == 1
    assert _ids(table) == _without(100 * file + 3)
    assert set(paths[file // 2 * 2 :][:2]) <= set(data_file_paths(table.refresh()))
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_a_rollback_meanwhile_is_a_conflict_where_only_delete_files_go(table: Table) -> None:
    first, *_ = data_file_paths(table)
    commit_position_deletes(table, {first: [0]})
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    table.delete("id < 100")

    def roll_back(other: Table) -> None:
        other.manage_snapshots().set_current_snapshot(snapshot.snapshot_id).commit()

    with _beside(roll_back), pytest.raises(ice.CommitConflictError, match="rolled back"):
        ice.compact(table, target_file_bytes=100)
    assert _ids(table) == _without(0)
