"""Rows updated by tasks: only matching rows change, by expressions of Spark, in one snapshot."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark import TaskContext

import icestream as ice
import icestream.spark as ice_spark
from icestream.commit.in_flight import InFlightWrite
from icestream.spark.writing import update_job
from icestream.spark.writing.merge_job import AppliedRows
from tests.spark.test_delete import file_of, filled
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import BY_PART, batch, before_commits, listing, snapshots_of
from tests.support.merges import nothing_in_vain

_SPECS = [UNPARTITIONED_PARTITION_SPEC, BY_PART]

_MOVES = (ice.InvalidArgumentError, "needs a join.* merge a DataFrame")


class _Failing(AppliedRows):
    """A task that fails after it has written its files."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in AppliedRows.__call__(self, batches):
            raise RuntimeError("no answers today")
        yield


class _Late(AppliedRows):
    """The task of the first file writes after the driver has cleaned up a failed job.

    Spark kills a worker two seconds after it has reported the job as failed.
    """

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        taken = next(iter(batches))
        if TaskContext.get().partitionId() == 0:  # type: ignore[union-attr]
            marker = InFlightWrite(self.work.target, operation="").marker
            while self.work.target.io.new_input(marker).exists():
                time.sleep(0.01)
            time.sleep(1.6)
        yield from AppliedRows.__call__(self, chain([taken], batches))


