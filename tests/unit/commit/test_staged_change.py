"""Changes that wait in a transaction: what they leave behind when it is committed, or fails."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

import icestream as ice
from icestream.commit.change import Change
from icestream.commit.staged_change import StagedChange, StagedCheck
from tests.support.loads import head_of, ids, listing, make_table


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog)
    ice.append(table, ids(0, 1))
    return table


def _staged(table: Table, change: Change) -> StagedChange:
    return StagedChange(table, change, None, base_snapshot_id=head_of(table).snapshot_id)


def test_each_try_writes_metadata_and_a_discarded_change_leaves_none(table: Table) -> None:
    before = listing(table)
    staged = _staged(table, Change(Operation.APPEND, load_id="monday"))
    for _ in range(2):
        updates, requirements = staged.produce(table.metadata)
        assert len(updates) == 2
        assert len(requirements) == 1
    assert len(listing(table)) == len(before) + 2
    staged.discard()
    assert listing(table) == before


def test_the_load_id_is_staged_once_with_the_schema(table: Table) -> None:
    updates, _ = _staged(table, Change(Operation.APPEND, load_id="monday")).lasting(table.metadata)
    assert len(updates) == 1
    assert _staged(table, Change(Operation.APPEND)).lasting(table.metadata) == ((), ())


def test_a_load_that_was_committed_meanwhile_is_a_conflict(table: Table) -> None:
    staged = _staged(table, Change(Operation.APPEND, load_id="monday"))
    ice.append(table, ids(1, 2), load_id="monday")
    with pytest.raises(ice.CommitConflictError, match=r"the same load was committed to db.t"):
        staged.produce(table.metadata)


def test_a_refused_transaction_whose_snapshot_is_not_there_is_cleaned_up(table: Table) -> None:
    before = listing(table)
    staged = _staged(table, Change(Operation.APPEND, load_id="monday"))
    staged.produce(table.metadata)
    staged.failed(ConnectionError("lost"))
    assert listing(table) == before


def test_a_check_finds_rows_that_others_have_added(table: Table) -> None:
    change = Change(Operation.DELETE, conflict_filter=parse("id = 1"))
    check = StagedCheck(table, change, base_snapshot_id=head_of(table).snapshot_id)
    updates, requirements = check.produce(table.metadata)
    assert (updates, len(requirements)) == ((), 1)
    ice.append(table, ids(5, 6))
    check.produce(table.metadata)
    ice.append(table, ids(1, 2))
    with pytest.raises(ice.CommitConflictError, match="should have seen"):
        check.produce(table.metadata)
