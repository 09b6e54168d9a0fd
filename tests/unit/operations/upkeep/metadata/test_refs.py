"""Branches and tags are created, deleted, renamed and published, each in one commit."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.operations.upkeep.metadata.refs import (
    Publication,
    Retention,
    create_ref,
    delete_ref,
    is_in_history,
    list_refs,
    publish_branch,
    rename_branch,
)
from tests.support.loads import after_commits, before_commits, head_of, ids, make_table, rows_of

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 1))
    ice.append(table, ids(1, 2))
    return table


def test_a_branch_or_tag_points_to_the_snapshot_that_it_is_given(table: Table) -> None:
    first, second = (each.snapshot_id for each in table.snapshots())
    retention = Retention(max_ref_age_ms=5, max_snapshot_age_ms=6, min_snapshots_to_keep=7)
    assert create_ref(table, "side", "branch", snapshot_id=first, retention=retention) == first
    assert create_ref(table, "then", "tag", at="side") == first
    assert create_ref(table, "now", "tag") == second
    side = list_refs(table, "branch")["side"]
    assert (side.max_ref_age_ms, side.max_snapshot_age_ms, side.min_snapshots_to_keep) == (5, 6, 7)
    assert list(list_refs(table, "tag")) == ["now", "then"]
    assert rows_of(table, branch="side") == [(0, 0)]


def test_what_cannot_be_created_is_refused(catalog: SqlCatalog, table: Table) -> None:
    create_ref(table, "v1", "tag")
    for name, settings, words in (
        ("v1", {}, "already has a tag 'v1'"),
        ("main", {}, "already has a branch 'main'"),
        (" ", {}, "give it a name"),
        ("side", {"snapshot_id": 1}, "has no snapshot 1"),
        ("side", {"at": "nope"}, "has no branch 'nope': it has main"),
    ):
        with pytest.raises(ice.InvalidArgumentError, match=words):
            create_ref(table, name, "branch", **settings)
    empty = make_table(catalog, "db.empty")
    with pytest.raises(ice.InvalidArgumentError, match="is empty"):
        create_ref(empty, "side", "branch")
    with pytest.raises(ice.InvalidArgumentError, match="first write"):
        create_ref(empty, "main", "branch")


def test_a_deleted_branch_leaves_the_others_alone(table: Table) -> None:
    create_ref(table, "side", "branch")
    create_ref(table, "v1", "tag")
    with pytest.raises(ice.InvalidArgumentError, match=r"'v1' of db\.t is a tag"):
        delete_ref(table, "v1", "branch")
    with pytest.raises(ice.InvalidArgumentError, match="'main' can't be deleted"):
        delete_ref(table, "main", "branch")
    assert delete_ref(table, "side", "branch") == head_of(table).snapshot_id
    delete_ref(table, "v1", "tag")
    assert set(table.refresh().metadata.refs) == {"main"}


def test_a_branch_that_moves_meanwhile_is_not_deleted_nor_renamed(
    catalog: SqlCatalog, other: SqlCatalog, table: Table
) -> None:
    create_ref(table, "side", "branch")
    theirs = other.load_table("db.t")
    for change in (
        lambda: delete_ref(table, "side", "branch"),
        lambda: rename_branch(table, "side", "new"),
    ):
        with (
            before_commits(catalog, lambda: ice.append(theirs, ids(2, 3), branch="side")),
            pytest.raises(ice.CommitConflictError, match="Nothing was changed"),
        ):
            change()
    assert set(table.refresh().metadata.refs) == {"main", "side"}


def test_a_renamed_branch_keeps_its_retention_and_its_loads(table: Table) -> None:
    create_ref(table, "side", "branch", retention=Retention(max_ref_age_ms=5))
    ice.append(table, ids(2, 3), branch="side", load_id="third")
    head = rename_branch(table, "side", "new")
    refs = table.refresh().metadata.refs
    assert (set(refs), refs["new"].snapshot_id) == ({"main", "new"}, head)
    assert refs["new"].max_ref_age_ms == 5
    assert ice.append(table, ids(2, 3), branch="new", load_id="third").already_committed
    assert "icestream.load.new:third" in table.metadata.properties
    assert "icestream.load.side:third" not in table.metadata.properties
    for name, new in (("main", "x"), ("new", "main"), ("new", ""), ("nope", "x")):
        with pytest.raises(ice.InvalidArgumentError):
            rename_branch(table, name, new)


def test_a_published_branch_and_its_loads_are_on_main(table: Table) -> None:
    before = head_of(table).snapshot_id
    create_ref(table, "side", "branch")
    ice.append(table, ids(2, 3), branch="side", load_id="third")
    done = publish_branch(table, "side", delete=True)
    assert done == Publication(head_of(table).snapshot_id, before)
    assert rows_of(table) == [(0, 0), (1, 0), (2, 0)]
    assert set(table.metadata.refs) == {"main"}
    assert ice.append(table, ids(2, 3), load_id="third").already_committed


def test_a_branch_that_lacks_snapshots_of_main_is_not_published(table: Table) -> None:
    create_ref(table, "side", "branch")
    ice.append(table, ids(2, 3), branch="side")
    ice.append(table, ids(3, 4))
    main, side = head_of(table).snapshot_id, head_of(table, "side").snapshot_id
    assert not is_in_history(table.metadata, main, side)
    with pytest.raises(ice.CommitConflictError, match="has snapshots that 'side' lacks"):
        publish_branch(table, "side")
    with pytest.raises(ice.InvalidArgumentError, match="onto itself"):
        publish_branch(table, "side", onto="side")
    with pytest.raises(ice.InvalidArgumentError, match="has no branch 'nope'"):
        publish_branch(table, "side", onto="nope")
    assert head_of(table).snapshot_id == main


def test_commits_to_main_before_the_publication_are_not_lost(
    catalog: SqlCatalog, other: SqlCatalog, table: Table
) -> None:
    create_ref(table, "side", "branch")
    ice.append(table, ids(2, 3), branch="side")
    theirs = other.load_table("db.t")
    with (
        before_commits(catalog, lambda: ice.append(theirs, ids(3, 4))),
        pytest.raises(ice.CommitConflictError, match="changed 'main'"),
    ):
        publish_branch(table, "side")
    assert rows_of(table) == [(0, 0), (1, 0), (3, 0)]


def test_a_lost_answer_is_looked_up(catalog: SqlCatalog, table: Table) -> None:
    def lose() -> None:
        raise ConnectionError("lost")

    with after_commits(catalog, lose):
        create_ref(table, "side", "branch")
    ice.append(table, ids(2, 3), branch="side")
    with after_commits(catalog, lose):
        rename_branch(table, "side", "new")
    with after_commits(catalog, lose):
        publish_branch(table, "new")
    with after_commits(catalog, lose):
        delete_ref(table, "new", "branch")
    assert set(table.refresh().metadata.refs) == {"main"}
    assert rows_of(table) == [(0, 0), (1, 0), (2, 0)]
