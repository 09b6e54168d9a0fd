"""A rollback moves a branch back in its own history, and nowhere else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.operations.upkeep.metadata.refs import create_ref, publish_branch
from icestream.operations.upkeep.metadata.rollback import rollback
from tests.support.loads import after_commits, before_commits, head_of, ids, make_table, rows_of

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog, **_QUICK)
    for number in range(3):
        ice.append(table, ids(number, number + 1), load_id=f"load {number}")
    return table


def test_one_step_undoes_the_newest_snapshot_and_its_load(table: Table) -> None:
    first, second, third = (each.snapshot_id for each in table.snapshots())
    assert rollback(table, dry_run=True).undone == (third,)
    assert head_of(table).snapshot_id == third
    report = rollback(table)
    assert (report.snapshot_id, report.previous_snapshot_id) == (second, third)
    assert (report.rows, report.previous_rows, report.files, report.previous_files) == (2, 3, 2, 3)
    assert rows_of(table) == [(0, 0), (1, 0)]
    assert not ice.append(table, ids(2, 3), load_id="load 2").already_committed
    assert first in {each.snapshot_id for each in table.snapshots()}


def test_the_snapshot_is_found_by_its_id_or_by_a_time(table: Table) -> None:
    first, second, third = table.snapshots()
    time = datetime.fromtimestamp(third.timestamp_ms / 1000, UTC)
    expected = next(
        each for each in (third, second, first) if each.timestamp_ms < third.timestamp_ms
    )
    assert rollback(table, before=time, dry_run=True).snapshot_id == expected.snapshot_id
    report = rollback(table, to=first.snapshot_id)
    assert report.undone == (third.snapshot_id, second.snapshot_id)
    assert rollback(table, to=first.snapshot_id).undone == ()
    assert rows_of(table) == [(0, 0)]


def test_what_is_not_in_the_history_is_refused_with_a_remedy(table: Table) -> None:
    first, _, third = (each.snapshot_id for each in table.snapshots())
    create_ref(table, "side", "branch", snapshot_id=first)
    ice.append(table, ids(7, 8), branch="side")
    side = head_of(table, "side").snapshot_id
    with pytest.raises(ice.InvalidArgumentError, match="Create a branch at it"):
        rollback(table, to=side)
    rollback(table, to=first)
    with pytest.raises(ice.InvalidArgumentError, match="publish that branch to move forward"):
        rollback(table, to=third)
    create_ref(table, "forward", "branch", snapshot_id=third)
    publish_branch(table, "forward")
    assert rows_of(table) == [(0, 0), (1, 0), (2, 0)]
    with pytest.raises(ice.InvalidArgumentError, match="has no snapshot 1"):
        rollback(table, to=1)
    with pytest.raises(ice.InvalidArgumentError, match="no snapshot before that time"):
        rollback(table, before=5)
    with pytest.raises(ice.InvalidArgumentError, match="not both"):
        rollback(table, to=first, before=5)


def test_a_table_without_an_earlier_snapshot_stays(catalog: SqlCatalog, table: Table) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="is empty"):
        rollback(make_table(catalog, "db.empty"))
    rollback(table, to=table.snapshots()[0].snapshot_id)
    with pytest.raises(ice.InvalidArgumentError, match="it is the first one"):
        rollback(table)


def test_a_commit_that_comes_in_between_is_not_undone(
    catalog: SqlCatalog, other: SqlCatalog, table: Table
) -> None:
    theirs = other.load_table("db.t")
    with (
        before_commits(catalog, lambda: ice.append(theirs, ids(5, 6))),
        pytest.raises(ice.CommitConflictError, match=r"moved 'main' of db\.t meanwhile"),
    ):
        rollback(table)
    assert rows_of(table) == [(0, 0), (1, 0), (2, 0), (5, 0)]


def test_a_rollback_whose_answer_was_lost_is_not_repeated(
    catalog: SqlCatalog, other: SqlCatalog, table: Table
) -> None:
    def lose() -> None:
        ice.append(other.load_table("db.t"), ids(9, 10))
        raise ConnectionError("lost")

    with after_commits(catalog, lose):
        rollback(table)
    assert rows_of(table) == [(0, 0), (1, 0), (9, 0)]