def _all(table: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ice.scan(table.refresh()).to_reader().read_all().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("spec", _SPECS, ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_matching_rows_change_and_no_others(
    spark: Any, catalog: SqlCatalog, spec: PartitionSpec, mode: str
) -> None:
    table = filled(catalog, spec=spec, write__update__mode=mode)
    commit_position_deletes(table, {file_of(table, 11): [0, 3]})
    expected = _all(table)
    for row in expected:
        if row["part"] is not None and row["part"] >= 10 and row["id"] < 25:
            row["part"], row["text"] = row["id"] * 2, f"{row['text']}!{row['part']}"
    matching = sum("!" in row["text"] for row in expected)
    before = len(snapshots_of(table))
    report = ice_spark.update(
        spark,
        table,
        {"part": "id * 2", "text": "concat(text, '!', part)"},
        "part >= 10 and id < 25",
        memory="64MB",
        properties={"a": "b"},
    )
    assert _all(table) == expected
    assert (report.operation, report.rows_updated) == ("update", matching)
    assert (report.rows_inserted, report.rows_deleted, report.rows_unchanged) == (0, 0, 0)
    assert (report.delete_files_added > 0) == (mode == "merge-on-read")
    assert report.memory_limit_bytes == 64_000_000
    assert report.worker_peak_bytes > 0
    assert len(snapshots_of(table)) == before + 1
    assert nothing_in_vain(table)
    assert not [name for name in listing(table) if "in-flight" in name]


def test_without_a_filter_every_row_changes(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog)
    report = ice_spark.update(spark, "db.t", {"TEXT": "'x'"}, catalog=catalog)
    assert (report.rows_updated, report.files_removed) == (40, 4)
    assert {row["text"] for row in _all(table)} == {"x"}
    again = ice_spark.update(spark, table, {"text": "'x'"}, EqualTo("part", 10))
    assert (again.snapshot_id, again.rows_updated, again.rows_unchanged) == (None, 0, 8)


def test_expressions_see_the_row_before_and_files_without_matches_stay(
    spark: Any, catalog: SqlCatalog
) -> None:
    table = filled(catalog)
    report = ice_spark.update(spark, table, {"id": "part", "part": "id"}, "id = 11")
    assert (report.rows_updated, report.files_removed, report.files_added) == (1, 1, 1)
    assert (10, 11) in {(row["id"], row["part"]) for row in _all(table)}


def test_values_are_cast_to_the_types_of_their_columns(spark: Any, catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "price", DecimalType(10, 2), required=True),
        NestedField(3, "day", DateType()),
        NestedField(4, "at", TimestamptzType()),
        NestedField(5, "key", UUIDType()),
        NestedField(6, "clock", TimeType()),
        NestedField(7, "box", StructType(NestedField(8, "text", StringType()))),
        NestedField(9, "odd.name", StringType()),
    )
    table = catalog.create_table("db.typed", schema)
    key = uuid.uuid4()
    rows = pa.Table.from_pylist(
        [
            {"id": 1, "price": Decimal("1.50"), "key": key.bytes, "box": {"text": "a"}},
            {"id": 2, "price": Decimal("9.00")},
        ],
        schema=ice.scan(table).schema,
    )
    ice.append(table, rows)
    values = {
        "price": "price * 3 + id",
        "at": "day",
        "day": "date'2026-01-02'",
        "box": "named_struct('text', concat(box.text, '!'))",
        "odd.name": "id",
    }
    report = ice_spark.update(spark, table, values, "id = 1")
    assert report.rows_updated == 1
    one, two = _all(table)
    assert (one["price"], str(one["day"]), one["at"]) == (Decimal("5.50"), "2026-01-02", None)
    assert (one["box"], one["odd.name"], one["key"]) == ({"text": "a!"}, "1", key)
    assert (two["price"], two["box"]) == (Decimal("9.00"), None)
    ice_spark.update(spark, table, {"box": "null", "day": "null"})
    assert {(row["day"], row["box"]) for row in _all(table)} == {(None, None)}


@pytest.mark.parametrize(
    ("value", "ansi"), [("3000000000L", "false"), ("1e20", "false"), ("double('nan')", "true")]
)
def test_a_value_that_does_not_fit_is_refused_with_its_column(
    spark: Any, catalog: SqlCatalog, value: str, ansi: str
) -> None:
    table = catalog.create_table("db.ints", Schema(NestedField(1, "i", IntegerType())))
    ice.append(table, pa.table({"i": pa.array([1, None], pa.int32())}))
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        with pytest.raises(ice.InvalidDataError, match="does not fit") as error:
            ice_spark.update(spark, table, {"i": value})
        ice_spark.update(spark, table, {"i": "if(rand() < 0.5, null, 7L)"})
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert error.value.column == "i"
    rows = ice.scan(table.refresh()).to_reader().read_all()
    assert set(rows.column("i").to_pylist()) <= {7, None}


@pytest.mark.parametrize(
    ("values", "where", "kind", "match"),
    [
        ({"no": "1"}, None, ice.UnknownColumnError, "not a column of db.t"),
        ({"id": "text"}, None, ice.SchemaMismatchError, "id"),
        ({"id": "sum(id)"}, None, ice.InvalidArgumentError, "one row"),
        ({"id": "row_number() over (order by id)"}, None, ice.InvalidArgumentError, "one row"),
        ({"id": "explode(array(1, 2))"}, None, ice.InvalidArgumentError, "one row"),
        ({"id": "(select max(n.id) from range(9) n where n.id = part)"}, None, *_MOVES),
        ({"id": "if(exists(select 1 from range(9) n where n.id = part), 1, 2)"}, None, *_MOVES),
        ({"id": "if(part in (select id from range(9)), 1, 2)"}, None, *_MOVES),
        ({}, None, ice.InvalidArgumentError, "set is"),
        ({"id": "1"}, "no = 1", ice.InvalidArgumentError, "no"),
    ],
)
def test_an_update_that_cannot_be_is_refused_before_anything_is_written(
    spark: Any, catalog: SqlCatalog, values: Any, where: Any, kind: Any, match: str
) -> None:
    table = filled(catalog)
    before = listing(table)
    with pytest.raises(kind, match=match):
        ice_spark.update(spark, table, values, where)
    assert listing(table) == before


def test_a_subquery_without_columns_of_the_row_is_evaluated(
    spark: Any, catalog: SqlCatalog
) -> None:
    table = filled(catalog)
    many = {
        "part": "part + (select max(id) from range(9))",
        "text": "if(exists(select 1), 'x', text)",
    }
    ice_spark.update(spark, table, many, "id = 11")
    (row,) = (row for row in _all(table) if row["id"] == 11)
    assert (row["part"], row["text"]) == (18, "x")


@pytest.mark.parametrize(
    "order", ["-__icestream_pos", "abs(__icestream_pos + 1) > 0, -__icestream_pos"]
)
def test_rows_that_spark_puts_out_of_order_are_refused(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    table = filled(catalog)
    before = listing(table)
    evaluated = update_job.Assignments.evaluated

    def moved(own: update_job.Assignments, rows: Any) -> Any:
        view = "moved_rows"
        evaluated(own, rows).createOrReplaceTempView(view)
        return spark.sql(f"select * from {view} sort by __icestream_file, {order}")

    monkeypatch.setattr(update_job.Assignments, "evaluated", moved)
    with pytest.raises(ice.InvalidArgumentError, match="out of order"):
        ice_spark.update(spark, table, {"part": "id"}, "id < 8")
    assert listing(table) == before


def test_a_second_update_with_the_same_id_does_nothing(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog)
    first = ice_spark.update(spark, table, {"id": "id + 100"}, "id < 3", load_id="once")
    again = ice_spark.update(spark, table, {"id": "id + 100"}, "id < 300", load_id="once")
    assert (again.already_committed, again.snapshot_id) == (True, first.snapshot_id)
    assert again.rows_updated == first.rows_updated == 3
    assert again.operation == "update"


@pytest.mark.parametrize("action", ["append", "delete"])
def test_an_update_conflicts_with_changes_to_the_same_rows(
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
        ice_spark.update(spark, table, {"text": "'x'"}, "id < 6")
    assert "x" not in {row["text"] for row in _all(table)}
    assert nothing_in_vain(table)


def test_tasks_that_fail_leave_nothing(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    before = listing(table)
    with pytest.raises(ice.TaskFailedError, match="DIVIDE_BY_ZERO"):
        ice_spark.update(spark, table, {"part": "100 div (id - 25)"})
    assert listing(table) == before
    monkeypatch.setattr(update_job, "AppliedRows", _Failing)
    with pytest.raises(ice.TaskFailedError, match="no answers today"):
        ice_spark.update(spark, table, {"part": "1"}, "id < 5")
    assert listing(table) == before


def test_tasks_that_write_after_the_job_has_failed_leave_nothing(
    spark: Any, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    before = listing(table)
    monkeypatch.setattr(update_job, "AppliedRows", _Late)
    with pytest.raises(ice.TaskFailedError, match=r"update db\.t failed.*DIVIDE_BY_ZERO"):
        ice_spark.update(spark, table, {"part": "100 div (id - 25)"})
    time.sleep(2)  # longer than Spark lets a killed task run
    assert listing(table) == before
