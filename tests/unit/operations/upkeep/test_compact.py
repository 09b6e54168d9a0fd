"""Compaction: fewer files, the same rows, in the same order."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import IdentityTransform

import icestream as ice
from icestream.operations.live_files import LiveFiles
from icestream.write.parquet.parquet_writer import ParquetFileWriter
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import add_orc_file, add_parquet_file, data_files, upgrade_to_v3

_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.float64())])


def _rows(ids: Iterable[int], parts: int = 3) -> pa.Table:
    numbers = np.fromiter(ids, dtype=np.int64)
    random = np.random.default_rng(int(numbers[0]))
    columns = {
        "id": numbers,
        "part": [f"p{n % parts}" for n in numbers],
        "value": random.random(len(numbers)),
    }
    return pa.table(columns, schema=_SCHEMA)


def _small_files(catalog: SqlCatalog, count: int = 6, *, rows: int = 100) -> Table:
    table = catalog.create_table("db.t", _SCHEMA)
    for n in range(count):
        ice.append(table, _rows(range(n * rows, (n + 1) * rows)))
    return table.refresh()


def _partitioned(catalog: SqlCatalog, count: int = 4) -> Table:
    table = catalog.create_table("db.t", _SCHEMA)
    with table.update_spec() as update:
        update.add_identity("part")
    for n in range(count):
        ice.append(table, _rows(range(n * 30, (n + 1) * 30)))
    return table.refresh()


def _contents(table: Table) -> list[dict[str, object]]:
    return sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def _sizes(table: Table) -> list[int]:
    return [file.file_size_in_bytes for file in data_files(table.refresh())]


def _read(file: DataFile) -> pa.Table:
    return pq.read_table(file.file_path.removeprefix("file://"), partitioning=None)


def test_small_files_become_one_by_one_replace_snapshot(catalog: SqlCatalog) -> None:
    table = _small_files(catalog)
    before = _contents(table)
    snapshots = len(table.snapshots())
    report = ice.compact(table, properties={"run": "nightly"})
    assert (report.files_removed, report.files_added) == (6, 1)
    assert (report.rows_rewritten, report.rows_deleted) == (600, 0)
    assert _contents(table) == before
    assert len(data_files(table)) == 1
    assert len(table.snapshots()) == snapshots + 1
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert report.snapshot_ids == (head.snapshot_id,)
    assert head.summary.operation == Operation.REPLACE
    assert head.summary["run"] == "nightly"
    assert head.summary["total-records"] == "600"
    assert head.summary["total-data-files"] == "1"
    assert head.summary["deleted-data-files"] == "6"


def test_compacting_again_does_nothing(catalog: SqlCatalog) -> None:
    table = _small_files(catalog)
    ice.compact(table)
    before = table.refresh().metadata_location
    report = ice.compact(table)
    assert (report.groups, report.snapshot_ids, report.files_added) == (0, (), 0)
    assert table.refresh().metadata_location == before


def test_a_single_small_file_is_left_alone(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 1)
    assert ice.compact(table).snapshot_ids == ()


def test_an_empty_table_is_left_alone(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", _SCHEMA)
    report = ice.compact(table)
    assert (report.groups, report.snapshot_ids) == (0, ())


def test_fewer_small_files_than_min_files_are_left_alone(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 4)
    assert ice.compact(table, min_files=5).snapshot_ids == ()
    assert ice.compact(table, min_files=4).files_removed == 4


def test_files_come_out_near_the_target_and_large_ones_are_left_alone(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 20, rows=5_000)
    target = 5 * max(_sizes(table))
    ice.append(table, _rows(range(10**6, 10**6 + 40_000)))
    large = max(data_files(table.refresh()), key=lambda file: file.file_size_in_bytes)
    before = _contents(table)
    report = ice.compact(table, target_file_bytes=target)
    assert large.file_path in {file.file_path for file in data_files(table.refresh())}
    assert report.files_removed == 20
    written = sorted(set(_sizes(table)) - {large.file_size_in_bytes})
    assert all(0.85 * target <= size <= 1.15 * target for size in written[1:])
    assert len(written) in (4, 5)
    assert _contents(table) == before
    assert ice.compact(table, target_file_bytes=target).snapshot_ids == ()


def test_two_files_that_would_be_two_again_are_left_alone(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 2, rows=5_000)
    target = int(1.4 * max(_sizes(table)))
    report = ice.compact(table, target_file_bytes=target)
    assert (report.groups, report.snapshot_ids) == (0, ())


def test_files_that_come_out_no_fewer_than_before_are_dropped(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", _SCHEMA)
    for _ in range(4):  # they shrink to almost nothing, until they are not compressed any more
        ice.append(table, pa.table({"value": [0.5] * 1_000, "part": ["a" * 100] * 1_000}))
    target = 2 * max(_sizes(table))
    with table.transaction() as transaction:
        properties = {"write.parquet.compression-codec": "uncompressed"}
        properties["write.parquet.dict-size-bytes"] = "1"
        transaction.set_properties(properties)
    before = table.refresh().metadata_location
    report = ice.compact(table, target_file_bytes=target)
    assert (report.groups, report.snapshot_ids, report.files_added) == (1, (), 0)
    assert table.refresh().metadata_location == before
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_the_target_may_be_written_with_a_unit(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 3)
    assert ice.compact(table, target_file_bytes="1kB").snapshot_ids == ()
    assert ice.compact(table, target_file_bytes="1MB").files_added == 1


def test_large_work_is_cut_into_groups_of_about_ten_target_files(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 30, rows=2_000)
    before = _contents(table)
    target = 2 * max(_sizes(table))
    report = ice.compact(table, target_file_bytes=target)
    assert report.groups == len(report.snapshot_ids) == 2
    assert report.files_removed == 30
    assert report.files_added <= 17
    assert _contents(table) == before


def test_rows_of_unsorted_tables_keep_their_order(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 8, rows=50_000)
    with table.transaction() as transaction:
        transaction.set_properties({"write.parquet.row-group-limit": "5000"})
    before = [i for batch in ice.scan(table) for i in batch["id"].to_pylist()]
    write, read = ParquetFileWriter.write_row_group, LiveFiles.rows

    def slow_write(writer: ParquetFileWriter, batches: Sequence[pa.RecordBatch]) -> None:
        time.sleep(0.01)  # rows wait, and would go to a second file if that were allowed
        write(writer, batches)

    def slow_read(live: LiveFiles, tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
        for batch in read(live, tasks):
            for start in range(0, batch.num_rows, 10_000):
                time.sleep(0.005)
                yield batch.slice(start, 10_000)

    with (
        mock.patch.object(ParquetFileWriter, "write_row_group", slow_write),
        mock.patch.object(LiveFiles, "rows", slow_read),
    ):
        ice.compact(table, target_file_bytes=2 * max(_sizes(table)))
    files = sorted(data_files(table.refresh()), key=lambda file: file.file_path)
    assert len(files) > 1
    after = [i for file in files for i in _read(file)["id"].to_pylist()]
    assert after == before


def test_rows_of_sorted_tables_are_sorted_again(catalog: SqlCatalog) -> None:
    table = _small_files(catalog)
    with table.update_sort_order() as update:
        update.desc("value", IdentityTransform(), NullOrder.NULLS_LAST)
    ice.compact(table)
    (file,) = data_files(table.refresh())
    assert file.sort_order_id == table.sort_order().order_id
    values = _read(file)["value"]
    assert values.to_pylist() == sorted(values.to_pylist(), reverse=True)
    assert len(values) == 600


def test_partitions_are_compacted_each_by_itself_in_one_snapshot(catalog: SqlCatalog) -> None:
    table = _partitioned(catalog)
    before = _contents(table)
    assert len(data_files(table)) == 12
    report = ice.compact(table)
    assert (report.files_removed, report.files_added, len(report.snapshot_ids)) == (12, 3, 1)
    partitions = sorted(file.partition[0] for file in data_files(table.refresh()))
    assert partitions == ["p0", "p1", "p2"]
    assert _contents(table) == before


def test_a_partition_with_one_small_file_is_left_alone(catalog: SqlCatalog) -> None:
    table = _partitioned(catalog)
    ice.append(table, pa.table({"id": [-1], "part": ["alone"], "value": [0.0]}, schema=_SCHEMA))
    report = ice.compact(table)
    assert report.files_removed == 12
    assert sorted(f.partition[0] for f in data_files(table.refresh())) == [
        "alone",
        "p0",
        "p1",
        "p2",
    ]


def test_a_filter_chooses_the_files_that_are_rewritten(catalog: SqlCatalog) -> None:
    table = _partitioned(catalog)
    before = _contents(table)
    report = ice.compact(table, where="part = 'p1' and id > 1")
    assert (report.files_removed, report.files_added) == (4, 1)
    assert len(data_files(table.refresh())) == 9
    assert _contents(table) == before


def test_null_partitions_and_filters_with_or_go_together(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", _SCHEMA)
    with table.update_spec() as update:
        update.add_identity("part")
    for n in range(3):
        rows = {"id": [n, -n], "part": [None, "a"], "value": [None, 1.0]}
        ice.append(table, pa.table(rows, schema=_SCHEMA))
    before = pc.sum(table.refresh().scan().to_arrow()["id"])
    report = ice.compact(table, where="part > 'b' or part is null")
    assert (report.files_removed, report.files_added) == (3, 1)
    assert pc.sum(table.refresh().scan().to_arrow()["id"]) == before


def test_files_of_an_older_spec_are_written_under_the_current_one(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 4)
    with table.update_spec() as update:
        update.add_identity("part")
    ice.append(table, _rows(range(1_000, 1_030)))
    before = _contents(table)
    report = ice.compact(table)
    assert report.files_removed == 4
    files = data_files(table.refresh())
    assert {file.spec_id for file in files} == {table.spec().spec_id}
    assert _contents(table) == before
    assert table.scan("part = 'p1'").to_arrow().num_rows == sum(
        1 for row in before if row["part"] == "p1"
    )
    ice.compact(table)
    assert len(data_files(table.refresh())) == 3
    assert _contents(table) == before


def test_evolved_schemas_are_written_with_the_current_one(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 2)
    with table.update_schema() as update:
        update.rename_column("value", "amount")
        update.delete_column("part")
        update.add_column("added", table.schema().find_type("id"))
    report = ice.compact(table)
    assert report.files_added == 1
    (file,) = data_files(table.refresh())
    assert _read(file).column_names == ["id", "amount", "added"]
    assert len(_contents(table)) == 200


def test_orc_files_and_files_without_partition_columns_become_parquet(
    catalog: SqlCatalog,
) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    schema = catalog.create_table("db.x", _SCHEMA).schema()
    table = catalog.create_table("db.t", schema, partition_spec=spec)
    rows = _rows(range(10), parts=1)
    add_orc_file(table, rows)
    add_parquet_file(table, rows.drop_columns(["part"]), partition={"part": "p0"})
    before = _contents(table)
    report = ice.compact(table)
    assert (report.files_removed, report.files_added) == (2, 1)
    assert _contents(table) == before
    (file,) = data_files(table.refresh())
    assert file.file_format.value == "PARQUET"
    assert _read(file)["part"].to_pylist() == ["p0"] * 20


def test_a_branch_is_compacted_and_main_is_not(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 3)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "side").commit()
    report = ice.compact(table, branch="side")
    assert report.branch == "side"
    assert len(data_files(table.refresh())) == 3
    assert table.metadata.refs["side"].snapshot_id == report.snapshot_ids[0]
    rows = sum(batch.num_rows for batch in ice.scan(table, branch="side"))
    assert rows == 300


def test_files_before_the_compaction_are_still_there_for_older_snapshots(
    catalog: SqlCatalog,
) -> None:
    table = _small_files(catalog, 3)
    head = table.current_snapshot()
    assert head is not None
    ice.compact(table)
    assert table.refresh().scan(snapshot_id=head.snapshot_id).to_arrow().num_rows == 300
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_memory_is_shared_by_reading_and_writing(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 6, rows=20_000)
    report = ice.compact(table, memory="16MB")
    assert report.memory_limit_bytes == 16_000_000
    assert 0 < report.peak_bytes_held <= 16_000_000


def test_what_is_held_is_seen_in_the_budget_that_was_passed(catalog: SqlCatalog) -> None:
    budget = ice.MemoryBudget("64MB")
    ice.compact(_small_files(catalog), memory=budget)
    assert 0 < budget.peak_bytes <= 64_000_000
    assert budget.held_bytes == 0


def test_progress_is_told_before_the_first_group_and_after_each(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 24, rows=1000)
    target = 2 * max(_sizes(table))
    seen: list[ice.CompactReport] = []
    report = ice.compact(table, target_file_bytes=target, progress=seen.append)
    assert report.groups > 1
    assert len(seen) == report.groups + 1
    assert {each.groups for each in seen} == {report.groups}
    assert [len(each.snapshot_ids) for each in seen] == list(range(report.groups + 1))
    assert seen[-1].rows_rewritten == report.rows_rewritten


def test_too_little_memory_is_an_error_that_leaves_nothing(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 3)
    with pytest.raises(ice.MemoryBudgetError):
        ice.compact(table, memory=1_000)
    assert stored_files(folder_of(table)) == referenced_files(table)


def test_a_file_that_cannot_be_read_stops_it_and_leaves_nothing(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 3)
    broken = Path(data_files(table)[1].file_path.removeprefix("file://"))
    broken.write_bytes(b"broken")
    before = stored_files(folder_of(table))
    with pytest.raises(ice.ReadError):
        ice.compact(table)
    assert stored_files(folder_of(table)) == before


def test_a_file_with_fewer_rows_than_the_metadata_says_is_not_replaced(
    catalog: SqlCatalog,
) -> None:
    table = _small_files(catalog, 3)
    short = Path(data_files(table)[1].file_path.removeprefix("file://"))
    contents = pq.read_table(short)
    pq.write_table(contents.slice(0, 99), short)
    before = stored_files(folder_of(table))
    with pytest.raises(ice.CorruptFileError, match="hold 300 rows, but reading them gave 299"):
        ice.compact(table)
    assert stored_files(folder_of(table)) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_files": 0}, "min_files"),
        ({"min_files": "2"}, "min_files"),
        ({"target_file_bytes": 0}, "target_file_bytes"),
        ({"target_file_bytes": "big"}, "target_file_bytes"),
        ({"branch": "nowhere"}, "no branch"),
        ({"where": "nothing = 1"}, "nothing"),
        ({"properties": {"a": 1}}, "strings"),
        ({"memory": "none"}, "memory"),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(
    catalog: SqlCatalog, options: dict[str, object], message: str
) -> None:
    table = _small_files(catalog, 2)
    with pytest.raises(ice.InvalidArgumentError, match=message):
        ice.compact(table, **options)  # type: ignore[arg-type]


def test_a_transaction_is_refused(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 2)
    with pytest.raises(ice.InvalidArgumentError, match="transaction"):
        ice.compact(table.transaction())  # type: ignore[arg-type]


def test_tables_of_version_3_are_refused(catalog: SqlCatalog) -> None:
    table = _small_files(catalog, 2)
    upgrade_to_v3(table)
    with pytest.raises(ice.UnsupportedFeatureError, match="version 3"):
        ice.compact(table)


def test_the_report_is_plain_data(catalog: SqlCatalog) -> None:
    report = json.loads(json.dumps(ice.compact(_small_files(catalog, 2)).to_dict()))
    assert report["files_added"] == 1
