"""`merge`: what it does with rows that match and with others, in one snapshot."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

import icestream as ice
from tests.support.delete_files import commit_equality_deletes
from tests.support.loads import head_of, make_table, snapshots_of, summary_of
from tests.support.merges import filled, found, nothing_in_vain, stream
from tests.support.tables import (
    add_orc_file,
    commit_files,
    data_file_paths,
    data_files,
    write_parquet_file,
)

_A = [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]
_B = [(11, 2, "k"), (12, 2, "l")]


# Rows that match, and rows that do not


def test_rows_that_match_are_updated_and_the_others_inserted(
    catalog: SqlCatalog, mode: str
) -> None:
    table = filled(catalog, _A, _B)
    report = ice.merge(table, stream([(2, 5, "B"), (4, 6, "d")]), on="id", write_mode=mode)
    assert found(table) == [(1, 1, "a"), (2, 5, "B"), (3, 1, "c"), (4, 6, "d"), *_B]
    assert len(snapshots_of(table)) == 3
    assert report.snapshot_id == head_of(table).snapshot_id
    assert summary_of(table).operation == Operation.OVERWRITE
    assert (report.operation, report.write_mode) == ("merge", mode)
    assert (report.rows_inserted, report.rows_updated) == (1, 1)
    assert (report.rows_deleted, report.rows_unchanged) == (0, 0)
    on_read = mode == "merge-on-read"
    assert (report.files_removed, report.delete_files_added) == ((0, 1) if on_read else (1, 0))
    assert report.files_kept == (2 if on_read else 1)
    assert (report.files_read, report.commit_attempts) == (1, 1)
    assert (report.target_duplicates, report.rows_superseded, report.bytes_spilled) == (0, 0, 0)
    assert report.bytes_read > 0
    assert nothing_in_vain(table)


def test_a_table_of_version_1_is_merged_into_by_copying(catalog: SqlCatalog) -> None:
    table = filled(catalog, _A, version=1)
    report = ice.merge(table, stream([(2, 5, "B"), (4, 6, "d")]), on=["id"])
    assert found(table) == [(1, 1, "a"), (2, 5, "B"), (3, 1, "c"), (4, 6, "d")]
    assert report.write_mode == "copy-on-write"
    with pytest.raises(ice.UnsupportedFeatureError, match="format version 1"):
        ice.merge(table, stream([(2, 5, "x")]), on="id", write_mode="merge-on-read")
    assert len(snapshots_of(table)) == 2
    assert nothing_in_vain(table)


def test_the_table_says_how_it_wants_changes_written(catalog: SqlCatalog) -> None:
    table = filled(catalog, _A, write__merge__mode="merge-on-read")
    assert ice.merge(table, stream([(2, 5, "B")]), on="id").delete_files_added == 1
    report = ice.merge(table, stream([(2, 5, "C")]), on="id", write_mode="copy-on-write")
    assert (report.delete_files_added, report.files_removed) == (0, 1)
    old = filled(catalog, _A, name="db.old", version=1, write__merge__mode="merge-on-read")
    assert ice.merge(old, stream([(2, 5, "B")]), on="id").write_mode == "copy-on-write"
    bad = filled(catalog, _A, name="db.bad", write__merge__mode="merge-on-wednesday")
    with pytest.raises(ice.InvalidArgumentError, match=r"write\.merge\.mode"):
        ice.merge(bad, stream([(2, 5, "B")]), on="id")


def test_an_empty_table_takes_all_rows(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog)
    report = ice.merge(table, stream(_A), on="id", write_mode=mode)
    assert found(table) == _A
    assert (report.rows_inserted, report.files_added, report.files_kept) == (3, 1, 0)
    assert len(snapshots_of(table)) == 1


@pytest.mark.parametrize(
    "source", [iter(()), stream([]), stream([]).to_reader()], ids=["none", "table", "reader"]
)
def test_an_empty_stream_changes_nothing(catalog: SqlCatalog, mode: str, source: Any) -> None:
    table = filled(catalog, _A)
    report = ice.merge(table, source, on="id", write_mode=mode)
    assert found(table) == _A
    assert report.snapshot_id is None
    assert report.files_kept == 1
    assert len(snapshots_of(table)) == 1
    assert nothing_in_vain(table)


def test_batches_without_rows_do_no_harm(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _A)
    none = pa.RecordBatch.from_pylist([], stream([]).schema)
    some = stream([(2, 5, "B")]).to_batches()[0]
    ice.merge(table, [none, some, none], on="id", write_mode=mode)
    assert found(table) == [(1, 1, "a"), (2, 5, "B"), (3, 1, "c")]


def test_matched_rows_can_be_left_as_they_are(catalog: SqlCatalog, mode: str) -> None:
    """Insert only: rows of the table stay, and so does their file."""
    table = filled(catalog, _A)
    before = data_file_paths(table)
    report = ice.merge(
        table, stream([(2, 5, "B"), (4, 6, "d")]), on="id", when_matched="ignore", write_mode=mode
    )
    assert found(table) == [*_A, (4, 6, "d")]
    assert (report.rows_inserted, report.rows_updated, report.files_removed) == (1, 0, 0)
    assert before[0] in data_file_paths(table)


def test_rows_that_match_nothing_can_be_left_out(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _A)
    rows = stream([(2, 5, "B"), (4, 6, "d")])
    report = ice.merge(table, rows, on="id", when_not_matched="ignore", write_mode=mode)
    assert found(table) == [(1, 1, "a"), (2, 5, "B"), (3, 1, "c")]
    assert (report.rows_inserted, report.rows_updated) == (0, 1)
    both = {"when_matched": "ignore", "when_not_matched": "ignore"}
    assert ice.merge(table, rows, on="id", write_mode=mode, **both).snapshot_id is None


def test_matched_rows_can_be_deleted(catalog: SqlCatalog, mode: str) -> None:
    """By a stream of keys alone, if nothing is inserted."""
    table = filled(catalog, _A, _B)
    report = ice.merge(
        table,
        pa.table({"id": [1, 3, 99]}),
        on="id",
        when_matched="delete",
        when_not_matched="ignore",
        write_mode=mode,
    )
    assert found(table) == [(2, 1, "b"), *_B]
    assert (report.rows_deleted, report.rows_inserted, report.rows_updated) == (2, 0, 0)
    assert len(snapshots_of(table)) == 3


def test_a_file_whose_rows_are_all_deleted_goes(catalog: SqlCatalog) -> None:
    table = filled(catalog, _A, _B)
    report = ice.merge(
        table,
        pa.table({"id": [1, 2, 3]}),
        on="id",
        when_matched="delete",
        when_not_matched="ignore",
    )
    assert (report.rows_deleted, report.files_removed, report.files_added) == (3, 1, 0)
    assert found(table) == _B


# Columns


def test_only_some_columns_can_be_updated(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _A)
    report = ice.merge(
        table,
        stream([(2, 5, "B"), (4, 6, "d")]),
        on="id",
        update_columns=["text"],
        write_mode=mode,
    )
    assert found(table) == [(1, 1, "a"), (2, 1, "B"), (3, 1, "c"), (4, 6, "d")]
    assert report.rows_updated == 1
    again = ice.merge(
        table, stream([(2, 77, "B")]), on="id", update_columns=["text"], write_mode=mode
    )
    assert (again.rows_unchanged, again.snapshot_id) == (1, None)


@pytest.mark.parametrize("skip", [True, False])
def test_of_columns_that_the_stream_lacks_old_rows_keep_their_values(
    catalog: SqlCatalog, mode: str, skip: bool
) -> None:
    table = filled(catalog, _A)
    rows = pa.table({"text": ["B", "d"], "id": [2, 4]})
    ice.merge(table, rows, on="id", skip_unchanged=skip, write_mode=mode)
    assert found(table) == [(1, 1, "a"), (2, 1, "B"), (3, 1, "c"), (4, None, "d")]


def test_a_column_that_the_table_lacks_is_refused_discarded_or_added(
    catalog: SqlCatalog, mode: str
) -> None:
    table = filled(catalog, _A)
    rows = stream([(2, 5, "B"), (4, 6, "d")], extra=pa.array([1.5, 2.5]))
    with pytest.raises(ice.SchemaMismatchError, match="extra"):
        ice.merge(table, rows, on="id", write_mode=mode)
    report = ice.merge(table, rows, on="id", schema_mode="discard", write_mode=mode)
    assert report.columns_discarded == ("extra",)
    report = ice.merge(table, rows, on="id", schema_mode="evolve", write_mode=mode)
    assert report.rows_updated == 2
    assert found(table) == [
        (1, 1, "a", None),
        (2, 5, "B", 1.5),
        (3, 1, "c", None),
        (4, 6, "d", 2.5),
    ]
    assert len(snapshots_of(table)) == 3


# Rows that are as they were to be


def test_nothing_changed_no_snapshot(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _A, _B)
    report = ice.merge(table, stream([*_A, *_B]), on="id", write_mode=mode)
    assert (report.rows_unchanged, report.rows_updated, report.rows_inserted) == (5, 0, 0)
    assert (report.snapshot_id, report.files_kept) == (None, 2)
    assert len(snapshots_of(table)) == 2
    assert nothing_in_vain(table)


def test_without_the_comparison_every_match_is_an_update(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _A, _B)
    report = ice.merge(table, stream(_A), on="id", skip_unchanged=False, write_mode=mode)
    assert (report.rows_unchanged, report.rows_updated) == (0, 3)
    assert found(table) == [*_A, *_B]
    assert len(snapshots_of(table)) == 3


def test_only_files_with_changed_rows_are_written_again(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _A, _B)
    report = ice.merge(table, stream([*_A, (11, 2, "K"), (12, 2, "l")]), on="id", write_mode=mode)
    assert (report.rows_unchanged, report.rows_updated) == (4, 1)
    assert report.files_removed + report.delete_files_added == 1
    assert report.bytes_read >= min(file.file_size_in_bytes for file in data_files(table))
    assert found(table) == [*_A, (11, 2, "K"), (12, 2, "l")]


def test_null_is_a_value_like_others(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, [(1, None, "a"), (2, 2, None), (3, None, None)])
    rows = [(1, None, "a"), (2, None, None), (3, None, "c")]
    report = ice.merge(table, stream(rows), on="id", write_mode=mode)
    assert (report.rows_unchanged, report.rows_updated) == (1, 2)
    assert found(table) == rows


def test_the_report_is_plain_facts(catalog: SqlCatalog) -> None:
    table = filled(catalog, _A)
    facts = ice.merge(table, stream([(2, 5, "B")]), on="id").to_dict()
    assert facts["operation"] == "merge"
    assert facts["rows_updated"] == 1
    assert facts["peak_bytes_held"] <= facts["memory_limit_bytes"]


_ROWS = [(n, n % 7, f"text {n}") for n in range(5_000)]


def _grouped(catalog: SqlCatalog, *, group_rows: int = 500) -> Table:
    """One file of 5000 rows in row groups, in order of their ids."""
    table = make_table(catalog)
    commit_files(table, [write_parquet_file(table, stream(_ROWS), row_group_rows=group_rows)])
    assert len(data_files(table)) == 1
    path = data_file_paths(table)[0].removeprefix("file://")
    assert pq.read_metadata(path).num_row_groups == 5_000 // group_rows
    return table


def test_equality_deletes_are_refused(catalog: SqlCatalog, mode: str) -> None:
    table = _grouped(catalog)
    commit_equality_deletes(table, ["id"], [{"id": 3}])
    with pytest.raises(ice.UnsupportedFeatureError):
        ice.merge(table, stream([(4, 1, "x")]), on="id", write_mode=mode)
    assert len(snapshots_of(table)) == 2
    assert nothing_in_vain(table)


def test_orc_files_are_merged_into(catalog: SqlCatalog, mode: str) -> None:
    table = make_table(catalog)
    add_orc_file(table, stream(_ROWS[:50]))
    report = ice.merge(table, stream([(7, 9, "new"), (20, 6, "text 20")]), on="id", write_mode=mode)
    assert (report.rows_updated, report.rows_unchanged) == (1, 1)
    with ice.scan(table) as batches:
        rows = sorted(tuple(row.values()) for row in pa.table(batches).to_pylist())
    assert rows == sorted([*_ROWS[:7], (7, 9, "new"), *_ROWS[8:50]])


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 131_073])
def test_streams_of_about_a_chunk_are_taken_whole(
    catalog: SqlCatalog, mode: str, size: int
) -> None:
    table = make_table(catalog)
    old = pa.table({"id": pa.array(range(size), pa.int64())})
    ice.append(table, old)
    rows = pa.table({"id": pa.array(range(size + 3), pa.int64()), "part": [1] * (size + 3)})
    report = ice.merge(table, rows, on="id", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (size, 3)
    merged = table.refresh().scan().to_arrow()
    assert sorted(merged["id"].to_pylist()) == list(range(size + 3))
    assert set(merged["part"].to_pylist()) == {1}
