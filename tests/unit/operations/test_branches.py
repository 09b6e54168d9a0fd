"""Writes to branches: they move the branch, and nothing else."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from tests.support.loads import (
    before_commits,
    head_of,
    ids,
    ids_of,
    listing,
    make_table,
    snapshots_of,
)

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


def _branched(catalog: SqlCatalog, *, version: int = 2) -> Table:
    """Ids 0 to 2 on main; the branches a and b start there, and so does the tag t."""
    table = make_table(catalog, version=version, **_QUICK)
    start = ice.append(table, ids(0, 3)).snapshot_id
    assert start is not None
    table.manage_snapshots().create_branch(start, "a").create_branch(start, "b").create_tag(
        start, "t"
    ).commit()
    return table


@pytest.mark.parametrize("version", [1, 2])
def test_each_kind_of_write_goes_to_its_branch(catalog: SqlCatalog, version: int) -> None:
    table = _branched(catalog, version=version)
    report = ice.append(table, ids(10, 12), branch="a")
    assert head_of(table, "a").snapshot_id == report.snapshot_id
    ice.delete(table, "id = 0 or id = 11", branch="a")
    ice.overwrite(table, ids(20, 21), branch="a", where="id = 1")
    assert ids_of(table, branch="a") == [2, 10, 20]
    ice.overwrite(table, ids(30, 31), branch="a")
    assert ids_of(table, branch="a") == [30]
    assert ids_of(table) == ids_of(table, branch="b") == [0, 1, 2]
    assert head_of(table).snapshot_id == head_of(table, "b").snapshot_id
    assert len(snapshots_of(table)) == 5


@pytest.mark.parametrize(
    ("branch", "message"), [("nothing", r"no branch 'nothing'.*create_branch"), ("t", "is a tag")]
)
def test_what_is_no_branch_is_refused_and_nothing_is_left(
    catalog: SqlCatalog, branch: str, message: str
) -> None:
    table = _branched(catalog)
    before = listing(table)
    for write in (
        lambda: ice.append(table, ids(0, 1), branch=branch),
        lambda: ice.overwrite(table, ids(0, 1), branch=branch),
        lambda: ice.delete(table, "id = 1", branch=branch),
        lambda: ice.append(table.transaction(), ids(0, 1), branch=branch),
    ):
        with pytest.raises(ice.InvalidArgumentError, match=message):
            write()
    assert listing(table) == before
    assert len(snapshots_of(table)) == 1


def test_the_main_branch_of_an_empty_table_can_be_named(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 1), branch="main")
    assert ids_of(table) == [0]
    with pytest.raises(ice.InvalidArgumentError, match="no branch 'other'"):
        ice.append(table, ids(0, 1), branch="other")


def test_a_branch_keeps_its_retention(catalog: SqlCatalog) -> None:
    """PyIceberg's own writes forget it."""
    table = make_table(catalog)
    start = ice.append(table, ids(0, 3)).snapshot_id
    assert start is not None
    table.manage_snapshots().create_branch(
        start, "a", max_ref_age_ms=10**12, max_snapshot_age_ms=10**11, min_snapshots_to_keep=7
    ).commit()
    ice.append(table, ids(3, 4), branch="a")
    with table.transaction() as transaction:
        ice.append(transaction, ids(4, 5), branch="a")
    ref = table.refresh().metadata.refs["a"]
    assert ref.snapshot_id == head_of(table, "a").snapshot_id
    assert (ref.max_ref_age_ms, ref.max_snapshot_age_ms) == (10**12, 10**11)
    assert ref.min_snapshots_to_keep == 7


@pytest.mark.parametrize("version", [1, 2])
def test_commits_to_two_branches_at_once_both_land(
    catalog: SqlCatalog, other: SqlCatalog, version: int
) -> None:
    """The second finds its branch unmoved, and its sequence number taken."""
    table = _branched(catalog, version=version)
    theirs = other.load_table("db.t")
    with before_commits(catalog, lambda: ice.append(theirs, ids(20, 22), branch="b")):
        ice.append(table, ids(10, 12), branch="a")
    assert ids_of(table, branch="a") == [0, 1, 2, 10, 11]
    assert ids_of(table, branch="b") == [0, 1, 2, 20, 21]
    if version == 2:
        numbers = [snapshot.sequence_number for snapshot in table.metadata.snapshots]
        assert len(set(numbers)) == 3


def test_a_change_of_another_branch_is_no_conflict(catalog: SqlCatalog, other: SqlCatalog) -> None:
    table = _branched(catalog)
    theirs = other.load_table("db.t")
    with before_commits(catalog, lambda: ice.append(theirs, ids(20, 22), branch="b")):
        ice.overwrite(table, ids(10, 11), branch="a")
    assert ids_of(table, branch="a") == [10]


def test_a_branch_that_is_removed_meanwhile_is_not_begun_anew(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = _branched(catalog)
    before = listing(table)
    theirs = other.load_table("db.t")
    for branch, write in (
        ("a", lambda: ice.append(table, ids(10, 11), branch="a")),
        ("b", lambda: ice.overwrite(table, ids(10, 11), branch="b")),
    ):
        with (
            before_commits(
                catalog,
                lambda name=branch: (
                    theirs.refresh().manage_snapshots().remove_branch(name).commit()
                ),
            ),
            pytest.raises(ice.CommitConflictError, match=f"branch '{branch}'.*was removed"),
        ):
            write()
        assert branch not in table.refresh().metadata.refs
    assert listing(table) == before


def test_a_branch_is_read_and_written_with_the_tables_current_schema(catalog: SqlCatalog) -> None:
    table = _branched(catalog)
    with table.update_schema() as update:
        update.rename_column("part", "portion")
    report = ice.delete(table, "portion = 0 and id > 0", branch="a")
    assert report.rows_deleted == 2
    assert ids_of(table, branch="a") == [0]
