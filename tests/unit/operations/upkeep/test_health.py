"""Health: a table's figures, and advice that fits them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import Table

import icestream as ice
from tests.support.delete_files import (
    commit_deletion_vectors,
    commit_equality_deletes,
    commit_position_deletes,
)
from tests.support.stored import leave_a_write
from tests.support.tables import append_arrow, create_v3_table, data_file_paths, data_files

_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


def _append(table: Table, first: int, *parts: str | None) -> None:
    named = parts or ("a",)
    rows = {"id": range(first, first + 10 * len(named)), "part": list(named * 10)}
    ice.append(table, pa.table(rows, schema=_SCHEMA))


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """Five small files."""
    table = catalog.create_table("db.t", _SCHEMA)
    for n in range(5):
        _append(table, 10 * n)
    return table.refresh()


def _partitioned(catalog: SqlCatalog) -> Table:
    table = catalog.create_table("db.p", _SCHEMA)
    with table.update_spec() as update:
        update.add_identity("part")
    return table


def _advised(report: ice.HealthReport, words: str) -> bool:
    return any(words in sentence for sentence in report.advice)


def test_files_rows_and_bytes_are_the_tables(table: Table) -> None:
    report = ice.health(table)
    sizes = [file.file_size_in_bytes for file in data_files(table)]
    assert (report.files, report.rows, report.bytes) == (5, 50, sum(sizes))
    assert (report.table, report.branch, report.format_version) == ("db.t", "main", 2)
    head = table.current_snapshot()
    assert head is not None
    assert report.snapshot_id == head.snapshot_id
    assert (report.partitions, report.skew) == (1, 1.0)
    assert report.largest_partitions == (ice.PartitionHealth("", 0, 5, 5, 50, sum(sizes)),)


def test_small_files_are_counted_and_compaction_is_advised(table: Table) -> None:
    report = ice.health(table)
    assert (report.target_file_bytes, report.small_below_bytes) == (512 << 20, 384 << 20)
    assert (report.small_files, report.compactable_files) == (5, 5)
    assert report.advice == (
        "5 files are smaller than 402.7 MB, three quarters of the target size, and could be "
        "merged into fewer files: run ice.compact(table)",
    )
    ice.compact(table)
    report = ice.health(table)
    assert (report.files, report.small_files, report.compactable_files) == (1, 1, 0)
    assert report.advice == ()


@pytest.mark.parametrize("target_share", [0.3, 0.7, 1.1, 1.3, 1.6, 2.5, 6.0])
def test_what_is_advised_is_what_compaction_does(table: Table, target_share: float) -> None:
    size = max(file.file_size_in_bytes for file in data_files(table))
    with table.transaction() as transaction:
        target = str(int(size * target_share))
        transaction.set_properties({"write.target-file-size-bytes": target})
    expected = ice.health(table).compactable_files
    with mock.patch(
        "icestream.operations.upkeep.compact._Compaction._is_no_gain", return_value=False
    ):
        assert ice.compact(table).files_removed == expected


def test_the_histogram_has_every_file_once(table: Table) -> None:
    sizes = sorted(file.file_size_in_bytes for file in data_files(table))
    with table.transaction() as transaction:
        transaction.set_properties({"write.target-file-size-bytes": str(sizes[-1])})
    report = ice.health(table)
    assert [bucket.below_bytes for bucket in report.file_sizes] == [
        *(int(sizes[-1] * share) for share in (1 / 64, 1 / 16, 1 / 4, 3 / 4, 5 / 4, 2)),
        None,
    ]
    assert [bucket.files for bucket in report.file_sizes] == [0, 0, 0, 0, 5, 0, 0]
    assert sum(bucket.bytes for bucket in report.file_sizes) == sum(sizes)
    assert report.small_files == 0


def test_an_empty_table_needs_nothing(catalog: SqlCatalog) -> None:
    report = ice.health(catalog.create_table("db.empty", _SCHEMA))
    assert (report.files, report.partitions, report.snapshots, report.manifests) == (0, 0, 0, 0)
    assert (report.snapshot_id, report.oldest_snapshot_ms) == (None, None)
    assert report.advice == ()


def test_position_deletes_are_counted(table: Table) -> None:
    paths = data_file_paths(table)
    commit_position_deletes(table, {paths[0]: [1, 2], paths[1]: [3]})
    report = ice.health(table)
    assert (report.delete_files, report.position_deletes, report.equality_deletes) == (2, 3, 0)
    assert report.delete_ratio == pytest.approx(3 / 50)
    assert report.delete_bytes > 0
    assert _advised(report, "2 delete files, which mark 6.0% of the rows")
    ice.compact(table)
    assert ice.health(table).delete_files == 0


def test_few_deletes_need_nothing(table: Table) -> None:
    commit_position_deletes(table, {data_file_paths(table)[0]: [1]})
    assert not _advised(ice.health(table), "delete files")


def test_equality_deletes_are_told_though_they_cannot_be_read(table: Table) -> None:
    commit_equality_deletes(table, ["id"], [{"id": 5}, {"id": 6}])
    report = ice.health(table)
    assert (report.delete_files, report.equality_deletes) == (1, 2)
    assert _advised(report, "equality deletes")


def test_deletion_vectors_are_counted(catalog: SqlCatalog) -> None:
    table = create_v3_table(catalog, "db.v3", _SCHEMA)
    append_arrow(table, pa.table({"id": range(10), "part": ["a"] * 10}, schema=_SCHEMA))
    commit_deletion_vectors(table, {data_file_paths(table)[0]: [1, 2, 3]})
    report = ice.health(table)
    assert (report.format_version, report.delete_files, report.position_deletes) == (3, 1, 3)


def test_partitions_are_counted_and_the_largest_named(catalog: SqlCatalog) -> None:
    table = _partitioned(catalog)
    _append(table, 0, "a", "b c", None)
    _append(table, 100, *(["a"] * 50))
    report = ice.health(table)
    assert report.partitions == 3
    assert next(p.partition for p in report.largest_partitions) == "part=a"
    assert {p.partition for p in report.largest_partitions} == {"part=a", "part=b+c", "part=null"}
    largest = report.largest_partitions[0]
    assert (largest.files, largest.small_files, largest.rows) == (2, 2, 510)
    assert report.skew > 1
    assert (report.small_files, report.compactable_files) == (4, 2)


def test_partitions_are_named_though_manifests_without_files_come_before(
    catalog: SqlCatalog,
) -> None:
    table = _partitioned(catalog)
    for n in range(3):
        _append(table, 100 * n, "a", "b")
    ice.delete(table, "part = 'a'")  # manifests that say no more than what was removed
    _append(table, 500, "c", "c", "c")
    report = ice.health(table, memory="1MB")
    assert report.manifests > 2
    named = {each.partition: each.rows for each in report.largest_partitions}
    assert named == {"part=b": 30, "part=c": 30}


@pytest.mark.parametrize("memory", ["64MB", "20kB"])
def test_many_partitions_are_counted_inside_the_limit(catalog: SqlCatalog, memory: str) -> None:
    table = catalog.create_table("db.many", pa.schema([("p", pa.int64())]))
    with table.update_spec() as update:
        update.add_identity("p")
    ice.append(table, pa.table({"p": [*range(-200, 200), *[-1] * 1000]}))
    ice.append(table, pa.table({"p": range(-200, 100)}))
    report = ice.health(table, memory=memory)
    assert (report.partitions, report.files, report.rows) == (400, 700, 1700)
    assert report.largest_partitions[0].partition == "p=-1"
    assert report.largest_partitions[0].rows == 1002


def test_files_of_older_specs_are_compactable_together(catalog: SqlCatalog) -> None:
    table = _partitioned(catalog)
    _append(table, 0, "a", "b")
    assert ice.health(table).compactable_files == 0
    with table.update_spec() as update:
        update.remove_field("part")
    report = ice.health(table)
    assert (report.partitions, report.compactable_files) == (2, 2)
    assert ice.compact(table).files_removed == 2


def test_snapshots_branches_and_tags_are_told(table: Table) -> None:
    first, *_, last = table.snapshots()
    with table.manage_snapshots() as snapshots:
        snapshots.create_branch(first.snapshot_id, "side").create_tag(first.snapshot_id, "then")
    report = ice.health(table)
    assert report.snapshots == 5
    assert report.oldest_snapshot_ms == first.timestamp_ms
    assert report.newest_snapshot_ms == last.timestamp_ms
    assert (report.branches, report.tags) == (("main", "side"), ("then",))
    side = ice.health(table, branch="side")
    assert (side.branch, side.files, side.snapshot_id) == ("side", 1, first.snapshot_id)


def test_manifests_and_metadata_are_measured(table: Table) -> None:
    report = ice.health(table)
    manifests = table.snapshots()[-1].manifests(table.io)
    assert report.manifests == len(manifests) == 5
    assert report.manifest_bytes == sum(
        Path(m.manifest_path.removeprefix("file://")).stat().st_size for m in manifests
    )
    current = Path(table.metadata_location.removeprefix("file://"))
    assert report.metadata_bytes == current.stat().st_size


def test_writes_in_flight_are_counted_and_dead_ones_told(table: Table) -> None:
    leave_a_write(table, age_seconds=10)
    report = ice.health(table)
    assert (report.writes_in_flight, report.writes_dead) == (1, 0)
    leave_a_write(table, age_seconds=2 * 3600)
    leave_a_write(table, age_seconds=2 * 3600, marker_age_seconds=0, pid=os.getpid())
    report = ice.health(table)
    assert (report.writes_in_flight, report.writes_dead) == (3, 1)
    assert _advised(report, "1 write probably died")


def test_only_metadata_is_read(table: Table) -> None:
    for file in data_files(table):
        Path(file.file_path.removeprefix("file://")).unlink()
    assert ice.health(table).files == 5


def test_a_missing_manifest_is_an_error(table: Table) -> None:
    manifest = table.snapshots()[-1].manifests(table.io)[0].manifest_path
    Path(manifest.removeprefix("file://")).unlink()
    with pytest.raises(ice.FileMissingError, match="does not exist"):
        ice.health(table)


def test_an_unknown_branch_is_refused(table: Table) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="nowhere"):
        ice.health(table, branch="nowhere")


def test_something_that_is_no_table_is_refused() -> None:
    with pytest.raises(ice.InvalidArgumentError, match="PyIceberg Table"):
        ice.health(7)  # type: ignore[arg-type]


def test_the_report_is_plain_data(table: Table) -> None:
    report = json.loads(json.dumps(ice.health(table).to_dict()))
    assert report["files"] == 5
    assert report["file_sizes"][0] == {"below_bytes": 8 << 20, "files": 5, "bytes": report["bytes"]}


def test_a_store_that_does_not_answer_is_asked_again_and_an_error_in_the_end(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    size, left = PyArrowFile.__len__, [2]

    def asked(self: PyArrowFile) -> int:
        left[0] -= 1
        if left[0] >= 0:
            raise TimeoutError("no answer")
        return size(self)

    monkeypatch.setattr(PyArrowFile, "__len__", asked)
    assert ice.health(table).metadata_bytes > 0
    left[0] = 100
    with pytest.raises(ice.TransientReadError, match=r"metadata\.json"):
        ice.health(table)
