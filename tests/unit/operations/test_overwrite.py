"""`overwrite`: what goes, what stays and what comes, in one snapshot."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

import icestream as ice
from tests.support.delete_files import (
    commit_equality_deletes,
    commit_position_deletes,
    write_position_deletes,
)
from tests.support.loads import (
    BY_PART,
    batch,
    head_of,
    ids,
    ids_of,
    listing,
    make_table,
    rows_of,
    snapshots_of,
    summary_of,
)
from tests.support.tables import commit_files, data_file_paths, data_files, write_parquet_file

_ALL = [(n, n // 2) for n in range(6)]  # parts 0, 0, 1, 1, 2, 2


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("spec", [None, BY_PART], ids=["whole", "partitioned"])
def test_everything_is_replaced_in_one_snapshot(
    catalog: SqlCatalog, version: int, spec: object
) -> None:
    options = {} if spec is None else {"spec": spec}
    table = make_table(catalog, version=version, **options)
    ice.append(table, batch(_ALL[:3]))
    ice.append(table, batch(_ALL[3:]))
    files_before = len(data_files(table))
    report = ice.overwrite(table, batch([(7, 1), (8, 9)]))
    assert rows_of(table) == [(7, 1), (8, 9)]
    assert len(snapshots_of(table)) == 3
    assert report.snapshot_id == head_of(table).snapshot_id
    assert (report.operation, report.rows_inserted, report.rows_deleted) == ("overwrite", 2, 6)
    assert (report.files_added, report.files_removed) == (len(data_files(table)), files_before)


def test_an_empty_stream_empties_the_table(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, batch(_ALL))
    report = ice.overwrite(table, ids(0, 0))
    assert rows_of(table) == []
    assert (report.rows_inserted, report.rows_deleted, report.files_removed) == (0, 6, 1)
    assert summary_of(table)["total-records"] == "0"
    assert summary_of(table)["total-data-files"] == "0"
    assert len(snapshots_of(table)) == 2
    ice.append(table, ids(0, 1))
    assert ids_of(table) == [0]


def test_an_empty_table_is_overwritten_too(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    assert ice.overwrite(table, ids(0, 0)).snapshot_id is None
    report = ice.overwrite(table, ids(0, 2))
    assert (report.rows_deleted, report.files_removed) == (0, 0)
    assert ids_of(table) == [0, 1]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("where", ["id >= 4", EqualTo("part", 2)], ids=str)
def test_rows_of_a_filter_are_replaced_and_the_others_stay(
    catalog: SqlCatalog, version: int, where: object
) -> None:
    table = make_table(catalog, version=version)
    ice.append(table, batch(_ALL))
    report = ice.overwrite(table, ids(50, 52, 2), where=where)
    assert rows_of(table) == [(0, 0), (1, 0), (2, 1), (3, 1), (50, 2), (51, 2)]
    assert len(snapshots_of(table)) == 2
    assert (report.rows_inserted, report.rows_deleted) == (2, 2)
    assert summary_of(table).operation == Operation.OVERWRITE
    assert summary_of(table)["total-records"] == "6"


def test_a_filter_that_no_row_matches_makes_an_overwrite_that_only_adds(
    catalog: SqlCatalog,
) -> None:
    table = make_table(catalog)
    ice.append(table, batch(_ALL))
    report = ice.overwrite(table, ids(50, 51), where="id > 100")
    assert (report.rows_deleted, report.files_removed, report.files_added) == (0, 0, 1)
    assert len(data_files(table)) == 2
    assert len(rows_of(table)) == 7


def test_the_summary_of_a_full_overwrite_is_what_pyiceberg_totals(catalog: SqlCatalog) -> None:
    """PyIceberg makes two snapshots of it, a delete and an append: the totals must agree."""
    ours, theirs = (make_table(catalog, f"db.{n}", spec=BY_PART) for n in ("ours", "theirs"))
    for table in (ours, theirs):
        ice.append(table, batch(_ALL))
    ice.overwrite(ours, batch([(9, 9)]))
    theirs.overwrite(batch([(9, 9)]))
    mine, expected = summary_of(ours), summary_of(theirs)
    totals = [key for key in expected.additional_properties if key.startswith("total-")]
    assert len(totals) == 6
    for key in set(totals) - {"total-files-size"}:
        assert mine[key] == expected[key], key
    assert mine["deleted-records"] == "6"
    assert mine["added-records"] == "1"
    assert mine["deleted-data-files"] == "3"


# Rows that are deleted already


def _with_deletes(catalog: SqlCatalog) -> Table:
    """Ids 0 to 9 in two files, of which 1, 2 and 7 are deleted by position."""
    table = make_table(catalog)
    ice.append(table, ids(0, 5))
    ice.append(table, ids(5, 10))
    first, second = data_file_paths(table)
    commit_position_deletes(table, {first: [1, 2]})
    commit_position_deletes(table, {second: [2]})
    assert ids_of(table) == [0, 3, 4, 5, 6, 8, 9]
    return table


_Replace = Callable[[Table], ice.WriteReport]


@pytest.mark.parametrize(
    ("replace", "left", "deleted"),
    [
        (lambda t: ice.overwrite(t, ids(100, 101)), [100], 7),
        (lambda t: ice.overwrite(t, ids(100, 101), where="id >= 8"), [0, 3, 4, 5, 6, 100], 2),
        (lambda t: ice.overwrite(t, ids(100, 101), where="id < 5"), [5, 6, 8, 9, 100], 3),
        (lambda t: ice.overwrite(t, ids(100, 101), where="id = 1"), [0, 3, 4, 5, 6, 8, 9, 100], 0),
        (lambda t: ice.delete(t, "id in (0, 1, 7, 9)"), [3, 4, 5, 6, 8], 2),
        (lambda t: ice.delete(t, "id >= 5"), [0, 3, 4], 4),
        (lambda t: ice.delete(t, "id in (1, 2, 7)"), [0, 3, 4, 5, 6, 8, 9], 0),
    ],
    ids=["all", "some", "whole file", "deleted one", "delete", "delete file", "delete deleted"],
)
def test_rows_that_were_deleted_by_position_neither_come_back_nor_count(
    catalog: SqlCatalog, replace: _Replace, left: list[int], deleted: int
) -> None:
    table = _with_deletes(catalog)
    report = replace(table)
    assert ids_of(table) == left
    assert report.rows_deleted == deleted


def test_delete_files_go_with_the_data_that_they_were_about(catalog: SqlCatalog) -> None:
    table = _with_deletes(catalog)
    ice.overwrite(table, ids(100, 101))
    summary = summary_of(table)
    assert summary["removed-position-delete-files"] == "2"
    assert summary["removed-position-deletes"] == "3"
    assert summary["total-delete-files"] == "0"
    assert summary["total-position-deletes"] == "0"
    assert summary["total-records"] == "1"
    task = next(iter(table.scan().plan_files()))
    assert not task.delete_files


def test_delete_files_stay_while_older_data_is_there(catalog: SqlCatalog) -> None:
    table = _with_deletes(catalog)
    ice.delete(table, "id >= 5")
    assert summary_of(table)["total-delete-files"] == "2"
    assert ids_of(table) == [0, 3, 4]
    ice.delete(table, "id = 0")  # rewrites the older file: nothing old is left
    assert summary_of(table)["total-delete-files"] == "0"
    assert ids_of(table) == [3, 4]


def test_delete_files_of_the_same_snapshot_as_their_data_stay(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 3))
    file = write_parquet_file(table, ids(5, 8))
    deletes = write_position_deletes(table, [file], {file.file_path: [1]})
    commit_files(table, [file], deletes)
    assert ids_of(table) == [0, 1, 2, 5, 7]
    ice.delete(table, "id < 3")
    assert ids_of(table) == [5, 7]


def test_one_delete_file_for_two_data_files_outlives_the_first(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 5))
    ice.append(table, ids(5, 10))
    first, second = data_file_paths(table)
    commit_position_deletes(table, {first: [1], second: [2]}, one_file=True)
    ice.delete(table, "id >= 5")
    assert ids_of(table) == [0, 2, 3, 4]
    table = make_table(catalog, "db.second")
    ice.append(table, ids(0, 5))
    ice.append(table, ids(5, 10))
    first, second = data_file_paths(table)
    commit_position_deletes(table, {first: [1], second: [2]}, one_file=True)
    ice.delete(table, "id < 5")
    assert ids_of(table) == [5, 6, 8, 9]


def test_equality_deletes_are_refused_and_nothing_is_left(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 3))
    commit_equality_deletes(table, ["id"], [{"id": 1}])
    before = listing(table)
    for write in (
        lambda: ice.overwrite(table, ids(0, 1)),
        lambda: ice.overwrite(table, ids(0, 1), where="id = 1"),
        lambda: ice.delete(table, "id = 1"),
    ):
        with pytest.raises(ice.UnsupportedFeatureError, match="equality deletes"):
            write()
    assert listing(table) == before
    ice.append(table, ids(3, 4))


def test_a_file_that_is_in_the_table_twice_goes_twice(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    files = ice.write_files(table, ids(0, 2))
    for _ in range(2):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as add:
            add.append_data_file(files[0].to_data_file())
    assert ids_of(table) == [0, 0, 1, 1]
    report = ice.overwrite(table, ids(5, 6))
    assert report.rows_deleted == 4
    assert ids_of(table) == [5]


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "nothing = 1"}, "no column"),
        ({"where": "id >"}, "can't be parsed"),
        ({"where": 5}, "give a string or a PyIceberg expression"),
        ({"where": "id = 1", "partitions": "dynamic"}, "give one of them"),
        ({"partitions": "static"}, "'dynamic'"),
        ({"partitions": "dynamic"}, "is not partitioned"),
        ({"branch": ""}, "branch is empty"),
        ({"schema_mode": "whatever"}, "'freeze', 'evolve' or 'discard'"),
        ({"load_id": " "}, "load_id"),
        ({"load_id": "x" * 501}, "load_id"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused_and_nothing_is_left(
    catalog: SqlCatalog, options: dict[str, str], message: str
) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 3))
    before = listing(table)
    with pytest.raises(ice.InvalidArgumentError, match=message):
        ice.overwrite(table, ids(5, 6), **options)
    assert listing(table) == before
    assert ids_of(table) == [0, 1, 2]
