"""Rows deleted by tasks: the rows and the report of `icestream.delete`, one snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import GreaterThan
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import Table

import icestream as ice
import icestream.spark as ice_spark
from icestream.operations.write_parts import WorkerPart
from icestream.spark.tasks.file_shares import FileShare
from icestream.spark.writing import rewrite_job
from icestream.spark.writing.removal_task import RemovalWork
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import (
    BY_PART,
    batch,
    before_commits,
    ids_of,
    listing,
    make_table,
    rows_of,
    snapshots_of,
    summary_of,
)
from tests.support.merges import nothing_in_vain

_SPECS = [UNPARTITIONED_PARTITION_SPEC, BY_PART]
# What must not depend on who deletes.
_FACTS = (
    "operation",
    "already_committed",
    "rows_inserted",
    "rows_updated",
    "rows_unchanged",
    "rows_deleted",
    "files_removed",
    "delete_files_added",
    "commit_attempts",
    "memory_limit_bytes",
)


def filled(catalog: SqlCatalog, name: str = "db.t", **options: Any) -> Table:
    """A table of four files of ten rows, with nulls in `part`."""
    table = make_table(catalog, name, **options)
    for start in range(0, 40, 10):
        ice.append(
            table, batch([(n, None if n % 5 == 4 else start) for n in range(start, start + 10)])
        )
    return table


def same_facts(report: ice.WriteReport, expected: ice.WriteReport) -> None:
    for name in _FACTS:
        assert (name, getattr(report, name)) == (name, getattr(expected, name))


class _Failing(RemovalWork):
    """A task that fails after it has written its files."""

    def apply(self, share: FileShare, *, task: int, attempt: int) -> WorkerPart:
        part = RemovalWork.apply(self, share, task=task, attempt=attempt)
        assert part.written.files
        raise RuntimeError("no answers today")


def file_of(table: Table, row: int) -> str:
    """The path of the data file with an id."""
    rows = ice.scan(table, where=f"id = {row}", metadata_columns=["_file"]).to_reader().read_all()
    return str(rows["_file"][0])


@pytest.mark.parametrize("spec", _SPECS, ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_the_rows_and_the_report_are_those_of_a_delete_in_process(
    spark: Any, catalog: SqlCatalog, spec: PartitionSpec, mode: str
) -> None:
    ours, theirs = (
        filled(catalog, name, spec=spec, write__delete__mode=mode) for name in ("db.a", "db.b")
    )
    for table in (ours, theirs):
        commit_position_deletes(table, {file_of(table, 1): [0, 3], file_of(table, 31): [1]})
    before = len(snapshots_of(ours))
    where = "part >= 30 or id in (3, 5, 11)"
    report = ice_spark.delete(spark, ours, where, memory="64MB", properties={"a": "b"})
    expected = ice.delete(theirs, where, memory="64MB")
    same_facts(report, expected)
    assert report.rows_deleted > 3
    assert sorted(map(str, rows_of(ours))) == sorted(map(str, rows_of(theirs)))
    assert len(snapshots_of(ours)) == before + 1
    assert summary_of(ours)["a"] == "b"
    assert report.worker_peak_bytes > report.worker_base_bytes > 0
    assert nothing_in_vain(ours)


def test_rows_for_which_the_filter_is_null_stay(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog)
    report = ice_spark.delete(spark, "db.t", "part != 10", catalog=catalog)
    assert report.rows_deleted == 24
    left = rows_of(table.refresh())
    assert len(left) == 16
    assert {row[1] for row in left} == {None, 10}


def test_a_filter_without_matches_makes_no_snapshot(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog)
    before = listing(table)
    report = ice_spark.delete(spark, table, GreaterThan("id", 100))
    assert (report.snapshot_id, report.rows_deleted) == (None, 0)
    assert listing(table) == before


def test_a_second_delete_with_the_same_id_does_nothing(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog)
    first = ice_spark.delete(spark, table, "id < 3", load_id="once")
    ice.append(table, batch([(1, 1)]))
    again = ice_spark.delete(spark, table, "id < 3", load_id="once")
    assert (again.already_committed, again.snapshot_id) == (True, first.snapshot_id)
    assert again.rows_deleted == first.rows_deleted == 3
    assert 1 in ids_of(table)


@pytest.mark.parametrize("action", ["append", "delete"])
def test_a_delete_conflicts_with_changes_to_the_same_rows(
    spark: Any, catalog: SqlCatalog, action: str
) -> None:
    table = filled(catalog)
    theirs = catalog.load_table("db.t")
    actions: dict[str, Callable[[], object]] = {
        "append": lambda: ice.append(theirs, batch([(5, 0)])),
        "delete": lambda: ice.delete(theirs, "id = 7"),
    }
    with (
        pytest.raises(ice.CommitConflictError),
        before_commits(table.catalog, actions[action]),
    ):
        ice_spark.delete(spark, table, "id < 6")
    assert len(rows_of(table.refresh())) == (41 if action == "append" else 39)
    assert nothing_in_vain(table)
    assert not [name for name in listing(table) if "in-flight" in name]


def test_tasks_that_fail_leave_nothing(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    before = listing(table)
    monkeypatch.setattr(rewrite_job, "RemovalWork", _Failing)
    with pytest.raises(ice.TaskFailedError, match="no answers today"):
        ice_spark.delete(spark, table, "id < 5")
    assert listing(table) == before
    assert len(rows_of(table.refresh())) == 40


@pytest.mark.slow
def test_a_branch_gets_the_delete_and_no_other(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "test").commit()
    ice_spark.delete(spark, table, "id < 5", branch="test")
    assert len(rows_of(table.refresh())) == 40
    assert ice.scan(table, branch="test").to_reader().read_all().num_rows == 35


@pytest.mark.parametrize("spec", _SPECS, ids=["unpartitioned", "partitioned"])
def test_an_overwrite_of_matching_rows_rewrites_files_in_tasks(
    spark: Any, catalog: SqlCatalog, spec: PartitionSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (filled(catalog, name, spec=spec) for name in ("db.a", "db.b"))
    new = batch([(100, 5), (101, 30)])
    used: list[int] = []
    run = rewrite_job.RowWorkers.run
    monkeypatch.setattr(
        rewrite_job.RowWorkers,
        "run",
        lambda self, *more, **named: used.append(1) or run(self, *more, **named),
    )
    before = len(snapshots_of(ours))
    where = "id < 3 or part = 30"
    report = ice_spark.overwrite(spark.createDataFrame(new), ours, where=where, memory="64MB")
    expected = ice.overwrite(theirs, new, where=where, memory="64MB")
    same_facts(report, expected)
    assert used == [1]
    assert sorted(map(str, rows_of(ours))) == sorted(map(str, rows_of(theirs)))
    assert len(snapshots_of(ours)) == before + 1
    assert nothing_in_vain(ours)
    assert not [name for name in listing(ours) if "in-flight" in name]


def test_an_overwrite_whose_rewriting_tasks_fail_leaves_nothing(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    before = listing(table)
    frame = spark.createDataFrame(batch([(100, 5)]))
    monkeypatch.setattr(rewrite_job, "RemovalWork", _Failing)
    with pytest.raises(ice.TaskFailedError, match="no answers today"):
        ice_spark.overwrite(frame, table, where="id < 5")
    assert listing(table) == before
