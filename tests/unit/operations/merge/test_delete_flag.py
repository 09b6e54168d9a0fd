"""`delete_when`: rows of the stream that delete the rows that they match."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo

import icestream as ice
from tests.support.loads import snapshots_of
from tests.support.merges import filled, found, stream

_A = [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]


@pytest.mark.parametrize("schema_mode", ["freeze", "evolve", "discard"])
@pytest.mark.parametrize("where", ["op = 'D'", EqualTo("op", "D")], ids=["text", "expression"])
def test_the_stream_itself_can_say_which_rows_go(
    catalog: SqlCatalog, mode: str, schema_mode: Any, where: Any
) -> None:
    """The column that says so is none of the table's, and does not become one."""
    table = filled(catalog, _A)
    rows = stream(
        [(1, 9, "x"), (2, 5, "B"), (4, 6, "d"), (5, 6, "e"), (3, 3, "C")],
        op=pa.array(["D", "U", "I", "D", None]),
    )
    report = ice.merge(
        table, rows, on="id", delete_when=where, schema_mode=schema_mode, write_mode=mode
    )
    assert found(table) == [(2, 5, "B"), (3, 3, "C"), (4, 6, "d")]
    assert (report.rows_deleted, report.rows_updated, report.rows_inserted) == (1, 2, 1)
    assert [f.name for f in table.schema().fields] == ["id", "part", "text"]
    assert report.schema_changes == ()
    assert len(snapshots_of(table)) == 2


def test_rows_can_be_deleted_by_a_column_of_the_table_too(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _A)
    rows = stream([(1, -1, "x"), (2, 5, "B"), (4, -1, "d")])
    ice.merge(table, rows, on="id", delete_when="part < 0", write_mode=mode)
    assert found(table) == [(2, 5, "B"), (3, 1, "c")]


def test_rows_that_delete_do_so_where_matches_are_ignored_otherwise(
    catalog: SqlCatalog, mode: str
) -> None:
    table = filled(catalog, _A)
    rows = stream([(1, 9, "x"), (2, 5, "B"), (4, 4, "d")], gone=pa.array([True, False, False]))
    report = ice.merge(
        table, rows, on="id", when_matched="ignore", delete_when="gone = true", write_mode=mode
    )
    assert found(table) == [(2, 1, "b"), (3, 1, "c"), (4, 4, "d")]
    assert (report.rows_deleted, report.rows_updated, report.rows_inserted) == (1, 0, 1)


def test_the_flag_may_be_a_dictionary(catalog: SqlCatalog) -> None:
    table = filled(catalog, _A)
    op = pa.array(["D", "U"]).dictionary_encode()
    ice.merge(table, stream([(1, 9, "x"), (2, 5, "B")], op=op), on="id", delete_when="op = 'D'")
    assert found(table) == [(2, 5, "B"), (3, 1, "c")]
