"""One try of a commit: it writes its metadata, or leaves no file."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions.parser import parse
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

import icestream as ice
from icestream.commit.attempt import attempt, delete_lost
from icestream.commit.change import Change
from icestream.commit.snapshot.producer import Produced
from tests.support.loads import head_of, ids, listing, make_table
from tests.support.stored import folder_of, stored_files
from tests.support.tables import upgrade_to_v3


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog)
    ice.append(table, ids(0, 3))
    return table


def _try(table: Table, change: Change, *, io: FileIO | None = None, base: int | None = 0) -> Any:
    head = head_of(table)
    base_id = head.snapshot_id if base == 0 else base
    return attempt(
        change,
        table.metadata,
        io or table.io,
        base_id=base_id,
        head=head,
        snapshot_id=7,
        table="db.t",
    )


def test_the_metadata_is_written_and_the_table_stays_as_it_is(table: Table) -> None:
    before, head = listing(table), head_of(table)
    produced = _try(table, Change(Operation.APPEND, load_id="monday"))
    assert produced.parent_id == head.snapshot_id
    assert produced.manifest_list in produced.paths
    assert len(listing(table) - before) == len(produced.paths)
    assert head_of(table) == head


def test_a_conflict_leaves_no_file(table: Table) -> None:
    before = stored_files(folder_of(table))
    change = Change(Operation.OVERWRITE, conflict_filter=parse("id = 1"))
    with pytest.raises(ice.CommitConflictError, match="should have seen"):
        _try(table, change, base=None)
    assert stored_files(folder_of(table)) == before


def test_a_table_of_version_3_is_refused(table: Table) -> None:
    upgrade_to_v3(table)
    with pytest.raises(ice.CommitConflictError, match="format version 3"):
        _try(table.refresh(), Change(Operation.APPEND, load_id="monday"))


def test_a_branch_that_was_removed_meanwhile_is_refused(table: Table) -> None:
    change = Change(
        Operation.APPEND,
        branch="audit",
        base_snapshot_id=head_of(table).snapshot_id,
        load_id="monday",
    )
    with pytest.raises(ice.CommitConflictError, match=r"'audit' of db.t was removed"):
        _try(table, change)


def test_a_store_that_refuses_metadata_is_a_commit_error(table: Table) -> None:
    class Refusing(type(table.io)):  # type: ignore[misc]
        def new_output(self, location: str) -> Any:
            raise PermissionError(f"{location} is read-only")

    with pytest.raises(ice.CommitError, match=r"could not be read or written: .*read-only"):
        _try(table, Change(Operation.APPEND, load_id="monday"), io=Refusing())


def test_only_the_metadata_of_tries_that_lost_is_deleted(table: Table) -> None:
    change = Change(Operation.APPEND, load_id="monday")
    attempts: list[Produced] = [_try(table, change) for _ in range(3)]
    won = attempts[1]
    delete_lost(table.io, attempts, won.manifest_list)
    left = {path.rpartition("/")[2] for path in won.paths}
    lost = {path.rpartition("/")[2] for each in attempts for path in each.paths} - left
    names = {name.rpartition("/")[2] for name in listing(table)}
    assert left <= names
    assert not lost & names


def test_nothing_is_deleted_if_the_committed_list_is_of_none_of_the_tries(table: Table) -> None:
    attempts: list[Produced] = [_try(table, Change(Operation.APPEND, load_id="monday"))]
    before = listing(table)
    delete_lost(table.io, attempts, "another.avro")
    delete_lost(table.io, attempts, None)
    assert listing(table) == before
