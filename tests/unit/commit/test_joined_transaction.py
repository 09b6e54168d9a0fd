"""Transactions that join the changes to a branch to one snapshot."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType

import icestream as ice
from icestream.catalogs._pyiceberg.staging import table_of
from icestream.commit.change import Change
from icestream.commit.joined_transaction import JoinedChange, JoinedCreation, JoinedTransaction
from tests.support.commit_faults import ERRORS, WAITS, FaultyCatalog
from tests.support.loads import BY_PART, SCHEMA, batch, head_of, ids, ids_of, listing, make_table
from tests.support.stored import folder_of, referenced_files, stored_files


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog)
    ice.append(table, ids(0, 4))
    return table


def _unused_files(table: Table) -> set[str]:
    """Files in the table's folder that it does not refer to."""
    return stored_files(folder_of(table)) - referenced_files(table)


def test_each_write_sees_the_ones_before_and_there_is_one_snapshot(table: Table) -> None:
    with JoinedTransaction(table) as transaction:
        first = ice.append(transaction, ids(4, 6))
        deleted = ice.delete(transaction, "id in (0, 4)")
        merged = ice.merge(transaction, ids(5, 8), on="id", skip_unchanged=False)
        replaced = ice.overwrite(transaction, ids(20, 21), where="id = 1")
        ice.append(transaction, ids(30, 31))
    assert (deleted.rows_deleted, merged.rows_updated, merged.rows_inserted) == (2, 1, 2)
    assert replaced.rows_deleted == 1
    assert ids_of(table) == [2, 3, 5, 6, 7, 20, 30]
    assert len(table.metadata.snapshots) == 2
    head = head_of(table)
    assert head.snapshot_id == first.snapshot_id
    assert head.summary is not None
    assert head.summary.operation == Operation.OVERWRITE
    assert head.summary["total-records"] == "7"


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_rows_that_were_added_and_changed_in_one_transaction(
    catalog: SqlCatalog, mode: str
) -> None:
    table = make_table(catalog, write__delete__mode=mode, write__merge__mode=mode)
    ice.append(table, ids(0, 4))
    with JoinedTransaction(table) as transaction:
        ice.append(transaction, ids(4, 8))
        ice.delete(transaction, "id in (1, 5)")
        ice.delete(transaction, "id in (2, 6)")
        ice.merge(transaction, ids(7, 9), on="id", skip_unchanged=False)
    assert ids_of(table) == [0, 3, 4, 7, 8]
    assert len(table.metadata.snapshots) == 2


def test_nothing_is_left_but_the_files_of_the_table(table: Table) -> None:
    with JoinedTransaction(table) as transaction:
        ice.append(transaction, ids(4, 6))
        ice.delete(transaction, "id = 4")  # rewrites the file of the line above
        ice.delete(transaction, "id = 0")
    assert ids_of(table) == [1, 2, 3, 5]
    assert _unused_files(table) == set()


def test_an_error_in_the_block_deletes_all_files(table: Table) -> None:
    before = listing(table)
    transaction = JoinedTransaction(table)

    def fail() -> None:
        with transaction:
            ice.append(transaction, ids(4, 6))
            ice.delete(transaction, "id = 0")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert listing(table) == before
    with pytest.raises(RuntimeError):
        transaction.commit_transaction()
    assert ids_of(table) == [0, 1, 2, 3]


def test_rows_that_are_added_and_deleted_again_need_no_snapshot(table: Table) -> None:
    before = listing(table)
    with JoinedTransaction(table) as transaction:
        ice.append(transaction, ids(4, 6))
        ice.delete(transaction, "id >= 4")
    assert (listing(table), ids_of(table)) == (before, [0, 1, 2, 3])


@pytest.mark.parametrize(
    "write",
    [
        lambda transaction: ice.delete(transaction, "id = 1"),
        lambda transaction: ice.overwrite(transaction, ids(9, 10)),
        lambda transaction: ice.merge(transaction, ids(1, 2), on="id", skip_unchanged=False),
        lambda transaction: ice.delete(transaction, "id = 50"),  # nothing matches
    ],
)
def test_rows_that_others_add_meanwhile_are_a_conflict(
    table: Table, other: SqlCatalog, write: Callable[[Any], object]
) -> None:
    transaction = JoinedTransaction(table)
    ice.append(transaction, ids(4, 6))
    write(transaction)
    ice.append(other.load_table("db.t"), ids(0, 60))
    before = listing(table)
    with pytest.raises(ice.CommitConflictError):
        transaction.commit_transaction()
    assert len(listing(table)) < len(before)
    assert len(ids_of(table)) == 64


