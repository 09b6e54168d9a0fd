"""Scan tasks in few bytes: nothing is lost that an operation needs."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import FileScanTask, Table

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.operations.kept_tasks import KeptTasks
from tests.support.delete_files import commit_position_deletes
from tests.support.tables import data_file_paths


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Three files; rows of one are deleted."""
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("x", pa.float64())]))
    for start in (20, 0, 10):
        rows = range(start, start + 10)
        ice.append(table, pa.table({"id": rows, "x": [float(n) for n in rows]}))
    commit_position_deletes(table, {data_file_paths(table)[0]: [1]})
    return table.refresh()


def _tasks(table: Table) -> list[FileScanTask]:
    return list(table.scan().plan_files())


def test_a_task_is_the_same_after_it_was_kept(table: Table) -> None:
    before = _tasks(table)
    with_statistics = KeptTasks(MemoryBudget(), columns={1}, column_sizes=True).extend(before)
    assert len(with_statistics) == 3
    for old, new in zip(before, with_statistics, strict=True):
        for name in ("file_path", "file_format", "record_count", "file_size_in_bytes", "spec_id"):
            assert getattr(new.file, name) == getattr(old.file, name)
        assert new.file.lower_bounds == {1: old.file.lower_bounds[1]}
        assert new.file.column_sizes == old.file.column_sizes
        deletes = {file.file_path for file in old.delete_files}
        assert {file.file_path for file in new.delete_files} == deletes
    assert sum(bool(task.delete_files) for task in with_statistics) == 1
    (plain,) = KeptTasks(None).extend(before[:1])
    assert (plain.file.lower_bounds, plain.file.column_sizes) == (None, None)


def test_tasks_can_be_chosen_and_sorted(table: Table) -> None:
    tasks = KeptTasks(MemoryBudget()).extend(_tasks(table))
    tasks.sort_by_path()
    paths = [task.file.file_path for task in tasks]
    assert paths == sorted(data_file_paths(table))
    assert [task.file.file_path for task in tasks[1:]] == paths[1:]
    tasks.keep_only(lambda task: not task.delete_files)
    assert len(tasks) == 2


def test_more_than_half_of_the_limit_is_refused_and_all_is_given_back(table: Table) -> None:
    budget = MemoryBudget(1_000)
    tasks = KeptTasks(budget)
    with pytest.raises(ice.MemoryBudgetError, match="descriptions of more than"):
        tasks.extend(_tasks(table) * 100)
    tasks.close()
    assert budget.held_bytes == 0
