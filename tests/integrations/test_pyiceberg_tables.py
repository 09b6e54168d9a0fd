"""Code that is written for PyIceberg, on tables of `icestream.table` and `load_catalog`."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, EqualTo, GreaterThan
from pyiceberg.schema import Schema
from pyiceberg.table import (
    DataScan,
    FileScanTask,
    IncrementalAppendScan,
    Table,
    Transaction,
    UpsertResult,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, NestedField, StringType, StructType

import icestream as ice
from icestream.integrations.pyiceberg_tables.catalog import streaming_catalog
from icestream.integrations.pyiceberg_tables.scan import StreamingIncrementalScan, StreamingScan
from icestream.integrations.pyiceberg_tables.transaction import StreamingTransaction
from tests.support.loads import BY_PART, SCHEMA, batch, ids, ids_of, listing, make_table
from tests.support.stored import folder_of, referenced_files, stored_files


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    plain = make_table(catalog)
    for first in (0, 50):
        ice.append(plain, ids(first, first + 50))
    return ice.table(plain, memory="32MB")


def _operations(table: Table) -> list[Operation]:
    return [s.summary.operation for s in table.snapshots() if s.summary is not None]


# Signatures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "more"),
    [
        (StreamingTransaction.append, Transaction.append, []),
        (StreamingTransaction.overwrite, Transaction.overwrite, []),
        (StreamingTransaction.delete, Transaction.delete, []),
        (StreamingTransaction.upsert, Transaction.upsert, []),
        (
            StreamingTransaction.dynamic_partition_overwrite,
            Transaction.dynamic_partition_overwrite,
            [],
        ),
        (StreamingScan.__init__, DataScan.__init__, ["memory", "batch_size"]),
        (
            StreamingIncrementalScan.__init__,
            IncrementalAppendScan.__init__,
            ["memory", "batch_size"],
        ),
        (StreamingScan.to_arrow, DataScan.to_arrow, []),
        (
            StreamingScan.to_arrow_batch_reader,
            DataScan.to_arrow_batch_reader,
            ["batch_size", "order"],
        ),
    ],
)
def test_the_methods_take_what_pyiceberg_takes(ours: Any, theirs: Any, more: list[str]) -> None:
    def shape(method: Any) -> list[tuple[str, Any]]:
        return [(p.name, p.default) for p in inspect.signature(method).parameters.values()]

    expected = shape(theirs)
    assert shape(ours)[: len(expected)] == expected
    assert [name for name, _ in shape(ours)[len(expected) :]] == more


# Scans -----------------------------------------------------------------------------------------


def test_the_shapes_of_the_streaming_reads(table: Table) -> None:  # S1.1, S2.1, S2.2
    scan = table.scan()
    assert isinstance(table, Table)
    assert isinstance(scan, DataScan)
    sizes = [batch.num_rows for batch in scan.to_record_batches(batch_size=20)]
    assert (sum(sizes), max(sizes)) == (100, 20)
    assert max(b.num_rows for b in table.scan(batch_size=7).to_record_batches()) == 7
    order = ice.ArrivalOrder(concurrent_streams=4, batch_size=10)
    reader = scan.to_arrow_batch_reader(order=order)
    assert isinstance(reader, pa.RecordBatchReader)
    batches = list(reader)
    assert max(b.num_rows for b in batches) == 10
    assert sorted(i for b in batches for i in b["id"].to_pylist()) == list(range(100))
    first = next(iter(scan.to_record_batches(batch_size=1)))
    assert first["id"].to_pylist() == [50]  # the newest file comes first


def test_a_copy_of_a_scan_keeps_the_limit_and_the_batch_size(table: Table) -> None:
    scan = table.scan(batch_size=5)
    copies = [
        scan.update(limit=12),
        scan.select("id").filter("id >= 88"),
        scan.filter(GreaterThan("id", 87)).with_case_sensitive(False),
        scan.filter("ID >= 88").with_case_sensitive(False),
        scan.use_ref("main").filter("id < 12"),
    ]
    for copy in copies:
        assert isinstance(copy, StreamingScan)
        assert (copy.memory, copy.batch_size) == ("32MB", 5)
        assert copy.to_arrow().num_rows == 12
        assert max(b.num_rows for b in copy.to_record_batches()) <= 5


def test_columns_come_in_the_order_of_the_table(table: Table) -> None:
    scan = table.scan(selected_fields=("text", "id"))
    assert scan.to_arrow().column_names == ["id", "text"]
    assert scan.to_arrow_batch_reader().schema.names == ["id", "text"]
    assert next(scan.to_record_batches()).schema.names == ["id", "text"]
    assert scan.select("text").to_arrow().column_names == ["text"]


def test_the_results_are_those_of_pyiceberg(catalog: SqlCatalog, table: Table) -> None:
    theirs = catalog.load_table("db.t")
    for arguments in (
        {},
        {"row_filter": "id > 3 and id < 60"},
        {"row_filter": EqualTo("id", 5), "selected_fields": ("text",)},
        {"limit": 7},
        {"snapshot_id": theirs.snapshots()[0].snapshot_id},
    ):
        ours, expected = table.scan(**arguments), theirs.scan(**arguments)  # type: ignore[arg-type]
        assert ours.to_arrow() == expected.to_arrow()
        assert (
            ours.to_arrow_batch_reader().read_all() == expected.to_arrow_batch_reader().read_all()
        )
        assert ours.to_arrow_batch_reader().schema == expected.to_arrow_batch_reader().schema
        assert ours.count() == expected.count()
        assert ours.to_pandas().equals(expected.to_pandas())
    assert table.scan(AlwaysFalse()).to_arrow().num_rows == 0
    encoded = table.scan().to_arrow(dictionary_columns=("text",))
    assert encoded == theirs.scan().to_arrow(dictionary_columns=("text",))
    assert table.scan().to_duckdb("t").sql("select count(*) from t").fetchall() == [(100,)]


def test_all_rows_are_returned_however_small_the_limit(catalog: SqlCatalog) -> None:
    plain = make_table(catalog, "db.wide")
    text = pa.array(["x" * 1_000 for _ in range(20_000)])
    ice.append(plain, pa.table({"id": range(20_000), "part": range(20_000), "text": text}))
    rows = ice.table("db.wide", catalog=catalog, memory="4MB").scan().to_arrow()
    assert rows.nbytes > 20_000_000
    assert rows.num_rows == 20_000


def test_rows_are_counted_without_deleted_ones(catalog: SqlCatalog) -> None:
    plain = make_table(catalog, "db.d", write__delete__mode="merge-on-read")
    ice.append(plain, ids(0, 100))
    ice.delete(plain, "id in (3, 4)")
    table = ice.table("db.d", catalog=catalog)
    assert table.scan().count() == 98
    assert table.scan("id < 10").count() == 8


def test_appended_rows_are_read_by_an_incremental_scan(table: Table) -> None:
    first = table.snapshots()[0].snapshot_id
    scan = table.incremental_append_scan(from_snapshot_id_exclusive=first, batch_size=20)
    assert isinstance(scan, IncrementalAppendScan)
    assert scan.to_arrow()["id"].to_pylist() == list(range(50, 100))
    few = scan.filter("id < 60").select("id")
    assert few.to_arrow_batch_reader().read_all()["id"].to_pylist() == list(range(50, 60))
    assert [b.num_rows for b in scan.to_record_batches(batch_size=25)] == [25, 25]


def test_an_incremental_scan_never_holds_a_list_of_its_files(table: Table) -> None:
    with mock.patch.object(StreamingIncrementalScan, "plan_files", side_effect=AssertionError):
        scan = table.incremental_append_scan()
        rows = sum(batch.num_rows for batch in scan.to_record_batches())
        assert scan.to_arrow().num_rows == scan.to_arrow_batch_reader().read_all().num_rows == rows
    assert rows > 0


# ArrowScan -------------------------------------------------------------------------------------


def test_tasks_are_read_by_an_arrow_scan(table: Table) -> None:
    scan = table.scan("id >= 40", selected_fields=("text", "id"))
    tasks: list[FileScanTask] = list(scan.plan_files())
    reader = ice.ArrowScan(
        table.metadata, table.io, scan.projection(), scan.row_filter, batch_size=8, memory="16MB"
    )
    assert reader.to_table(tasks).cast(scan.to_arrow().schema) == scan.to_arrow()
    assert reader.to_table(tasks) == scan.to_arrow_batch_reader().read_all()
    assert max(b.num_rows for b in reader.to_record_batches(tasks)) == 8
    streamed = list(reader.to_record_batches_streaming(tasks, batch_size=5))
    assert max(b.num_rows for b in streamed) == 5
    assert sum(b.num_rows for b in streamed) == 60
    order = ice.ArrivalOrder(concurrent_streams=1, batch_size=4)
    assert max(b.num_rows for b in reader.to_record_batches(tasks, order=order)) == 4
    one = ice.ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue(), limit=3)
    assert one.to_table(iter(tasks)).num_rows == 3
    assert one.to_table([]).column_names == ["id", "part", "text"]
    with pytest.raises(ice.InvalidArgumentError, match="batch_size is 0"):
        ice.ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue(), batch_size=0)
    with pytest.raises(ice.UnknownColumnError, match="'idd'"):
        ice.ArrowScan(table.metadata, table.io, table.schema(), "idd = 1")


def test_parts_of_structs_and_dropped_columns_are_projected(catalog: SqlCatalog) -> None:
    pair = StructType(NestedField(3, "a", LongType()), NestedField(4, "b", StringType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "pair", pair))
    table = ice.table(catalog.create_table("db.s", schema))
    table.append(pa.table({"id": [1, 2], "pair": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]}))
    assert table.scan(selected_fields=("pair.b",)).to_arrow().to_pylist() == [
        {"pair": {"b": "x"}},
        {"pair": {"b": "y"}},
    ]
    before = table.schema()
    with table.update_schema() as update:
        update.delete_column("pair")
        update.add_column("more", LongType())
    scan = ice.ArrowScan(table.metadata, table.io, before, "more is null")
    assert scan.to_table(table.scan().plan_files())["pair"].to_pylist()[1] == {"a": 2, "b": "y"}


# Writes ----------------------------------------------------------------------------------------


def _stream(first: int, last: int) -> Iterator[pa.RecordBatch]:
    yield from ids(first, last).to_batches(max_chunksize=3)


def test_writes_take_streams_and_make_one_snapshot_each(table: Table) -> None:  # S3.1, S3.2
    schema = ids(0, 1).schema
    properties = {"team": "a"}
    table.append(pa.RecordBatchReader.from_batches(schema, _stream(100, 110)), properties)
    table.append(_stream(110, 120))
    table.overwrite(ids(200, 201), overwrite_filter="ID >= 10 and id < 110", case_sensitive=False)
    table.delete(EqualTo("id", 111))
    table.overwrite(ids(300, 302), overwrite_filter=AlwaysFalse())
    assert ids_of(table) == [*range(10), 110, *range(112, 120), 200, 300, 301]
    summary = table.snapshots()[2].summary
    assert summary is not None
    assert summary["team"] == "a"
    assert _operations(table)[2:] == [
        Operation.APPEND,
        Operation.APPEND,
        Operation.OVERWRITE,
        Operation.OVERWRITE,
        Operation.APPEND,
    ]
    table.overwrite(pa.RecordBatchReader.from_batches(schema, _stream(1, 3)))
    assert ids_of(table) == [1, 2]
    table.delete()
    assert ids_of(table) == []
    with pytest.warns(UserWarning, match="did not match any records"):
        table.delete("id = 1")


def test_an_upsert_returns_pyicebergs_result(table: Table) -> None:
    changed = batch([(99, 7), (100, 0)])
    assert table.upsert(changed, ["id"]) == UpsertResult(rows_updated=1, rows_inserted=1)
    assert table.upsert(changed, ["ID"], case_sensitive=False) == UpsertResult(0, 0)
    later = batch([(100, 5), (101, 5)])
    assert table.upsert(later, ["id"], when_not_matched_insert_all=False) == UpsertResult(1, 0)
    assert table.upsert(later, ["id"], when_matched_update_all=False) == UpsertResult(0, 1)
    assert len(table.snapshots()) == 5
    for wrong, words in (
        ({"df": changed}, "Join columns could not be found"),
        ({"df": pa.concat_tables([changed, changed]), "join_cols": ["id"]}, "Duplicate rows"),
        (
            {
                "df": changed,
                "when_matched_update_all": False,
                "when_not_matched_insert_all": False,
            },
            "both False",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            table.upsert(**wrong)
    assert len(table.snapshots()) == 5


def test_identifier_fields_and_structs_are_keys(catalog: SqlCatalog) -> None:
    pair = StructType(NestedField(3, "a", LongType()), NestedField(4, "b", StringType()))
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "pair", pair),
        identifier_field_ids=[1],
    )
    table = ice.table(catalog.create_table("db.s", schema))
    arrow = table.schema().as_arrow()
    rows = pa.Table.from_pylist([{"id": 1, "pair": {"a": 1, "b": "x"}}], schema=arrow)
    assert table.upsert(rows) == UpsertResult(0, 1)
    again = pa.Table.from_pylist([{"id": 2, "pair": {"a": 1, "b": "x"}}], schema=arrow)
    assert table.upsert(again, ["pair"]) == UpsertResult(1, 0)
    assert table.scan().to_arrow()["id"].to_pylist() == [2]


def test_partitions_are_replaced(catalog: SqlCatalog) -> None:
    table = ice.table(make_table(catalog, spec=BY_PART))
    table.append(batch([(0, 0), (1, 1), (2, 2)]))
    table.dynamic_partition_overwrite(batch([(5, 1), (6, 2)]))
    assert ids_of(table) == [0, 5, 6]
    assert len(table.snapshots()) == 2
    with pytest.raises(ValueError, match="unpartitioned"):
        ice.table(make_table(catalog, "db.u")).dynamic_partition_overwrite(ids(0, 1))


def test_branches_are_written_and_unknown_ones_refused(table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_branch(snapshot.snapshot_id, "b").commit()
    table.append(ids(100, 101), branch="b")
    table.upsert(ids(101, 102), ["id"], branch="b")
    table.delete("id < 90", branch="b")
    assert table.scan().count() == 100
    assert ids_of(table, branch="b") == [*range(90, 102)]
    with pytest.raises(ice.InvalidArgumentError, match="no branch 'c'"):
        table.append(ids(0, 1), branch="c")
    table.append(ids(500, 501), branch=None)  # a snapshot that no branch has
    table.delete("id = 3", branch=None)
    assert ids_of(table) == list(range(100))
    assert len(table.snapshots()) > 5


@pytest.mark.parametrize(
    "write",
    [
        lambda stale: stale.delete("id < 20"),
        lambda stale: stale.overwrite(ids(1, 2)),
        lambda stale: stale.upsert(batch([(8, 5)]), ["id"]),
    ],
)
def test_changes_since_the_table_was_loaded_are_a_conflict(
    table: Table, write: Callable[[Table], object]
) -> None:
    stale = ice.table("db.t", catalog=table.catalog)
    table.delete("id = 7")
    before = listing(table)
    with pytest.raises(ValidationException) as caught:
        write(stale)
    assert isinstance(caught.value, CommitFailedException)
    assert isinstance(caught.value, ice.CommitConflictError)
    assert listing(table) == before
    stale.append(ids(7, 8))
    assert ids_of(table) == list(range(100))


# Transactions ----------------------------------------------------------------------------------


def test_writes_of_a_transaction_build_on_each_other_in_one_snapshot(table: Table) -> None:
    with table.transaction() as transaction:
        assert isinstance(transaction, Transaction)
        transaction.append(ids(100, 103), snapshot_properties={"a": "1"})
        transaction.delete("id in (0, 100)")
        assert transaction.upsert(batch([(101, 9), (103, 9)]), ["id"]) == UpsertResult(1, 1)
        transaction.overwrite(ids(200, 201), "id = 1", snapshot_properties={"b": "2"})
        with transaction.update_schema() as update:
            update.add_column("more", LongType())
        transaction.set_properties(c="3")
        transaction.append(ids(300, 301))
        seen = transaction.table_metadata.current_snapshot()
        assert seen is not None
    assert ids_of(table) == [*range(2, 100), 101, 102, 103, 200, 300]
    assert len(table.snapshots()) == 3
    head = table.current_snapshot()
    assert head is not None
    assert head.snapshot_id == seen.snapshot_id
    assert head.summary is not None
    assert (head.summary["a"], head.summary["b"], table.properties["c"]) == ("1", "2", "3")
    assert table.schema().find_field("more").field_type == LongType()
    assert stored_files(folder_of(table)) - referenced_files(table) == set()


def test_files_of_an_abandoned_transaction_are_found(table: Table) -> None:
    before = listing(table)
    table.transaction().append(ids(100, 101))
    left = listing(table) - before
    assert len(left) == 2
    transaction = table.transaction()
    with pytest.raises(ice.SchemaMismatchError):
        _fail_inside(transaction)
    assert listing(table) - before == left
    assert ids_of(table) == list(range(100))


def _fail_inside(transaction: Transaction) -> None:
    with transaction:
        transaction.append(ids(100, 101))
        transaction.delete("id = 100")
        transaction.append(pa.table({"unknown": [1]}))


# Catalogs --------------------------------------------------------------------------------------


def test_a_catalog_hands_out_streaming_tables(tmp_path: Path) -> None:
    catalog = ice.load_catalog(
        "files",
        memory="64MB",
        type="sql",
        uri=f"sqlite:///{tmp_path / 'catalog.db'}",
        warehouse=tmp_path.as_uri(),
    )
    assert isinstance(catalog, Catalog)
    assert isinstance(catalog, SqlCatalog)
    catalog.create_namespace("db")
    created = catalog.create_table("db.t", SCHEMA)
    created.append(ids(0, 3))
    with catalog.create_table_transaction("db.new", SCHEMA) as transaction:
        transaction.append(ids(0, 3))
        transaction.delete("id = 1")
    tables = [
        created,
        created.refresh(),
        catalog.load_table("db.t"),
        catalog.create_table_if_not_exists("db.t", SCHEMA),
        catalog.load_table("db.new"),
        catalog.rename_table("db.new", "db.renamed"),
        catalog.register_table("db.again", created.metadata_location),
        ice.table("db.t", catalog=catalog, memory="64MB"),
    ]
    for each in tables:
        assert type(each) is type(tables[0])
        assert each.scan().memory == "64MB"  # type: ignore[attr-defined]
        assert each.scan(batch_size=1).to_arrow().num_rows in (2, 3)  # type: ignore[call-arg]
    assert len(tables[4].snapshots()) == 1
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.none")
    catalog.close()


def test_a_creation_that_fails_leaves_no_file(catalog: SqlCatalog, tmp_path: Path) -> None:
    opened = streaming_catalog(catalog, "64MB")
    assert type(catalog) is SqlCatalog
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    transaction = opened.create_table_transaction("db.failed", SCHEMA)
    with pytest.raises(ice.SchemaMismatchError):
        _fail_inside(transaction)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    assert not catalog.table_exists("db.failed")


def test_wrong_arguments_are_refused(table: Table, catalog: SqlCatalog) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="memory"):
        ice.table(table, memory="lots")
    with pytest.raises(ice.InvalidArgumentError, match="memory"):
        ice.load_catalog(memory=-1)
    with pytest.raises(ice.InvalidArgumentError, match="name is a SqlCatalog"):
        ice.load_catalog(catalog)  # type: ignore[arg-type]
    with pytest.raises(ice.CatalogError, match=r"no table 'db\.none'"):
        ice.table("db.none", catalog=catalog)
    staged: Any = catalog.create_table_transaction("db.staged", SCHEMA)
    with pytest.raises(ice.InvalidArgumentError, match="not created yet"):
        ice.table(staged._table)
    assert table.scan().to_arrow().num_rows == 100


def test_a_conflict_can_be_sent_to_another_process(table: Table) -> None:
    stale = ice.table("db.t", catalog=table.catalog)
    table.delete("id = 7")
    with pytest.raises(ValidationException) as caught:
        stale.delete("id < 20")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
