"""Commits that move branches, tried until the table is as wanted."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate

import icestream as ice
from icestream.commit.ref_change import RefChange, change_refs
from tests.support.loads import after_commits, before_commits, head_of, ids, make_table

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 1))
    return table


def _audit_at_main(metadata: TableMetadata) -> RefChange | None:
    """Creates or moves the branch `audit` to the head of main."""
    main, audit = metadata.refs["main"], metadata.refs.get("audit")
    if audit is not None and audit.snapshot_id == main.snapshot_id:
        return None
    update = SetSnapshotRefUpdate(
        ref_name="audit",
        type=SnapshotRefType.BRANCH,
        snapshot_id=main.snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    here = AssertRefSnapshotId(ref="audit", snapshot_id=audit.snapshot_id if audit else None)
    return RefChange((update,), (here,))


def test_a_table_that_is_as_wanted_is_not_committed_to(catalog: SqlCatalog, table: Table) -> None:
    change_refs(table, _audit_at_main, what="creating")
    with before_commits(catalog, lambda: pytest.fail("a commit"), times=0):
        metadata = change_refs(table, _audit_at_main, what="creating")
    assert metadata.refs["audit"].snapshot_id == head_of(table).snapshot_id


def test_a_change_is_made_again_from_the_table_that_others_left(
    catalog: SqlCatalog, other: SqlCatalog, table: Table
) -> None:
    theirs = other.load_table("db.t")
    with before_commits(catalog, lambda: ice.append(theirs, ids(1, 2))):
        change_refs(table, _audit_at_main, what="creating")
    assert head_of(table, "audit") == head_of(table)
    assert len(table.metadata.snapshots) == 2


def test_a_change_whose_answer_was_lost_is_not_made_twice(
    catalog: SqlCatalog, table: Table
) -> None:
    def lose() -> None:
        raise ConnectionError("lost")

    versions = len(table.metadata.metadata_log)
    with after_commits(catalog, lose):
        change_refs(table, _audit_at_main, what="creating")
    assert len(table.refresh().metadata.metadata_log) == versions + 1


def test_a_refusal_names_the_change(catalog: SqlCatalog, table: Table) -> None:
    def refuse() -> None:
        raise ForbiddenError("not yours")

    with (
        before_commits(catalog, refuse),
        pytest.raises(ice.CommitError, match=r"refused creating of db\.t: .*not yours"),
    ):
        change_refs(table, _audit_at_main, what="creating")


def test_others_that_always_come_first_are_a_conflict(catalog: SqlCatalog) -> None:
    table = make_table(catalog, commit__retry__num_retries="1", **_QUICK)
    ice.append(table, ids(0, 1))

    def lose() -> None:
        raise CommitFailedException("another commit was first")

    with (
        before_commits(catalog, lose, times=2),
        pytest.raises(ice.CommitConflictError, match="lost against other commits 2 times"),
    ):
        change_refs(table, _audit_at_main, what="creating")
    assert "audit" not in table.refresh().metadata.refs
