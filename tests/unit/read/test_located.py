"""Rows with the number of their file and their position in it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import FileScanTask, Table

from icestream.memory.budget import MemoryBudget
from icestream.read.located import Located, read_located
from icestream.read.plan.scan_plan import plan_tasks
from icestream.read.request import request
from tests.support.delete_files import commit_position_deletes
from tests.support.tables import add_orc_file, add_parquet_file, data_file_paths

_FILE_ROWS = 1_000


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Two Parquet files and an ORC file; the id is the file's number times 1,000 + position."""
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    for number in range(3):
        ids = range(number * _FILE_ROWS, (number + 1) * _FILE_ROWS)
        rows = pa.table({"id": ids, "n": [i % 7 for i in ids]})
        if number < 2:
            add_parquet_file(table, rows, row_group_rows=100)
        else:
            add_orc_file(table, rows)
    return table


def _tasks(table: Table) -> list[FileScanTask]:
    """The tasks of all files, by path in the order of the ids."""
    tasks = list(plan_tasks(request(table), budget=MemoryBudget()))
    return sorted(tasks, key=lambda task: min(task.file.lower_bounds[1][::-1], default=0))


def _first_ids(located: list[Located]) -> list[int]:
    return [part.rows.column("id")[0].as_py() for part in located]


@pytest.mark.parametrize("turned", [False, True])
def test_files_come_in_the_given_order_under_their_index(table: Table, turned: bool) -> None:
    tasks = _tasks(table)[::-1] if turned else _tasks(table)
    budget = MemoryBudget("16MB")
    located = list(read_located(request(table, columns=["id"]), tasks, budget=budget))
    numbers = [part.number for part in located]
    assert numbers == sorted(numbers)
    assert set(numbers) == {0, 1, 2}
    assert budget.held_bytes == 0
    seen = np.concatenate([part.rows.column("id").to_numpy() for part in located])
    assert sorted(seen) == list(range(3 * _FILE_ROWS))
    for part in located:
        assert part.rows.schema.names == ["id"]
        assert (part.rows.column("id").to_numpy() % _FILE_ROWS == part.positions).all()


def test_only_the_wanted_positions_are_read_without_deleted_rows(table: Table) -> None:
    paths = data_file_paths(table)
    commit_position_deletes(table, {path: [5, 500] for path in paths})
    positions = [np.array([4, 5, 6]), np.array([], dtype=np.int64), np.array([0, 500, 999])]
    tasks = _tasks(table)
    located = list(read_located(request(table), tasks, budget=MemoryBudget(), positions=positions))
    found: dict[int, list[int]] = {}
    for part in located:
        found.setdefault(part.number, []).extend(part.positions.tolist())
    assert found == {0: [4, 6], 2: [0, 999]}


def test_the_filter_of_the_request_is_not_applied(table: Table) -> None:
    wanted = request(table, where="id < 10", columns=["n"])
    located = read_located(wanted, _tasks(table), budget=MemoryBudget())
    assert sum(part.rows.num_rows for part in located) == 3 * _FILE_ROWS
