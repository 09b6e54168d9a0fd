"""A table compacted by tasks: the same rows in fewer files, with the report of a local one."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec

import icestream as ice
import icestream.spark as ice_spark
from icestream.operations.write_parts import WorkerPart
from icestream.spark.tasks.file_shares import FileShare
from icestream.spark.writing import compact_job
from icestream.spark.writing.compact_job import _GroupWork
from tests.spark.test_delete import file_of, filled
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import BY_PART, before_commits, listing, rows_of, snapshots_of
from tests.support.merges import nothing_in_vain
from tests.support.tables import data_file_paths

_SPECS = [UNPARTITIONED_PARTITION_SPEC, BY_PART]
_DIFFERENT = ("table", "snapshot_ids", "seconds", "peak_bytes_held", "bytes_written")


class _Failing(_GroupWork):
    """A task that fails after it has written its files."""

    def apply(self, share: FileShare, *, task: int, attempt: int) -> WorkerPart:
        part = _GroupWork.apply(self, share, task=task, attempt=attempt)
        assert part.written.files
        raise RuntimeError("no answers today")


@pytest.mark.parametrize("spec", _SPECS, ids=["unpartitioned", "partitioned"])
def test_the_rows_and_the_report_are_those_of_a_compaction_in_process(
    spark: Any, catalog: SqlCatalog, spec: PartitionSpec
) -> None:
    ours, theirs = (filled(catalog, name, spec=spec) for name in ("db.a", "db.b"))
    for table in (ours, theirs):
        commit_position_deletes(table, {file_of(table, 1): [0, 3], file_of(table, 31): [1]})
    expected_rows = rows_of(ours)
    before = len(snapshots_of(ours))
    seen: list[ice.CompactReport] = []
    report = ice_spark.compact(spark, ours, memory="64MB", progress=seen.append)
    expected = ice.compact(theirs, memory="64MB")
    facts, theirs_facts = report.to_dict(), expected.to_dict()
    for name in _DIFFERENT:
        facts.pop(name)
        theirs_facts.pop(name)
    assert facts == theirs_facts
    assert report.rows_deleted == 3
    assert report.delete_files_removed > 0
    assert rows_of(ours) == expected_rows
    assert len(data_file_paths(ours)) == len(data_file_paths(theirs))
    assert len(snapshots_of(ours)) == before + 1 == before + len(report.snapshot_ids)
    assert [each.files_added for each in seen] == [0, report.files_added]
    assert report.peak_bytes_held > 0
    assert nothing_in_vain(ours)
    assert not [name for name in listing(ours) if "in-flight" in name]


def test_a_group_is_rewritten_by_several_tasks(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog)
    expected = rows_of(table)
    size = sum(task.file.file_size_in_bytes for task in table.scan().plan_files()) // 4
    report = ice_spark.compact(spark, "db.t", catalog=catalog, target_file_bytes=size * 2 // 3 * 3)
    assert (report.groups, report.files_removed) == (1, 4)
    assert report.files_added < 4
    assert rows_of(table.refresh()) == expected


def test_a_group_that_others_change_is_left(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog)
    theirs = catalog.load_table("db.t")
    with (
        pytest.raises(ice.CommitConflictError),
        before_commits(table.catalog, lambda: ice.delete(theirs, "id = 1")),
    ):
        ice_spark.compact(spark, table)
    assert len(rows_of(table.refresh())) == 39
    assert nothing_in_vain(table)


def test_tasks_that_fail_leave_nothing(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    before = listing(table)
    monkeypatch.setattr(compact_job, "_GroupWork", _Failing)
    with pytest.raises(ice.TaskFailedError, match="no answers today"):
        ice_spark.compact(spark, table)
    assert listing(table) == before


def test_a_table_without_small_files_stays(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog)
    ice_spark.compact(spark, table)
    before = snapshots_of(table)
    report = ice_spark.compact(spark, table)
    assert (report.snapshot_ids, report.groups) == ((), 0)
    assert snapshots_of(table) == before
