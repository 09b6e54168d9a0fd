"""`LateTransaction`: it shows changes that are not staged yet, and stages them when needed.

It relies on these private names of PyIceberg's `Transaction`: `_table`, `_updates`, `_failed` and
`_set_ref_snapshot`.
"""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update.snapshot import ManageSnapshots

import icestream as ice
from icestream.catalogs._pyiceberg.late_transaction import LateTransaction
from tests.support.loads import head_of, ids, make_table


class _Noted(LateTransaction):
    """Adds a property late."""

    late = True

    def with_late_changes(self, metadata: TableMetadata) -> TableMetadata:
        if not self.late:
            return metadata
        return metadata.model_copy(update={"properties": {**metadata.properties, "late": "yes"}})

    def stage_late_changes(self) -> None:
        if self.late:
            self.late = False
            self.set_properties({"late": "yes"})


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog)
    ice.append(table, ids(0, 1))
    return table


def test_late_changes_are_shown_before_they_are_staged(table: Table) -> None:
    transaction = _Noted(table)
    assert transaction.table_metadata.properties["late"] == "yes"
    assert "late" not in transaction.staged_metadata.properties
    assert (transaction.staged_updates, transaction.base) == ((), table)
    transaction.commit_transaction()
    assert table.properties["late"] == "yes"


def test_snapshots_branches_and_tags_of_pyiceberg_come_after_them(table: Table) -> None:
    transaction = _Noted(table)
    transaction.update_snapshot().fast_append().commit()
    assert len(transaction.staged_updates) == 3
    transaction = _Noted(table)
    ManageSnapshots(transaction).create_tag(head_of(table).snapshot_id, "t").commit()
    assert len(transaction.staged_updates) == 2
    transaction.commit_transaction()
    assert table.properties["late"] == "yes"
    assert "t" in table.metadata.refs


def test_a_transaction_that_failed_is_not_committed_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = _Noted(table)
    refused.refuse_reuse()
    assert refused.has_failed
    with pytest.raises(RuntimeError):
        refused.commit_transaction()

    def refuse(*_: object) -> None:
        raise CommitFailedException("refused")

    transaction = _Noted(table)
    monkeypatch.setattr(table.catalog, "commit_table", refuse)
    with pytest.raises(CommitFailedException):
        transaction.commit_transaction()
    assert transaction.has_failed
