"""Merges into tables that are partitioned, sorted, evolved, branched or partly deleted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, StructType

import icestream as ice
from tests.support.all_types import all_types_rows, all_types_schema
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import BY_PART, SCHEMA, by, head_of, make_table, markers_of, snapshots_of
from tests.support.merges import filled, found, nothing_in_vain, stream
from tests.support.plain_rows import plain_rows
from tests.support.tables import data_file_paths, data_files

_ROWS = [(n, n % 3, f"text {n}") for n in range(12)]


# Partitions


@pytest.mark.parametrize(
    "spec",
    [BY_PART, by(1, BucketTransform(3)), by(3, TruncateTransform(6)), by(1, TruncateTransform(5))],
    ids=["identity", "bucket of the key", "truncated text", "truncated key"],
)
def test_partitioned_tables(catalog: SqlCatalog, mode: str, spec: Any) -> None:
    """A row that gets another value may have to move to another partition."""
    table = filled(catalog, _ROWS, spec=spec)
    new = [(4, 2, "moved"), (5, 9, "far"), (7, 1, "text 7"), (99, 0, "new")]
    report = ice.merge(table, stream(new), on="id", write_mode=mode)
    expected = {row[0]: row for row in [*_ROWS, *new]}
    assert found(table) == sorted(expected.values())
    assert (report.rows_updated, report.rows_inserted, report.rows_unchanged) == (2, 1, 1)
    for where in ("part = 2", "part = 9", "id = 4", "text = 'moved'", "text = 'text 7'"):
        column, value = where.replace("'", "").split(" = ")
        position = ["id", "part", "text"].index(column)
        ids = sorted(table.scan(row_filter=where).to_arrow()["id"].to_pylist())
        assert ids == sorted(r[0] for r in expected.values() if str(r[position]) == value)
    assert nothing_in_vain(table)


def test_only_partitions_with_changed_rows_are_written(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _ROWS, spec=BY_PART)
    report = ice.merge(table, stream([(1, 1, "new")]), on=["id", "part"], write_mode=mode)
    assert (report.files_read, report.files_added) == (1, 1)
    assert report.files_kept == (3 if mode == "merge-on-read" else 2)


def test_files_of_an_older_spec_are_merged_into(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _ROWS[:6])
    with table.update_spec() as update:
        update.add_field("part", IdentityTransform(), "part")
    ice.append(table, stream(_ROWS[6:]))
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(2), "id_bucket")
    rows = [(0, 2, "a"), (5, 5, "b"), (7, 1, "c"), (20, 1, "d")]
    report = ice.merge(table, stream(rows), on="id", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (3, 1)
    expected = {row[0]: row for row in [*_ROWS, *rows]}
    assert found(table) == sorted(expected.values())
    assert {file.spec_id for file in data_files(table)} >= {2}
    again = ice.merge(table, stream(list(expected.values())), on="id", write_mode=mode)
    assert (again.rows_unchanged, again.snapshot_id) == (13, None)


# Schemas


def test_columns_that_were_added_and_renamed_are_merged(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _ROWS[:3])
    with table.update_schema() as update:
        update.rename_column("id", "key")
        update.rename_column("text", "id")
        update.add_column("extra", DoubleType())
    rows = pa.table({"key": [1, 5], "id": ["new", "five"], "extra": [0.5, 1.5], "part": [1, 1]})
    report = ice.merge(table, rows, on="key", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (1, 1)
    assert found(table) == [
        (0, 0, "text 0", None),
        (1, 1, "new", 0.5),
        (2, 2, "text 2", None),
        (5, 1, "five", 1.5),
    ]
    null = pa.table({"key": [0], "extra": pa.array([None], pa.float64())})
    assert ice.merge(table, null, on="key", write_mode=mode).rows_unchanged == 1


def test_a_key_that_was_widened_is_found_in_older_files(catalog: SqlCatalog, mode: str) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=False),
        NestedField(2, "text", StringType(), required=False),
    )
    table = catalog.create_table("db.t", schema, properties={"format-version": "2"})
    old = pa.table({"id": pa.array([-1, 0, 7], pa.int32()), "text": ["a", "b", "c"]})
    ice.append(table, old)
    with table.update_schema() as update:
        update.update_column("id", LongType())
    rows = pa.table({"id": pa.array([-1, 2**40], pa.int64()), "text": ["A", "d"]})
    assert ice.merge(table, rows, on="id", write_mode=mode).rows_updated == 1
    assert found(table) == [(-1, "A"), (0, "b"), (7, "c"), (2**40, "d")]


def test_a_merge_may_widen_the_key_and_add_columns_itself(catalog: SqlCatalog, mode: str) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=False),
        NestedField(2, "who", StructType(NestedField(3, "name", StringType())), required=False),
    )
    table = catalog.create_table("db.t", schema, properties={"format-version": "2"})
    old = {"id": pa.array([1, 2, 3], pa.int32()), "who": [{"name": "a"}, {"name": "b"}, None]}
    ice.append(table, pa.table(old))
    rows = pa.table(
        {
            "id": pa.array([2, 2**40], pa.int64()),
            "who": [{"name": "b", "age": 5}, {"name": "d", "age": None}],
            "note": ["x", None],
        }
    )
    report = ice.merge(table, rows, on="id", schema_mode="evolve", write_mode=mode)
    assert len(report.schema_changes) == 3
    assert (report.rows_updated, report.rows_inserted) == (1, 1)
    assert len(snapshots_of(table)) == 2
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "who": {"name": "a", "age": None}, "note": None},
        {"id": 2, "who": {"name": "b", "age": 5}, "note": "x"},
        {"id": 3, "who": None, "note": None},
        {"id": 2**40, "who": {"name": "d", "age": None}, "note": None},
    ]


def test_a_key_that_the_merge_itself_adds_matches_nothing(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _ROWS[:2])
    rows = stream([(0, 0, "x")], key=pa.array([1], pa.int64()))
    report = ice.merge(table, rows, on="key", schema_mode="evolve", write_mode=mode)
    assert (report.rows_inserted, report.rows_updated) == (1, 0)
    assert len(found(table)) == 3


def test_a_merge_with_nothing_to_change_may_still_add_a_column(
    catalog: SqlCatalog, mode: str
) -> None:
    table = filled(catalog, _ROWS[:2])
    rows = stream(_ROWS[:2], extra=pa.array([None, None], pa.int64()))
    report = ice.merge(table, rows, on="id", schema_mode="evolve", write_mode=mode)
    assert report.rows_unchanged == 2
    assert report.schema_changes
    assert found(table) == [(*row, None) for row in _ROWS[:2]]


# Rows that are deleted already


def test_deleted_rows_never_come_back(catalog: SqlCatalog) -> None:
    """Deleted by position, merged on read twice, by copying then, and compacted."""
    table = filled(catalog, _ROWS)
    commit_position_deletes(table, {data_file_paths(table)[0]: [0, 5]})
    rows = {row[0]: row for row in _ROWS if row[0] not in (0, 5)}
    steps = [
        ("merge-on-read", [(1, 7, "one"), (5, 7, "back")]),
        ("merge-on-read", [(1, 8, "one again"), (2, 8, "two"), (5, 8, "still")]),
        ("copy-on-write", [(3, 9, "three"), (1, 9, "once more")]),
        ("merge-on-read", [(4, 4, "four")]),
    ]
    for mode, new in steps:
        ice.merge(table, stream(new), on="id", write_mode=mode)
        rows |= {row[0]: row for row in new}
        assert found(table) == sorted(rows.values())
        gone = stream([(6, 0, ""), (0, 0, "")])
        options = {"when_matched": "delete", "when_not_matched": "ignore", "write_mode": mode}
        ice.merge(table, gone, on="id", **options)
        rows.pop(6, None)
        assert found(table) == sorted(rows.values())
    ice.compact(table)
    assert found(table) == sorted(rows.values())
    assert nothing_in_vain(table)


def test_a_rewritten_file_takes_its_deletes_with_it(catalog: SqlCatalog) -> None:
    table = filled(catalog, _ROWS)
    ice.merge(table, stream([(1, 1, "x")]), on="id", write_mode="merge-on-read")
    report = ice.merge(table, stream([(2, 2, "y")]), on="id", write_mode="copy-on-write")
    assert report.files_removed == 1
    assert all(not task.delete_files for task in table.refresh().scan().plan_files())


# Branches, load ids, transactions


def test_a_merge_goes_to_its_branch(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _ROWS[:3])
    start = head_of(table).snapshot_id
    table.manage_snapshots().create_branch(start, "a").commit()
    ice.append(table, stream([(50, 5, "main only")]))
    rows = [(1, 1, "new"), (50, 0, "branch")]
    report = ice.merge(table, stream(rows), on="id", branch="a", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (1, 1)
    assert head_of(table, "a").snapshot_id == report.snapshot_id
    assert found(table, branch="a") == [_ROWS[0], (1, 1, "new"), _ROWS[2], (50, 0, "branch")]
    assert found(table) == [*_ROWS[:3], (50, 5, "main only")]


def test_a_second_merge_with_the_same_id_does_nothing(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _ROWS[:4])
    rows = stream(
        [(0, 0, "new"), (1, 1, "text 1"), (9, 9, "nine"), (2, 0, "")],
        gone=pa.array([False, False, False, True]),
    )
    options: Any = {
        "on": "id",
        "delete_when": "gone = true",
        "properties": {"who": "me"},
        "load_id": "monday",
        "write_mode": mode,
    }
    first = ice.merge(table, rows, **options)
    again = ice.merge(table, rows, **options)
    assert again.already_committed
    assert not first.already_committed
    names = ["snapshot_id", "rows_inserted", "rows_updated", "rows_unchanged", "rows_deleted"]
    names += ["files_added", "files_removed", "bytes_written", "write_mode", "operation"]
    for name in names:
        assert getattr(again, name) == getattr(first, name), name
    counts = (first.rows_inserted, first.rows_updated, first.rows_unchanged, first.rows_deleted)
    assert counts == (1, 1, 1, 1)
    assert len(snapshots_of(table)) == 2
    assert head_of(table).summary["who"] == "me"


def test_merges_can_be_staged(catalog: SqlCatalog, mode: str) -> None:
    """The second sees what the first has done; nobody else does before the commit."""
    table = filled(catalog, _ROWS[:3])
    with table.transaction() as transaction:
        first = ice.merge(transaction, stream([(1, 1, "A"), (5, 5, "n")]), on="id", write_mode=mode)
        assert found(catalog.load_table("db.t")) == _ROWS[:3]
        second = ice.merge(
            transaction, stream([(1, 2, "B"), (5, 6, "m")]), on="id", write_mode=mode
        )
    assert (first.rows_updated, second.rows_updated) == (1, 2)
    assert found(table) == [_ROWS[0], (1, 2, "B"), _ROWS[2], (5, 6, "m")]
    assert snapshots_of(table)[1:] == [first.snapshot_id, second.snapshot_id]
    assert markers_of(table) == []
    assert nothing_in_vain(table)


def test_sorted_tables_stay_sorted(catalog: SqlCatalog, mode: str) -> None:
    table = catalog.create_table(
        "db.t",
        SCHEMA,
        sort_order=SortOrder(SortField(2, IdentityTransform())),
        properties={"format-version": "2"},
    )
    ice.append(table, stream(_ROWS))
    rows = [(3, 8, "x"), (4, -1, "y"), (40, 0, "z")]
    ice.merge(table, stream(rows), on="id", write_mode=mode)
    assert found(table) == sorted({row[0]: row for row in [*_ROWS, *rows]}.values())
    for task in table.scan().plan_files():
        if not task.delete_files:
            with ice.read_splits([task], table=table) as batches:
                parts = pa.table(batches)["part"].to_pylist()
            assert parts == sorted(parts)


# Every type


def test_rows_of_every_type_are_as_they_were(catalog: SqlCatalog, mode: str) -> None:
    table = catalog.create_table("db.t", all_types_schema(), properties={"format-version": "2"})
    ice.append(table, all_types_rows(300))
    with ice.scan(table) as batches:
        own = pa.table(batches)
    for rows in (own, all_types_rows(300)):
        report = ice.merge(table, rows.to_batches(max_chunksize=70), on="id", write_mode=mode)
        assert (report.rows_unchanged, report.rows_updated) == (300, 0)
        assert report.snapshot_id is None


@pytest.mark.parametrize("spilled", [False, True])
def test_rows_of_every_type_are_updated(
    catalog: SqlCatalog, mode: str, spilled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spilled:
        monkeypatch.setattr("icestream.operations.merge.intake.incoming._HELD_SHARE", 0.001)
    schema = all_types_schema()
    table = catalog.create_table("db.t", schema, properties={"format-version": "2"})
    ice.append(table, all_types_rows(500, seed=1))
    new = all_types_rows(1_000, seed=2)
    report = ice.merge(table, new.to_batches(max_chunksize=77), on="id", write_mode=mode)
    assert (report.bytes_spilled > 0) == spilled
    assert (report.rows_inserted, report.rows_updated) == (500, 500)
    with ice.scan(table) as batches:
        assert plain_rows(pa.table(batches), schema) == plain_rows(new, schema)


def test_a_table_without_metrics_is_read_whole(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog, write__metadata__metrics__default="none")
    ice.append(table, stream(_ROWS[:6]))
    ice.append(table, stream(_ROWS[6:]))
    report = ice.merge(table, stream([(1, 1, "new")]), on="id", write_mode=mode)
    assert (report.files_read, report.rows_updated) == (2, 1)


def test_the_key_may_be_other_columns_than_the_identifier_fields(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType()),
        identifier_field_ids=[1],
    )
    table = catalog.create_table("db.named", schema)
    arrow = schema.as_arrow()
    ice.append(table, pa.Table.from_pylist([{"id": 1, "name": "a"}], schema=arrow))
    report = ice.merge(
        table, pa.Table.from_pylist([{"id": 2, "name": "a"}], schema=arrow), on="name"
    )
    assert (report.rows_updated, report.rows_inserted) == (1, 0)
    assert ice.scan(table.refresh()).to_reader().read_all()["id"].to_pylist() == [2]
