"""`merge_batches` does with each micro-batch what `icestream.spark.merge` does with a frame."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
import icestream.spark as ice_spark
from icestream.commit.outcome.load_id import batch_load_id
from icestream.errors import MemoryBudgetError, StreamError
from icestream.spark.streaming.stream_id import QUERY_ID_KEY, QUERY_ID_PROPERTY
from tests.support.loads import before_commits, snapshots_of, summary_of
from tests.support.merges import Row, filled, found, stream

_DDL = "id long, part long, text string"
_ROWS = [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]


def _merged(
    spark: Any, table: Any, rows: list[Row], ddl: str = _DDL, *, number: int = 0, **options: Any
) -> None:
    """Merge rows as a micro-batch of a stream: Spark calls the function for `foreachBatch` so."""
    merging = ice_spark.merge_batches(table, on="id", stream_id="orders", **options)
    merging(spark.createDataFrame(rows, ddl), number)


@pytest.mark.slow
def test_matched_rows_of_a_branch_get_some_columns_by_delete_files(
    spark: Any, catalog: SqlCatalog
) -> None:
    table = filled(catalog, _ROWS)
    table.manage_snapshots().create_branch(snapshots_of(table)[0], "audit").commit()
    _merged(
        spark,
        table,
        [(2, 9, "B"), (4, 9, "D")],
        when_not_matched="ignore",
        update_columns=["text"],
        write_mode="merge-on-read",
        branch="audit",
        properties={"by": "spark"},
    )
    assert found(table) == _ROWS
    assert found(table, branch="audit") == [(1, 1, "a"), (2, 1, "B"), (3, 1, "c")]
    summary = summary_of(table, "audit")
    assert (summary["added-delete-files"], summary["removed-files"]) == ("1", None)
    assert (summary["by"], summary["icestream.load-id"]) == ("spark", batch_load_id("orders", 0))


def test_the_last_of_several_changes_counts_and_may_delete(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog, _ROWS)
    rows = [(1, 5, "late", "x"), (1, 3, "early", "y"), (2, 0, "gone", "z"), (None, 7, "n", "w")]
    _merged(
        spark,
        table,
        rows,
        f"{_DDL}, note string",
        delete_when="part = 0",
        on_duplicate="last",
        last_by="part",
        null_keys="insert",
        schema_mode="evolve",
    )
    assert found(table) == [(None, 7, "n", "w"), (1, 5, "late", "x"), (3, 1, "c", None)]


@pytest.mark.slow
def test_matched_rows_may_go_or_be_written_again(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog, _ROWS)
    _merged(spark, table, _ROWS)
    assert summary_of(table)["added-records"] is None, "nothing has changed"
    _merged(spark, table, _ROWS, number=1, skip_unchanged=False)
    assert summary_of(table)["added-records"] == "3"
    _merged(spark, table, [(1, 1, "a"), (4, 1, "d")], number=2, when_matched="delete")
    assert found(table) == [(2, 1, "b"), (3, 1, "c"), (4, 1, "d")]


@pytest.mark.slow
def test_rows_that_others_add_meanwhile_are_no_conflict_to_snapshot_isolation(
    spark: Any, catalog: SqlCatalog
) -> None:
    table = filled(catalog, _ROWS)

    def others() -> None:
        ice.append(catalog.load_table("db.t"), stream([(2, 8, "theirs")]))

    with before_commits(catalog, others):
        _merged(spark, table, [(2, 9, "ours")], isolation="snapshot")
    assert found(table) == [(1, 1, "a"), (2, 8, "theirs"), (2, 9, "ours"), (3, 1, "c")]


@pytest.mark.slow
def test_a_task_may_hold_what_was_given(spark: Any, catalog: SqlCatalog) -> None:
    table = filled(catalog, _ROWS)
    with pytest.raises(MemoryBudgetError) as caught:
        _merged(spark, table, [(2, 9, "B")], memory="1kB")
    assert caught.value.limit_bytes <= 1000
    assert found(table) == _ROWS


def test_a_name_that_another_query_has_on_the_branch_is_refused(
    spark: Any, catalog: SqlCatalog
) -> None:
    table = filled(catalog, _ROWS)
    table.manage_snapshots().create_branch(snapshots_of(table)[0], "audit").commit()
    ice.append(
        table,
        stream([(9, 9, "i")]),
        branch="audit",
        load_id=batch_load_id("orders", 3),
        properties={QUERY_ID_KEY: "the first query"},
    )
    context = spark.sparkContext
    context.setLocalProperty(QUERY_ID_PROPERTY, "the second query")  # as a running query has it
    try:
        with pytest.raises(StreamError, match="belongs to another query"):
            _merged(spark, table, [(2, 9, "B")], branch="audit")
        _merged(spark, table, [(2, 9, "B")])
    finally:
        context.setLocalProperty(QUERY_ID_PROPERTY, None)
    assert found(table) == [(1, 1, "a"), (2, 9, "B"), (3, 1, "c")]
    assert summary_of(table)[QUERY_ID_KEY] == "the second query"
