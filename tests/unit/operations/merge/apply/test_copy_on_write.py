"""Files of many row groups: read until a row has changed, and written again only then."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import make_table
from tests.support.merges import found, nothing_in_vain, stream
from tests.support.tables import commit_files, data_file_paths, data_files, write_parquet_file

_ROWS = [(n, n % 7, f"text {n}") for n in range(5_000)]


def _grouped(catalog: SqlCatalog, *, group_rows: int = 500) -> Table:
    """One file of 5000 rows in row groups, in order of their ids."""
    table = make_table(catalog)
    commit_files(table, [write_parquet_file(table, stream(_ROWS), row_group_rows=group_rows)])
    assert len(data_files(table)) == 1
    path = data_file_paths(table)[0].removeprefix("file://")
    assert pq.read_metadata(path).num_row_groups == 5_000 // group_rows
    return table


def _with(changes: dict[int, tuple[int, str] | None]) -> list[tuple[int, int, str]]:
    rows = {row[0]: row for row in _ROWS}
    for key, values in changes.items():
        if values is None:
            del rows[key]
        else:
            rows[key] = (key, *values)
    return [rows[key] for key in sorted(rows)]


@pytest.mark.parametrize("memory", ["16MB", "256MB"])
@pytest.mark.parametrize("changed", [0, 499, 500, 2_600, 4_999], ids=str)
def test_rows_before_the_first_change_are_kept(
    catalog: SqlCatalog, mode: str, changed: int, memory: str
) -> None:
    """All rows are given, and one of them is not as it was."""
    table = _grouped(catalog)
    rows = stream(_with({changed: (9, "new")}))
    report = ice.merge(table, rows, on="id", write_mode=mode, memory=memory)
    assert found(table) == _with({changed: (9, "new")})
    assert (report.rows_updated, report.rows_unchanged) == (1, 4_999)
    assert (report.rows_inserted, report.rows_deleted) == (0, 0)
    assert report.files_removed == (mode == "copy-on-write")
    assert nothing_in_vain(table)


def test_the_order_of_rows_stays(catalog: SqlCatalog) -> None:
    table = _grouped(catalog)
    ice.merge(table, stream([(4_400, 9, "new")]), on="id")
    with ice.scan(table) as batches:
        assert pa.table(batches)["id"].to_pylist() == list(range(5_000))


def test_a_deletion_alone_at_the_end_keeps_what_was_before(catalog: SqlCatalog, mode: str) -> None:
    table = _grouped(catalog)
    rows = stream(_ROWS[4_000:], gone=pa.array([False] * 999 + [True]))
    report = ice.merge(table, rows, on="id", delete_when="gone = true", write_mode=mode)
    assert found(table) == _with({4_999: None})
    assert (report.rows_deleted, report.rows_unchanged, report.rows_updated) == (1, 999, 0)


def test_changes_in_many_row_groups_are_put_in_their_places(catalog: SqlCatalog, mode: str) -> None:
    table = _grouped(catalog)
    changes = {n: (n, "new") for n in range(3, 5_000, 97)} | dict.fromkeys(range(5, 5_000, 101))
    updates = [(n, *values) for n, values in changes.items() if values is not None]
    gone = [(n, 0, "") for n, values in changes.items() if values is None]
    flags = pa.array([False] * len(updates) + [True] * len(gone))
    rows = stream([*updates, *gone], gone=flags).take(pa.array(range(len(flags) - 1, -1, -1)))
    report = ice.merge(
        table, rows.to_batches(max_chunksize=7), on="id", delete_when="gone = true", write_mode=mode
    )
    assert found(table) == _with(changes)
    assert (report.rows_updated, report.rows_deleted) == (len(updates), len(gone))


def test_row_groups_whose_rows_are_all_deleted_are_passed_over(
    catalog: SqlCatalog, mode: str
) -> None:
    """The first, one in the middle, and the last; and a file with no rows left at all."""
    table = _grouped(catalog)
    gone = [*range(500), *range(1_700, 2_600), *range(4_500, 5_000)]
    commit_position_deletes(table, {data_file_paths(table)[0]: gone})
    ice.append(table, stream([(10_000, 1, "x"), (10_001, 1, "y")]))
    commit_position_deletes(table, {data_file_paths(table)[-1]: [0, 1]})
    left = _with(dict.fromkeys(gone))
    assert found(table) == left
    report = ice.merge(
        table,
        stream([(0, 0, "back"), (1_600, 9, "new"), (4_400, 9, "new"), (10_000, 2, "X")]),
        on="id",
        write_mode=mode,
    )
    expected = [row for row in left if row[0] not in (1_600, 4_400)]
    new = [(0, 0, "back"), (1_600, 9, "new"), (4_400, 9, "new"), (10_000, 2, "X")]
    assert found(table) == sorted([*expected, *new])
    assert (report.rows_updated, report.rows_inserted) == (2, 2)
