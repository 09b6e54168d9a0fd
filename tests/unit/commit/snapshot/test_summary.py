"""The summary of a snapshot."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

import icestream as ice
from icestream.commit.change import Change
from icestream.commit.snapshot.summary import summarize
from tests.support.loads import BY_PART, head_of, ids, make_table
from tests.support.tables import data_files


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, ids(0, 3))
    return table


def test_the_totals_follow_those_of_the_parent(table: Table) -> None:
    (file,) = data_files(table)
    change = Change(Operation.OVERWRITE, added=(file, file), removed=(file,))
    summary = summarize(change, table.metadata, head_of(table), ())
    assert summary.operation == Operation.OVERWRITE
    assert (summary["added-records"], summary["deleted-records"]) == ("6", "3")
    assert (summary["total-records"], summary["total-data-files"]) == ("6", "2")


def test_a_replace_has_totals_too(table: Table) -> None:
    (file,) = data_files(table)
    change = Change(Operation.REPLACE, added=(file,), removed=(file,))
    summary = summarize(change, table.metadata, head_of(table), ())
    assert summary.operation == Operation.REPLACE
    assert summary["total-records"] == "3"


def test_the_ids_of_the_load_and_of_its_writes_are_stored(table: Table) -> None:
    change = Change(
        Operation.APPEND, load_id="monday", write_ids=("a", "b"), properties={"team": "sales"}
    )
    summary = summarize(change, table.metadata, head_of(table), ())
    assert summary["icestream.load-id"] == "monday"
    assert summary["icestream.write-ids"] == "a,b"
    assert summary["team"] == "sales"


def test_a_limit_that_is_not_a_number_is_refused(catalog: SqlCatalog) -> None:
    table = make_table(catalog, "db.limited", write__summary__partition_limit="lots")
    with pytest.raises(ice.InvalidArgumentError, match=r"partition-limit is 'lots'"):
        summarize(Change(Operation.APPEND), table.metadata, None, ())
