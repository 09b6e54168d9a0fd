"""The data files of a branch, and their rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.operations.live_files import LiveFiles
from icestream.write.target import WriteTarget
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import ids, make_table
from tests.support.tables import data_file_paths


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Two files of ten rows each; the branch `first` has only one of them."""
    table = make_table(catalog)
    head = ice.append(table, ids(0, 10)).snapshot_id
    assert head is not None
    table.manage_snapshots().create_branch(head, "first").commit()
    ice.append(table, ids(10, 20))
    return table.refresh()


def _live(table: Table, branch: str = "main") -> LiveFiles:
    return LiveFiles(WriteTarget.of(table), branch, MemoryBudget("16MB"))


def test_a_branch_has_the_files_of_its_own_snapshot(table: Table) -> None:
    for branch, files in (("main", 2), ("first", 1), ("not yet there", 0)):
        live = _live(table, branch)
        assert len(list(live.tasks(live.ask()))) == live.count_files() == files


def test_a_filter_leaves_out_files_that_can_not_match(table: Table) -> None:
    live = _live(table)
    (task,) = live.tasks(live.ask("id >= 15"))
    assert sum(batch.num_rows for batch in live.rows([task])) == 10, "all rows of the file"


def test_rows_are_read_without_deleted_ones_and_with_their_positions(table: Table) -> None:
    first = min(data_file_paths(table), key=lambda path: _first_id(table, path))
    commit_position_deletes(table, {first: [0, 3]})
    live = _live(table.refresh())
    tasks = [task for task in live.tasks(live.ask()) if task.file.file_path == first]
    (located,) = live.located(tasks, ["id"])
    assert located.positions.tolist() == [1, 2, 4, 5, 6, 7, 8, 9]
    assert located.rows.to_pydict() == {"id": [1, 2, 4, 5, 6, 7, 8, 9]}
    assert live.count(list(live.tasks(live.ask()))) == 18


def test_files_without_deletes_are_counted_without_being_read(table: Table) -> None:
    for path in data_file_paths(table):
        Path(path.removeprefix("file://")).unlink()
    live = _live(table)
    assert live.count(list(live.tasks(live.ask()))) == 20


def test_files_are_counted_where_the_summary_does_not_have_their_number(table: Table) -> None:
    live = _live(table)
    head = live.target.metadata.snapshot_by_name("main")
    assert head is not None
    assert head.summary is not None
    head.summary.additional_properties.pop("total-data-files")
    assert live.count_files() == 2


def _first_id(table: Table, path: str) -> int:
    live = _live(table)
    (task,) = (task for task in live.tasks(live.ask()) if task.file.file_path == path)
    return int(next(live.rows([task], ["id"]))["id"][0].as_py())