def test_appends_are_committed_beside_those_of_others(table: Table, other: SqlCatalog) -> None:
    with JoinedTransaction(table) as transaction:
        ice.append(transaction, ids(4, 5))
        ice.append(transaction, ids(5, 6))
        ice.append(other.load_table("db.t"), ids(6, 7))
    assert ids_of(table) == [0, 1, 2, 3, 4, 5, 6]
    assert len(table.metadata.snapshots) == 3


def test_branches_have_a_snapshot_each(table: Table) -> None:
    table.manage_snapshots().create_branch(head_of(table).snapshot_id, "b").commit()
    with JoinedTransaction(table) as transaction:
        for branch in ("main", "b", "main", "b"):
            ice.append(transaction, ids(4, 5), branch=branch)
        ice.delete(transaction, "id = 0", branch="b")
    assert len(table.metadata.snapshots) == 3
    assert ids_of(table) == [0, 1, 2, 3, 4, 4]
    assert ids_of(table, branch="b") == [1, 2, 3, 4, 4]


def test_a_load_id_and_changes_by_pyiceberg_get_snapshots_of_their_own(table: Table) -> None:
    with JoinedTransaction(table) as transaction:
        ice.append(transaction, ids(4, 5))
        ice.append(transaction, ids(5, 6), load_id="monday")
        ice.append(transaction, ids(6, 7))
        transaction.update_snapshot().fast_append().commit()
        ice.append(transaction, ids(7, 8))
        transaction.set_properties({"a": "b"})
        with transaction.update_schema() as update:
            update.add_column("more", LongType())
        ice.delete(transaction, "id = 7 and more is null")
    assert ids_of(table) == [0, 1, 2, 3, 4, 5, 6]
    assert table.properties["a"] == "b"
    assert ice.append(table, ids(5, 6), load_id="monday").already_committed


def test_replaced_partitions_are_joined(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch([(0, 0), (1, 1), (2, 2)]))
    with JoinedTransaction(table) as transaction:
        ice.overwrite(transaction, batch([(10, 1), (11, 2)]), partitions="dynamic")
        ice.overwrite(transaction, batch([(12, 2), (13, 3)]), partitions="dynamic")
        ice.delete(transaction, "id = 13")
    assert len(table.metadata.snapshots) == 2
    assert ids_of(table) == [0, 10, 12]
    assert _unused_files(table) == set()


def test_filters_and_partitions_have_no_common_form_and_cover_all_rows(table: Table) -> None:
    by_filter = Change(Operation.DELETE, conflict_filter=parse("id = 1"), conflict_schema_id=0)
    by_value = Change(
        Operation.OVERWRITE, conflict_partitions=frozenset({(1,)}), conflict_schema_id=0
    )
    renamed = Change(Operation.DELETE, conflict_filter=parse("id = 2"), conflict_schema_id=1)
    for second, expected in ((by_value, AlwaysTrue()), (renamed, AlwaysTrue())):
        joined = JoinedChange(by_filter, None, 1, table.io, "db.t")
        joined.add(by_filter, None)
        assert joined.change().conflict_filter == parse("id = 1")
        joined.add(second, None)
        assert joined.change().conflict_filter == expected
        assert joined.change().conflict_partitions is None
        assert joined.change().conflict_schema_id == second.conflict_schema_id


