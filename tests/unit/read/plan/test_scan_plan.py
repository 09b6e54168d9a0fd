"""What is read: which snapshot and schema, which files, and what a DataScan brings along."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, EqualTo, GreaterThan, LessThan, Or
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import icestream as ice
from tests.support.delete_files import commit_position_deletes
from tests.support.scans import as_text, ids_of, rows_of
from tests.support.tables import (
    EVOLUTIONS,
    PARTITIONINGS,
    add_avro_data_file,
    add_orc_file,
    add_parquet_file,
    all_types_rows,
    all_types_schema,
    commit_files,
    data_file_paths,
    write_parquet_file,
)
from tests.support.v3_tables import replace_metadata

_ORDERS = [ice.TaskOrder(), ice.ArrivalOrder(concurrent_streams=4)]
orders = pytest.mark.parametrize("order", _ORDERS, ids=["task", "arrival"])


@dataclasses.dataclass(frozen=True)
class _History:
    """A table whose column was renamed and another added between two snapshots."""

    table: Table
    first: int
    second: int


@pytest.fixture
def history(catalog: Catalog) -> _History:
    table = catalog.create_table(
        "db.history", Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    )
    add_parquet_file(table, pa.table({"id": [0, 1], "name": ["a", "b"]}))
    first = _snapshot_id(table)
    with table.update_schema() as update:
        update.rename_column("name", "title")
        update.add_column("size", LongType())
    add_parquet_file(table, pa.table({"id": [2], "title": ["c"], "size": [7]}))
    table.manage_snapshots().create_tag(first, "released").create_branch(first, "old").commit()
    return _History(table, first, _snapshot_id(table))


def _snapshot_id(table: Table) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


_AS_WRITTEN = [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}]
_AS_NOW = [{"id": 0, "title": "a", "size": None}, {"id": 1, "title": "b", "size": None}]


def _sorted(scan: ice.Scan) -> list[dict[str, Any]]:
    return sorted(rows_of(scan), key=lambda row: row["id"])


# Which snapshot, with which schema


def test_the_current_snapshot_is_read_with_the_current_schema(history: _History) -> None:
    assert _sorted(ice.scan(history.table)) == [*_AS_NOW, {"id": 2, "title": "c", "size": 7}]


@pytest.mark.parametrize("as_of", [False, True])
def test_a_snapshot_is_read_with_the_schema_it_was_written_with(
    history: _History, as_of: bool
) -> None:
    if as_of:
        then = history.table.snapshot_by_id(history.first)
        assert then is not None
        scan = ice.scan(history.table, as_of=then.timestamp_ms)
    else:
        scan = ice.scan(history.table, snapshot_id=history.first)
    assert scan.schema.names == ["id", "name"]
    assert _sorted(scan) == _AS_WRITTEN


def test_a_tag_is_read_with_the_schema_of_its_snapshot(history: _History) -> None:
    assert _sorted(ice.scan(history.table, tag="released")) == _AS_WRITTEN


def test_a_branch_is_read_with_the_tables_current_schema(history: _History) -> None:
    assert _sorted(ice.scan(history.table, branch="old")) == _AS_NOW
    assert len(_sorted(ice.scan(history.table, branch="main"))) == 3


@pytest.mark.parametrize("ref", ["old", "released"])
def test_use_ref_of_a_data_scan_takes_the_snapshots_schema(history: _History, ref: str) -> None:
    assert _sorted(ice.scan(history.table.scan().use_ref(ref))) == _AS_WRITTEN


def test_a_data_scan_of_a_snapshot_is_read_with_its_schema(history: _History) -> None:
    scan = history.table.scan(snapshot_id=history.first, selected_fields=("name",))
    assert rows_of(ice.scan(scan)) == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize("partitioned", [False, True])
def test_time_travel_filters_by_the_names_of_that_time(catalog: Catalog, partitioned: bool) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    properties = {"partition_spec": spec} if partitioned else {}
    table = catalog.create_table("db.renamed", schema, **properties)
    for number, name in enumerate(["a", "b", "c"]):
        add_parquet_file(table, pa.table({"id": [number], "name": [name]}))
    then = _snapshot_id(table)
    table.manage_snapshots().create_branch(then, "old").commit()
    with table.update_schema() as update:
        update.rename_column("name", "title")
    add_parquet_file(table, pa.table({"id": [3], "title": ["b"]}))
    assert _sorted(ice.scan(table, snapshot_id=then, where="name = 'b'")) == [
        {"id": 1, "name": "b"}
    ]
    assert ids_of(ice.scan(table, snapshot_id=then, where="name >= 'b'", columns=["id"])) == [2, 1]
    assert ids_of(ice.scan(table, branch="old", where="title = 'b'")) == [1]
    assert sorted(ids_of(ice.scan(table, where="title = 'b'"))) == [1, 3]
    with pytest.raises(ice.UnknownColumnError, match="title"):
        ice.scan(table, snapshot_id=then, where="title = 'b'")
    with pytest.raises(ice.UnknownColumnError, match="name"):
        ice.scan(table, branch="old", where="name = 'b'")


def test_a_partition_column_that_was_dropped_does_not_disturb(catalog: Catalog) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
    table = catalog.create_table("db.dropped", schema, partition_spec=spec)
    for number, name in enumerate(["a", "b", None]):
        rows = pa.table({"id": [number], "p": pa.array([name], pa.string())})
        add_parquet_file(table, rows)
    then = _snapshot_id(table)
    with table.update_spec() as update:
        update.remove_field("p")
    with table.update_schema() as update:
        update.delete_column("p")
    add_parquet_file(table, pa.table({"id": [3]}))
    assert _sorted(ice.scan(table)) == [{"id": n} for n in range(4)]
    assert sorted(ids_of(ice.scan(table, where="id >= 1"))) == [1, 2, 3]
    assert ids_of(ice.scan(table, snapshot_id=then, where="p = 'b'")) == [1]
    assert [row["p"] for row in _sorted(ice.scan(table, snapshot_id=then))] == ["a", "b", None]


def test_as_of_takes_the_last_snapshot_that_is_not_later(history: _History) -> None:
    table = history.table
    first, second = (table.snapshot_by_id(i) for i in (history.first, history.second))
    assert first is not None
    assert second is not None
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moments = {
        first.timestamp_ms: 2,
        second.timestamp_ms - 1: 2,
        second.timestamp_ms: 3,
        second.timestamp_ms + 10**9: 3,
    }
    for millis, rows in moments.items():
        aware = epoch + timedelta(milliseconds=millis)
        for as_of in (
            millis,
            aware,
            aware.replace(tzinfo=None),
            aware.astimezone(timezone(timedelta(hours=-7))),
        ):
            assert len(rows_of(ice.scan(table, as_of=as_of))) == rows, as_of
    with pytest.raises(ice.InvalidArgumentError, match="no snapshot as old as"):
        ice.scan(table, as_of=first.timestamp_ms - 1)


def test_as_of_takes_the_later_of_two_snapshots_in_one_millisecond(history: _History) -> None:
    _set_log_times(history.table, [1_700_000_000_000, 1_700_000_000_000])
    assert len(rows_of(ice.scan(history.table, as_of=1_700_000_000_000))) == 3


def test_as_of_follows_a_rollback(history: _History) -> None:
    table = history.table
    table.manage_snapshots().rollback_to_snapshot(history.first).commit()
    table.refresh()
    assert len(table.history()) == 3
    after = table.history()[-1].timestamp_ms
    assert len(rows_of(ice.scan(table, as_of=after + 1))) == 2
    assert len(rows_of(ice.scan(table))) == 2


def test_as_of_a_snapshot_that_has_expired_is_an_error(history: _History) -> None:
    log = [{"snapshot-id": 12345, "timestamp-ms": 1_600_000_000_000}]
    log += [e.model_dump(by_alias=True) for e in history.table.metadata.snapshot_log]
    replace_metadata(history.table, **{"snapshot-log": log})
    with pytest.raises(ice.InvalidArgumentError, match="no snapshot 12345"):
        ice.scan(history.table, as_of=1_600_000_000_000)


def _set_log_times(table: Table, times: list[int]) -> None:
    log = [entry.model_dump(by_alias=True) for entry in table.metadata.snapshot_log]
    for entry, time in zip(log, times, strict=True):
        entry["timestamp-ms"] = time
    replace_metadata(table, **{"snapshot-log": log})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"snapshot_id": 5}, "no snapshot 5"),
        ({"branch": "none"}, "no branch 'none': it has main, old"),
        ({"branch": "released"}, "no branch 'released'"),
        ({"tag": "old"}, "no tag 'old': it has released"),
        ({"tag": "released", "branch": "old"}, "give one of branch, tag"),
        ({"snapshot_id": 5, "as_of": 7}, "give one of snapshot_id, as_of"),
        ({"as_of": "yesterday"}, "as_of is 'yesterday'"),
        ({"as_of": True}, "as_of is True"),
        ({"as_of": 1.5}, r"as_of is 1\.5"),
    ],
)
def test_an_unknown_or_ambiguous_snapshot_is_refused(
    history: _History, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match=message):
        ice.scan(history.table, **arguments)


def test_a_data_scan_that_names_its_snapshot_takes_no_other(history: _History) -> None:
    scan = history.table.scan(snapshot_id=history.first)
    with pytest.raises(ice.InvalidArgumentError, match="leave tag out"):
        ice.scan(scan, tag="released")
    missing = history.table.scan(snapshot_id=5)
    with pytest.raises(ice.InvalidArgumentError, match="no snapshot 5"):
        ice.scan(missing)


def test_a_table_without_a_snapshot_is_empty(catalog: Catalog) -> None:
    table = catalog.create_table("db.empty", Schema(NestedField(1, "id", LongType())))
    assert list(ice.scan(table, where="id > 3", limit=5)) == []
    assert ice.scan(table).splits() == []
    assert ice.scan(table).explain().snapshot_id is None


def test_a_scan_keeps_to_its_snapshot_while_the_table_moves_on(history: _History) -> None:
    scan = ice.scan(history.table)
    fresh = history.table.catalog.load_table("db.history")
    add_parquet_file(fresh, pa.table({"id": [3], "title": ["d"], "size": [8]}))
    assert len(rows_of(scan)) == 3
    assert len(rows_of(ice.scan(fresh))) == 4


@pytest.mark.parametrize("version", ["1", "2"])
def test_tables_of_older_format_versions_are_read(catalog: Catalog, version: str) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog.create_table(
        "db.old", schema, partition_spec=spec, properties={"format-version": version}
    )
    table.append(pa.table({"id": [0, 1, 2], "p": ["a", "b", None]}))
    with table.update_spec() as update:
        update.remove_field("p")  # in version 1 a void field stays behind
    table.append(pa.table({"id": [3], "p": ["b"]}))
    assert table.format_version == int(version)
    assert sorted(ids_of(ice.scan(table))) == [0, 1, 2, 3]
    assert sorted(ids_of(ice.scan(table, where="p = 'b'"))) == [1, 3]
    assert sorted(ids_of(ice.scan(table, where="p != 'b'"))) == [0]


def test_a_table_loaded_from_its_metadata_file_alone_is_read(history: _History) -> None:
    static = StaticTable.from_metadata(history.table.metadata_location)
    assert _sorted(ice.scan(static, tag="released")) == _AS_WRITTEN
    splits = pickle.loads(pickle.dumps(ice.scan(static).splits()))
    assert sorted(ids_of(ice.read_splits(splits))) == [0, 1, 2]


# A DataScan brings its settings along


def test_the_filter_of_a_data_scan_is_joined_with_where(history: _History) -> None:
    scan = history.table.scan(row_filter="id >= 1")
    assert sorted(ids_of(ice.scan(scan))) == [1, 2]
    assert ids_of(ice.scan(scan, where="id < 2")) == [1]
    assert ids_of(ice.scan(scan.filter("id < 2"), where=EqualTo("id", 2))) == []


def test_the_columns_of_a_data_scan_are_taken_over(history: _History) -> None:
    scan = history.table.scan(selected_fields=("size", "id"))
    assert ice.scan(scan).schema.names == ["id", "size"]
    with pytest.raises(ice.InvalidArgumentError, match="leave columns out"):
        ice.scan(scan, columns=["id"])
    assert ice.scan(history.table.scan(), columns=["id"]).schema.names == ["id"]


@orders
@pytest.mark.parametrize(
    ("of_scan", "given", "rows"), [(2, None, 2), (None, 2, 2), (2, 1, 1), (1, 2, 1), (0, None, 0)]
)
def test_the_smaller_limit_holds(
    history: _History, of_scan: int | None, given: int | None, rows: int, order: Any
) -> None:
    scan = history.table.scan(limit=of_scan)
    assert len(rows_of(ice.scan(scan, limit=given, order=order))) == rows


def test_the_case_sensitivity_of_a_data_scan_is_taken_over(history: _History) -> None:
    scan = history.table.scan(row_filter="ID = 2", selected_fields=("TITLE",), case_sensitive=False)
    assert rows_of(ice.scan(scan)) == [{"title": "c"}]
    assert rows_of(ice.scan(scan, case_sensitive=True)) == [{"title": "c"}]
    with pytest.raises(ice.UnknownColumnError):
        ice.scan(history.table.scan(selected_fields=("TITLE",)))


def test_the_options_of_a_data_scan_are_taken_over(history: _History) -> None:
    table = history.table
    add_parquet_file(table, table.scan().to_arrow().slice(0, 0))
    assert len(ice.scan(table.scan()).splits()) == 2
    options = {"include_empty_files": "true"}
    scan = ice.scan(table.scan(options=options))
    assert len(scan.splits()) == 3
    assert len(rows_of(scan)) == 3


def test_anything_but_a_table_or_data_scan_is_refused() -> None:
    for source in (7, None, pa.table({"id": [1]})):
        with pytest.raises(ice.InvalidArgumentError, match="a PyIceberg Table, DataScan or"):
            ice.scan(source)  # type: ignore[arg-type]


# FileScanTasks


def test_tasks_are_read_with_the_data_scan_that_planned_them(history: _History) -> None:
    scan = history.table.scan(row_filter="id >= 1", selected_fields=("title",))
    tasks = list(scan.plan_files())
    read = ice.read_splits(tasks, table=scan)
    assert sorted(row["title"] for row in rows_of(read)) == ["b", "c"]
    shares = [rows_of(ice.read_splits([task], table=scan)) for task in tasks]
    assert sorted(row["title"] for share in shares for row in share) == ["b", "c"]
    assert rows_of(ice.read_splits([], table=scan)) == []


def test_tasks_are_read_in_the_order_given(history: _History) -> None:
    tasks = list(history.table.scan().plan_files())
    forwards = ids_of(ice.read_splits(tasks, table=history.table))
    backwards = ids_of(ice.read_splits(tasks[::-1], table=history.table))
    assert sorted(forwards) == sorted(backwards) == [0, 1, 2]
    assert forwards != backwards


def test_tasks_are_read_with_the_whole_table_when_that_is_given(history: _History) -> None:
    tasks = list(history.table.scan(row_filter="id = 1").plan_files())
    assert ids_of(ice.read_splits(tasks, table=history.table)) == [0, 1]
    assert ids_of(ice.read_splits(tasks, table=history.table, limit=1)) == [0]


def test_tasks_without_a_table_are_refused(history: _History) -> None:
    tasks = list(history.table.scan().plan_files())
    with pytest.raises(ice.InvalidArgumentError, match="table="):
        ice.read_splits(tasks)


def test_the_limit_of_the_data_scan_holds_for_its_tasks(history: _History) -> None:
    scan = history.table.scan(limit=1)
    assert len(rows_of(ice.read_splits(list(scan.plan_files()), table=scan))) == 1


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_task_made_by_hand_is_filtered_though_it_names_no_residual(
    catalog: Catalog, partitioned: bool
) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))
    schema = Schema(NestedField(1, "id", LongType()))
    properties = {"partition_spec": spec} if partitioned else {}
    table = catalog.create_table("db.by_hand", schema, **properties)
    ids = [i for i in range(100) if BucketTransform(4).transform(LongType())(i) == 1]
    add_parquet_file(table, pa.table({"id": ids}))
    (planned,) = table.scan().plan_files()
    task = FileScanTask(planned.file)  # as a REST catalog that plans without residuals makes them
    scan = table.scan(row_filter=GreaterThan("id", 50))
    assert isinstance(task.residual, AlwaysTrue)
    assert ids_of(ice.read_splits([task], table=scan)) == [i for i in ids if i > 50]


_WITH_ADDED = Schema(NestedField(1, "id", LongType()), NestedField(2, "added", LongType()))


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("count", [0, None])
def test_a_task_without_the_number_of_rows_is_read(
    catalog: Catalog, file_format: str, count: int | None
) -> None:
    table = catalog.create_table("db.uncounted", _WITH_ADDED)
    add = add_orc_file if file_format == "orc" else add_parquet_file
    add(table, pa.table({"id": [1, 2, 3]}), schema=Schema(_WITH_ADDED.fields[0]))
    (task,) = table.scan().plan_files()
    task.file[4] = count  # `record_count`
    assert task.file.record_count == count
    assert ids_of(ice.read_splits([task], table=table)) == [1, 2, 3]
    added = table.scan(selected_fields=("added",))
    assert sum(b.num_rows for b in ice.read_splits([task], table=added)) == 3
    limited = table.scan(limit=2)
    assert ids_of(ice.read_splits([task], table=limited)) == [1, 2]


@pytest.mark.parametrize("count", [1, 7])
def test_rows_of_an_orc_file_are_counted_in_the_file(catalog: Catalog, count: int) -> None:
    table = catalog.create_table("db.miscounted", _WITH_ADDED)
    add_orc_file(table, pa.table({"id": [1, 2, 3]}), schema=Schema(_WITH_ADDED.fields[0]))
    (task,) = table.scan().plan_files()
    task.file[4] = count
    added = table.scan(selected_fields=("added",))
    assert sum(b.num_rows for b in ice.read_splits([task], table=added)) == 3


def test_deletes_of_a_task_apply(history: _History) -> None:
    paths = data_file_paths(history.table)
    commit_position_deletes(history.table, {paths[0]: [0]})
    tasks = list(history.table.scan().plan_files())
    assert sorted(ids_of(ice.read_splits(tasks, table=history.table))) == [1, 2]


# Which files


def test_files_are_pruned_by_partition_and_by_metrics(catalog: Catalog) -> None:
    table = PARTITIONINGS["identity"](catalog).table
    everything = len(ice.scan(table).splits())
    red = ice.scan(table, where="category = 'red'").splits()
    assert 0 < len(red) < everything
    assert not any(split.filtered for split in red)
    assert all(split.filtered for split in ice.scan(table, where="id >= 30").splits())
    assert len(ice.scan(table, where="id >= 30").splits()) < everything
    assert ice.scan(table, where="id > 1000").splits() == []


def test_files_are_pruned_though_pyiceberg_stumbles_over_a_null_partition(
    catalog: Catalog,
) -> None:
    partitioned = PARTITIONINGS["identity"](catalog)
    where = Or(LessThan("category", "green"), EqualTo("id", 5))
    with pytest.raises(TypeError, match="NoneType"):  # once this passes, plan.py needs no detour
        partitioned.table.scan(row_filter=where).plan_files()
    scan = ice.scan(partitioned.table, where=where)
    expected = [
        row["id"]
        for row in partitioned.expected
        if (row["category"] is not None and row["category"] < "green") or row["id"] == 5
    ]
    assert sorted(ids_of(scan)) == expected
    assert len(scan.splits()) < len(ice.scan(partitioned.table).splits()) / 2


def test_a_filter_that_nothing_can_match_reads_no_file(history: _History) -> None:
    for where in ("id = 1 and id = 2", "id > 100", "id is null and id is not null"):
        scan = ice.scan(history.table, where=where)
        assert rows_of(scan) == []
    scan = ice.scan(history.table, where="id > 100")
    assert scan.splits() == []
    assert rows_of(scan) == []
    assert scan.report.files == 0


def test_an_avro_data_file_is_refused_by_the_name_of_its_format(history: _History) -> None:
    file = add_avro_data_file(history.table, pa.table({"id": [9], "title": ["x"], "size": [1]}))
    with pytest.raises(ice.UnsupportedFeatureError, match=r"(?i)avro") as caught:
        list(ice.scan(history.table))
    assert file.file_path in str(caught.value)
    with pytest.raises(ice.UnsupportedFeatureError):
        list(ice.scan(history.table, order=ice.ArrivalOrder()))
    assert file.file_format == FileFormat.AVRO


def test_a_missing_manifest_is_named(history: _History) -> None:
    snapshot = history.table.current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    with pytest.raises(ice.FileMissingError, match=r"Load the table again") as caught:
        list(ice.scan(history.table))
    assert snapshot.manifest_list.rsplit("/", 1)[-1] in str(caught.value)


# Limits


@orders
@pytest.mark.parametrize("where", [None, "id >= 37"])
def test_a_limit_is_exact_within_and_across_files(
    catalog: Catalog, where: str | None, order: Any
) -> None:
    table = _of_three_files(catalog)
    rows = 300 if where is None else 263
    for limit in (0, 1, 99, 100, 101, 250, 262, 263, 264, 299, 300, 301, 10**9):
        scan = ice.scan(table, limit=limit, where=where, order=order, batch_size=17)
        ids = ids_of(scan)
        assert len(ids) == len(set(ids)) == min(limit, rows)
        assert scan.report.finished


def test_a_report_counts_the_rows_that_the_limit_let_through(catalog: Catalog) -> None:
    scan = ice.scan(_of_three_files(catalog), limit=50, batch_size=17)
    assert len(ids_of(scan)) == 50
    assert scan.report.rows == 50


def test_a_limit_takes_the_first_rows_in_task_order(catalog: Catalog) -> None:
    table = _of_three_files(catalog)
    everything = ids_of(ice.scan(table))
    for limit in (1, 50, 150, 299):
        assert ids_of(ice.scan(table, limit=limit)) == everything[:limit]


def test_files_beyond_the_limit_are_not_planned(catalog: Catalog) -> None:
    table = _of_three_files(catalog)
    assert len(ice.scan(table, limit=1).splits()) == 1
    assert len(ice.scan(table, limit=100).splits()) == 1
    assert len(ice.scan(table, limit=101).splits()) == 2
    assert len(ice.scan(table, limit=1, where="id >= 0").splits()) == 3
    assert ice.scan(table, limit=0).splits() == []


def test_files_with_deletes_do_not_count_towards_the_limit(catalog: Catalog) -> None:
    table = _of_three_files(catalog)
    commit_position_deletes(table, {path: [0, 1] for path in data_file_paths(table)})
    assert len(ids_of(ice.scan(table, limit=295))) == 294
    assert len(ids_of(ice.scan(table, limit=100))) == 100


def _of_three_files(catalog: Catalog) -> Table:
    table = catalog.create_table("db.three", Schema(NestedField(1, "id", LongType())))
    files = [
        write_parquet_file(
            table, pa.table({"id": list(range(n * 100, n * 100 + 100))}), row_group_rows=23
        )
        for n in range(3)
    ]
    commit_files(table, files)
    return table


# Columns


def test_every_kind_of_selection_is_honoured(catalog: Catalog) -> None:
    evolved = EVOLUTIONS["nested_changes"](catalog)
    full = evolved.table.schema()
    for columns in (["*"], ["id", "*"], None):
        assert ice.scan(evolved.table, columns=columns).schema.names == [
            f.name for f in full.fields
        ]
    scan = ice.scan(evolved.table, columns=["info.size", "items.element.title"])
    assert [str(field.type) for field in scan.schema] == [
        "struct<size: int64>",
        "large_list<element: struct<title: large_string>>",
    ]


def test_columns_may_be_any_iterable_and_name_one_twice(history: _History) -> None:
    for columns in (["id", "id"], ("id",), {"id"}, (name for name in ["id"])):
        assert ice.scan(history.table, columns=columns).schema.names == ["id"]  # type: ignore


def test_each_field_can_be_selected_by_its_dotted_name(catalog: Catalog) -> None:
    table = catalog.create_table("db.types", all_types_schema())
    rows = all_types_rows(30, seed=11)
    add_parquet_file(table, rows, row_group_rows=7)
    for name in table.schema().column_names:
        scan = ice.scan(table, columns=[name])
        selected = table.schema().select(name)
        assert scan.schema == schema_to_pyarrow(selected, include_field_ids=False), name
        column = scan.schema.field(0)
        expected = [{column.name: _part(row[column.name], column.type)} for row in rows.to_pylist()]
        assert as_text(rows_of(scan)) == as_text(expected), name


def _part(value: Any, kind: pa.DataType) -> Any:
    """What is left of a value when only the fields of `kind` are selected."""
    if value is None:
        return None
    if isinstance(kind, pa.StructType):
        return {child.name: _part(value[child.name], child.type) for child in kind}
    if isinstance(kind, pa.MapType):
        return [(key, _part(item, kind.item_type)) for key, item in value]
    if isinstance(kind, pa.LargeListType):
        return [_part(item, kind.value_type) for item in value]
    return value


def test_no_column_at_all_is_refused(history: _History) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="columns is empty"):
        ice.scan(history.table, columns=[])
    with pytest.raises(ice.InvalidArgumentError, match="columns is empty"):
        ice.scan(history.table.scan(selected_fields=()))


def test_mixed_formats_come_in_one_schema(history: _History) -> None:
    add_orc_file(history.table, pa.table({"id": [3], "title": ["orc"], "size": [9]}))
    rows = _sorted(ice.scan(history.table, where="id >= 2"))
    assert rows == [{"id": 2, "title": "c", "size": 7}, {"id": 3, "title": "orc", "size": 9}]
