"""Delete files that no longer apply to any data file."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.delete_files import AppliedDeletes, live_delete_files
from icestream.operations.upkeep.manifest_entries import ManifestEntries
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import ids, make_table
from tests.support.tables import data_file_paths


def _deleted_from_both(catalog: SqlCatalog, *, one_file: bool = False) -> tuple[Table, list[str]]:
    """A table of two files, with deletes from each, in one delete file or in two."""
    table = make_table(catalog)
    for start in (0, 10):
        ice.append(table, ids(start, start + 10))
    paths = data_file_paths(table)
    commit_position_deletes(table, {path: [0] for path in paths}, one_file=one_file)
    return table.refresh(), paths


def _applied(table: Table) -> AppliedDeletes:
    entries = ManifestEntries(table.io, MemoryBudget("16MB"))
    deletes = AppliedDeletes(live_delete_files(table.metadata, "main", entries))
    for task in table.scan().plan_files():
        deletes.add(task)
    return deletes


def test_a_delete_file_is_useless_once_all_its_data_files_are_gone(catalog: SqlCatalog) -> None:
    table, paths = _deleted_from_both(catalog)
    deletes = _applied(table)
    assert deletes.useless_without([]) == ()
    assert len(deletes.useless_without(paths[:1])) == 1
    assert len(deletes.useless_without(paths)) == 2


def test_a_delete_file_for_two_data_files_goes_with_the_second(catalog: SqlCatalog) -> None:
    table, paths = _deleted_from_both(catalog, one_file=True)
    deletes = _applied(table)
    assert deletes.useless_without(paths[:1]) == ()
    deletes.forget(paths[:1], [])
    assert len(deletes.useless_without(paths[1:])) == 1


def test_files_that_a_commit_removed_are_forgotten(catalog: SqlCatalog) -> None:
    table, paths = _deleted_from_both(catalog)
    deletes = _applied(table)
    useless = deletes.useless_without(paths[:1])
    deletes.forget(paths[:1], useless)
    (left,) = deletes.useless_without(paths[1:])
    assert left not in useless


def test_a_branch_without_a_snapshot_has_no_delete_files(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.empty", pa.schema([("id", pa.int64())]))
    entries = ManifestEntries(table.io, MemoryBudget("16MB"))
    assert live_delete_files(table.metadata, "main", entries) == []