def _calls(work: Callable[[], object]) -> int:
    """The number of calls of functions, which does not depend on the machine."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("appends", [60, pytest.param(1_000, marks=pytest.mark.slow)])
def test_the_last_append_costs_as_much_as_the_tenth(table: Table, appends: int) -> None:
    with JoinedTransaction(table) as transaction:
        costs = [
            _calls(lambda n=n: ice.append(transaction, ids(n, n + 1)))  # type: ignore[misc]
            for n in range(10, appends + 10)
        ]
    assert costs[-1] <= 1.2 * costs[9]
    assert len(table.metadata.snapshots) == 2
    assert len(ids_of(table)) == appends + 4
    assert _unused_files(table) == set()


def test_a_table_is_created_with_its_rows_unless_another_one_exists(catalog: SqlCatalog) -> None:
    def creation() -> JoinedCreation:
        return JoinedCreation(table_of(catalog.create_table_transaction("db.new", SCHEMA)))

    first, second = creation(), creation()
    for transaction in (first, second):
        ice.append(transaction, ids(0, 3))
        ice.delete(transaction, "id = 1")
    assert ids_of(first.commit_transaction().catalog.load_table("db.new")) == [0, 2]
    with pytest.raises(CommitFailedException):
        second.commit_transaction()
    table = catalog.load_table("db.new")
    assert ids_of(table) == [0, 2]
    assert len(table.metadata.snapshots) == 1
    assert _unused_files(table) == set()


def _faulty(catalog: SqlCatalog, error: str, *, commits: bool, gone: bool = False) -> FaultyCatalog:
    return FaultyCatalog(
        catalog, ERRORS[error], commits=commits, always=True, unreachable=gone, remote=False
    )


def _write(transaction: JoinedTransaction) -> None:
    ice.append(transaction, ids(4, 8))
    ice.delete(transaction, "id < 6")


@pytest.mark.parametrize("error", ["unknown", "403", "value", "read timeout", "socket"])
@pytest.mark.parametrize("creates", [False, True])
def test_a_lost_answer_is_looked_up_in_the_table(
    catalog: SqlCatalog, table: Table, error: str, creates: bool
) -> None:
    with table.transaction() as settings:
        settings.set_properties(WAITS)

    def transaction() -> JoinedTransaction:
        if creates:
            new = catalog.create_table_transaction("db.new", SCHEMA, properties=WAITS)
            return JoinedCreation(table_of(new))
        return JoinedTransaction(table)

    refused = transaction()
    _write(refused)
    before = stored_files(folder_of(refused.base))
    with _faulty(catalog, error, commits=False), pytest.raises(type(ERRORS[error]())):
        refused.commit_transaction()
    folder = folder_of(refused.base)
    if creates:
        assert not [path for path in stored_files(folder) if not path.endswith("metadata.json")]
        assert not catalog.table_exists("db.new")
    else:
        assert _unused_files(table) == set()
        assert ids_of(table) == [0, 1, 2, 3]
    assert before
    lost = transaction()
    _write(lost)
    with _faulty(catalog, error, commits=True):
        committed = catalog.load_table(lost.commit_transaction().name())
    assert ids_of(committed) == [6, 7]
    assert _unused_files(committed) <= stored_files(folder)  # JSON of the refused commit
    assert not [path for path in _unused_files(committed) if not path.endswith("metadata.json")]


def test_an_unknown_outcome_keeps_all_files(catalog: SqlCatalog, table: Table) -> None:
    with table.transaction() as settings:
        settings.set_properties(WAITS)
    transaction = JoinedTransaction(table)
    _write(transaction)
    with (
        _faulty(catalog, "socket", commits=False, gone=True) as faulty,
        pytest.raises(ice.CommitUnknownError),
    ):
        transaction.commit_transaction()
    faulty.land_late()
    assert ids_of(table) == [6, 7]
    assert referenced_files(table) <= stored_files(folder_of(table))


@pytest.mark.parametrize("creates", [False, True])
def test_an_interrupted_commit_in_the_block_keeps_all_files(
    catalog: SqlCatalog, table: Table, creates: bool
) -> None:
    if creates:
        transaction: JoinedTransaction = JoinedCreation(
            table_of(catalog.create_table_transaction("db.new", SCHEMA))
        )
    else:
        transaction = JoinedTransaction(table)

    def commit_inside() -> None:
        with transaction:
            _write(transaction)
            transaction.commit_transaction()

    faulty = FaultyCatalog(
        catalog, KeyboardInterrupt, commits=True, always=True, unreachable=False, remote=False
    )
    with faulty, pytest.raises(KeyboardInterrupt):
        commit_inside()
    committed = catalog.load_table(transaction.base.name())
    assert ids_of(committed) == [6, 7]
    assert referenced_files(committed) <= stored_files(folder_of(committed))
