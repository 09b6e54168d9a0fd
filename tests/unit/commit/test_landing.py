"""Where a change goes: to a table, or into a transaction."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.landing import TableLanding, TransactionLanding, check_branch, landing_of
from tests.support.loads import head_of, ids, make_table


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return make_table(catalog)


def test_a_table_and_a_transaction_are_accepted_and_nothing_else(table: Table) -> None:
    assert isinstance(landing_of(table), TableLanding)
    assert isinstance(landing_of(table.transaction()), TransactionLanding)
    with pytest.raises(ice.InvalidArgumentError, match="the table is a str: give a name"):
        landing_of("db.t")  # type: ignore[arg-type]


def test_a_table_that_was_dropped_is_named(catalog: SqlCatalog, table: Table) -> None:
    catalog.drop_table("db.t")
    with pytest.raises(ice.CatalogError, match=r"table db\.t does not exist"):
        landing_of(table).refresh()


def test_another_table_of_the_same_name_is_refused(catalog: SqlCatalog, table: Table) -> None:
    catalog.drop_table("db.t")
    make_table(catalog)
    with pytest.raises(ice.CatalogError, match="another table of that name"):
        landing_of(table).refresh()


def test_a_target_has_the_metadata_that_was_planned_with(table: Table) -> None:
    landing = landing_of(table)
    planned = landing.refresh()
    ice.append(table, ids(0, 3))
    assert landing.target(planned).metadata is planned
    assert landing.refresh() != planned


def test_the_head_of_a_branch_is_its_snapshot(table: Table) -> None:
    assert check_branch(table.metadata, "main", table="db.t") is None
    ice.append(table, ids(0, 3))
    snapshot_id = head_of(table).snapshot_id
    assert check_branch(table.metadata, "main", table="db.t") == snapshot_id


def test_tags_and_unknown_branches_are_refused(table: Table) -> None:
    ice.append(table, ids(0, 3))
    table.manage_snapshots().create_tag(head_of(table).snapshot_id, "release").commit()
    metadata = table.refresh().metadata
    with pytest.raises(ice.InvalidArgumentError, match=r"'release' is a tag of db.t"):
        check_branch(metadata, "release", table="db.t")
    with pytest.raises(ice.InvalidArgumentError, match=r"db.t has no branch 'audit'"):
        check_branch(metadata, "audit", table="db.t")
