"""Writes that are staged in an open PyIceberg transaction, which its owner commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
import requests
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.types import LongType

import icestream as ice
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import (
    BY_PART,
    SCHEMA,
    after_commits,
    batch,
    before_commits,
    head_of,
    ids,
    ids_of,
    listing,
    make_table,
    markers_of,
    raising,
    rows_of,
    snapshots_of,
    summary_of,
)
from tests.support.stored import folder_of
from tests.support.tables import data_file_paths

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


@pytest.mark.parametrize("version", [1, 2])
def test_a_staged_append_is_committed_by_its_owner(catalog: SqlCatalog, version: int) -> None:
    table = make_table(catalog, version=version)
    transaction = table.transaction()
    report = ice.append(transaction, ids(0, 3), properties={"who": "me"})
    assert report.rows_inserted == 3
    assert snapshots_of(catalog.load_table("db.t")) == []
    assert len(markers_of(table)) == 1
    transaction.commit_transaction()
    assert ids_of(table) == [0, 1, 2]
    assert snapshots_of(table) == [report.snapshot_id]
    assert summary_of(table)["who"] == "me"
    assert markers_of(table) == []


def test_each_kind_of_write_can_be_staged(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch([(n, n // 2) for n in range(6)]))
    for write, left in [
        (lambda t: ice.delete(t, "id = 0"), [1, 2, 3, 4, 5]),
        (lambda t: ice.overwrite(t, ids(7, 8, 2), partitions="dynamic"), [1, 2, 3, 7]),
        (lambda t: ice.overwrite(t, ids(8, 9, 1), where="id < 3"), [3, 7, 8]),
        (lambda t: ice.overwrite(t, ids(9, 10)), [9]),
    ]:
        count = len(snapshots_of(table))
        with table.transaction() as transaction:
            report = write(transaction)
        assert ids_of(table) == left
        assert snapshots_of(table)[count:] == [report.snapshot_id]
    assert markers_of(table) == []


def test_two_staged_writes_are_two_snapshots_of_one_commit(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 3))
    with table.transaction() as transaction:
        first = ice.append(transaction, ids(3, 5))
        second = ice.delete(transaction, "id in (0, 4)")
    assert ids_of(table) == [1, 2, 3]
    assert snapshots_of(table)[1:] == [first.snapshot_id, second.snapshot_id]
    assert head_of(table).parent_snapshot_id == first.snapshot_id
    assert second.rows_deleted == 2
    numbers = [snapshot.sequence_number for snapshot in table.metadata.snapshots]
    assert numbers == [1, 2, 3]
    assert summary_of(table)["total-records"] == "3"


def test_they_go_with_other_updates_and_with_pyicebergs_own_writes(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    with table.transaction() as transaction:
        transaction.set_properties({"colour": "red"})
        with transaction.update_schema() as update:
            update.add_column("more", LongType())
        more = ids(0, 2).append_column("more", pa.array([1, 2]))
        ice.append(transaction, more)
        transaction.append(ids(2, 3).append_column("more", pa.array([3])))
        ice.delete(transaction, "more = 2")
    assert table.properties["colour"] == "red"
    assert ids_of(table) == [0, 2]
    assert len(snapshots_of(table)) == 3


def test_a_schema_evolves_on_top_of_one_that_the_transaction_has_changed(
    catalog: SqlCatalog,
) -> None:
    table = make_table(catalog)
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.add_column("more", LongType())
        rows = ids(0, 1).append_column("more", pa.array([1])).append_column("yet", pa.array([2]))
        ice.append(transaction, rows, schema_mode="evolve")
        rows = rows.append_column("another", pa.array([3]))
        ice.append(transaction, rows, schema_mode="evolve")
    found = table.refresh().scan().to_arrow().to_pylist()
    assert {row["another"] for row in found} == {3, None}
    assert all((row["id"], row["more"], row["yet"]) == (0, 1, 2) for row in found)


def test_a_table_is_created_with_its_first_load(catalog: SqlCatalog) -> None:
    transaction = catalog.create_table_transaction("db.new", SCHEMA)
    report = ice.append(transaction, ids(0, 3), load_id="first")
    transaction.commit_transaction()
    table = catalog.load_table("db.new")
    assert ids_of(table) == [0, 1, 2]
    assert snapshots_of(table) == [report.snapshot_id]
    assert markers_of(table) == []
    assert ice.append(table, ids(0, 3), load_id="first").already_committed


def test_a_staged_append_is_retried_beside_another_append(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    transaction = table.transaction()
    report = ice.append(transaction, ids(0, 3))
    ice.append(other.load_table("db.t"), ids(10, 12))
    transaction.commit_transaction()
    assert ids_of(table) == [0, 1, 2, 10, 11]
    assert snapshots_of(table)[-1] == report.snapshot_id
    # Nothing of the first try is left: two loads of a file, a manifest and a list each.
    assert len(listing(table)) == 6


def _refused(transaction: Transaction, error: type[Exception] = ice.CommitConflictError) -> None:
    with pytest.raises(error):
        transaction.commit_transaction()


@pytest.mark.parametrize(
    "stage",
    [
        lambda t: ice.overwrite(t, ids(50, 51)),
        lambda t: ice.overwrite(t, ids(50, 51), where="id >= 10"),
        lambda t: ice.overwrite(t, ids(50, 51, 0), partitions="dynamic"),
        lambda t: ice.delete(t, "id = 1 or id = 11"),
    ],
    ids=["all", "where", "dynamic", "delete"],
)
def test_a_conflicting_append_refuses_the_transaction_and_nothing_is_left(
    catalog: SqlCatalog, other: SqlCatalog, stage: Callable[[Transaction], object]
) -> None:
    table = make_table(catalog, spec=BY_PART, **_QUICK)
    ice.append(table, ids(0, 3))
    transaction = table.transaction()
    stage(transaction)
    theirs = other.load_table("db.t")
    before_staging = listing(theirs)
    ice.append(theirs, ids(10, 12))
    added = listing(theirs) - before_staging
    _refused(transaction)
    assert ids_of(theirs) == [0, 1, 2, 10, 11]
    left = listing(table) - added
    assert markers_of(table) == []
    assert len([n for n in left if n.startswith("data")]) == 1
    assert len([n for n in left if n.startswith("metadata")]) == 2


def test_conflicts_are_looked_for_below_what_was_staged_before(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """The second change was planned on top of the first: others' rows lie below both."""
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    transaction = table.transaction()
    ice.append(transaction, ids(3, 5))
    ice.delete(transaction, "id = 0")
    theirs = other.load_table("db.t")
    commit_position_deletes(theirs, {data_file_paths(theirs)[0]: [1]})
    _refused(transaction)
    assert ids_of(table) == [0, 2]
    assert markers_of(table) == []


def test_conflicts_go_unseen_neither_when_the_table_object_is_refreshed_meanwhile(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 3))
    before = listing(table)
    theirs = other.load_table("db.t")

    def stream() -> Any:
        yield from ids(50, 51).to_batches()
        ice.append(theirs, ids(10, 12))
        table.refresh()

    transaction = table.transaction()
    with pytest.raises(ice.CommitConflictError):
        ice.overwrite(transaction, stream())
    assert ids_of(theirs) == [0, 1, 2, 10, 11]
    assert len(listing(table) - before) == 3  # theirs
    transaction.commit_transaction()  # there is nothing in it
    assert len(snapshots_of(table)) == 2


def test_a_load_id_that_another_commits_first_refuses_the_transaction(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    transaction = table.transaction()
    ice.append(transaction, ids(0, 3), load_id="same")
    theirs = other.load_table("db.t")
    staged = listing(theirs)
    ice.append(theirs, ids(0, 3), load_id="same")
    added = listing(theirs) - staged
    _refused(transaction)
    assert ids_of(table) == [0, 1, 2]
    assert listing(table) == added


def test_the_same_load_id_twice_in_a_transaction_is_one_load(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    with table.transaction() as transaction:
        first = ice.append(transaction, ids(0, 3), load_id="same")
        second = ice.append(transaction, ids(0, 3), load_id="same")
    assert second.already_committed
    assert second.snapshot_id == first.snapshot_id
    assert ids_of(table) == [0, 1, 2]


def test_a_refused_commit_deletes_what_was_staged(catalog: SqlCatalog) -> None:
    table = make_table(catalog, commit__retry__num_retries="0")
    ice.append(table, ids(0, 3))
    before = listing(table)
    transaction = table.transaction()
    ice.append(transaction, ids(3, 5))
    ice.delete(transaction, "id = 1")
    with before_commits(catalog, raising(CommitFailedException("no"))):
        _refused(transaction, CommitFailedException)
    assert listing(table) == before


def test_an_unknown_outcome_keeps_every_file_and_the_marker(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    transaction = table.transaction()
    ice.append(transaction, ids(3, 5))
    staged = listing(table)
    with before_commits(catalog, raising(CommitStateUnknownException("lost"))):
        _refused(transaction, CommitStateUnknownException)
    assert listing(table) == staged
    assert len(markers_of(table)) == 1


_FALSE = raising(CommitFailedException("a copy of the request came first"))


def _staged(catalog: SqlCatalog) -> tuple[Table, Transaction]:
    table = make_table(catalog, commit__retry__num_retries="0", **_QUICK)
    ice.append(table, ids(0, 3))
    transaction = table.transaction()
    ice.append(transaction, ids(3, 5))
    ice.delete(transaction, "id = 1")
    return table, transaction


def test_a_transaction_that_was_committed_and_is_called_refused_keeps_its_files(
    catalog: SqlCatalog,
) -> None:
    table, transaction = _staged(catalog)
    with after_commits(catalog, _FALSE), pytest.raises(ice.CommitUnknownError) as caught:
        transaction.commit_transaction()
    assert "is in the table" in str(caught.value)
    assert caught.value.snapshot_id in snapshots_of(table)
    assert ids_of(table) == [0, 2, 3, 4]


def test_a_transaction_whose_refusal_can_not_be_looked_into_keeps_its_files(
    catalog: SqlCatalog,
) -> None:
    table, transaction = _staged(catalog)
    gone = mock.patch.object(catalog, "load_table", side_effect=requests.ConnectionError("gone"))

    def refuse() -> None:
        gone.start()
        _FALSE()

    with after_commits(catalog, refuse), pytest.raises(ice.CommitUnknownError, match="not known"):
        transaction.commit_transaction()
    gone.stop()
    assert ids_of(table) == [0, 2, 3, 4]
    assert len(markers_of(table)) == 2


def test_a_transaction_that_may_still_land_keeps_its_files(catalog: SqlCatalog) -> None:
    table, transaction = _staged(catalog)
    staged, commit, sent = listing(table), catalog.commit_table, list[Any]()

    def refuse(*args: Any) -> None:
        sent.extend(args)
        _FALSE()

    with (
        mock.patch("icestream.commit.outcome.unknown_outcome.has_ended", return_value=False),
        mock.patch.object(catalog, "commit_table", refuse),
        pytest.raises(ice.CommitUnknownError, match="not known"),
    ):
        transaction.commit_transaction()
    assert listing(table) == staged
    commit(*sent)
    assert ids_of(table) == [0, 2, 3, 4]


def test_files_handed_over_that_another_commits_first_are_kept(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """They are the very files in the table."""
    table = make_table(catalog, **_QUICK)
    files = ice.write_files(table, ids(0, 3))
    transaction = table.transaction()
    ice.commit_files(transaction, files)
    ice.commit_files(other.load_table("db.t"), files)
    _refused(transaction)
    assert ids_of(table) == [0, 1, 2]


def test_a_write_that_fails_leaves_the_transaction_as_it_was(catalog: SqlCatalog) -> None:
    """Else the load id would count as committed, and a later load would do nothing."""
    table = make_table(catalog)
    transaction = table.transaction()
    transaction.set_properties({"colour": "red"})
    more = ids(0, 3).append_column("more", pa.array([1, 2, 3]))
    with (
        mock.patch(
            "icestream.commit.snapshot.producer.write_manifest_list", side_effect=OSError("full")
        ),
        pytest.raises(ice.CommitError, match="full"),
    ):
        ice.append(transaction, more, load_id="failed", schema_mode="evolve")
    assert listing(table) == set()
    transaction.commit_transaction()
    assert table.refresh().properties["colour"] == "red"
    assert not [key for key in table.properties if key.startswith("icestream.load")]
    assert "more" not in table.schema().column_names
    report = ice.append(table, ids(0, 3), load_id="failed")
    assert not report.already_committed
    assert ids_of(table) == [0, 1, 2]


def _two_branches(catalog: SqlCatalog, **properties: str) -> Table:
    table = make_table(catalog, **properties)
    ice.append(table, ids(0, 1))
    table.manage_snapshots().create_branch(head_of(table).snapshot_id, "b").commit()
    return table


def test_a_transaction_asserts_both_branches_that_it_writes(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """A second assertion of one type would be dropped, and another's rows with it."""
    table = _two_branches(catalog, **_QUICK)
    transaction = table.transaction()
    ice.append(transaction, ids(10, 11))
    ice.append(transaction, ids(20, 21), branch="b")
    ice.append(other.load_table("db.t"), ids(30, 31), branch="b")
    transaction.commit_transaction()
    assert ids_of(table) == [0, 10]
    assert ids_of(table, branch="b") == [0, 20, 30]


def test_both_branches_are_asserted_again_when_it_is_retried(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = _two_branches(catalog, **_QUICK)
    theirs = other.load_table("db.t")
    transaction = table.transaction()
    ice.append(transaction, ids(10, 11))
    ice.append(transaction, ids(20, 21), branch="b")
    numbers = iter([30, 31])

    def meanwhile() -> None:
        number = next(numbers)
        ice.append(theirs, ids(number, number + 1), branch="b")

    with before_commits(catalog, meanwhile, times=2):
        transaction.commit_transaction()
    assert ids_of(table) == [0, 10]
    assert ids_of(table, branch="b") == [0, 20, 30, 31]


def test_a_branch_that_the_transaction_made_is_written_to(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 3))
    with table.transaction() as transaction:
        ManageSnapshots(transaction).create_branch(head_of(table).snapshot_id, "new").commit()
        ice.append(transaction, ids(5, 6), branch="new")
    assert ids_of(table) == [0, 1, 2]
    assert ids_of(table, branch="new") == [0, 1, 2, 5]


def test_a_branch_that_a_retry_forgets_begins_no_empty_history(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """PyIceberg drops the branch that the transaction made when it tries again."""
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    transaction = table.transaction()
    ManageSnapshots(transaction).create_branch(head_of(table).snapshot_id, "new").commit()
    ice.append(transaction, ids(5, 6), branch="new")
    ice.append(transaction, ids(6, 7))
    ice.append(other.load_table("db.t"), ids(7, 8))
    _refused(transaction)
    assert "new" not in table.refresh().metadata.refs
    assert ids_of(table) == [0, 1, 2, 7]
    assert markers_of(table) == []


def test_a_failed_creation_leaves_no_table(catalog: SqlCatalog) -> None:
    transaction = catalog.create_table_transaction("db.new", SCHEMA)
    with (
        mock.patch(
            "icestream.commit.snapshot.producer.write_manifest_list", side_effect=OSError("full")
        ),
        pytest.raises(ice.CommitError, match="full"),
    ):
        ice.append(transaction, ids(0, 3))
    assert not catalog.table_exists("db.new")
    folder = folder_of(transaction._table)
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_rows_are_right_with_deletes_staged_before(catalog: SqlCatalog) -> None:
    """The second delete reads the files that the first has staged."""
    table = make_table(catalog)
    ice.append(table, ids(0, 6))
    with table.transaction() as transaction:
        assert ice.delete(transaction, "id < 2").rows_deleted == 2
        assert ice.delete(transaction, "id < 4").rows_deleted == 2
        assert ice.delete(transaction, "id < 4").snapshot_id is None
    assert rows_of(table) == [(4, 0), (5, 0)]


# Changes that find nothing to do


_NOTHING: dict[str, Callable[[Transaction], object]] = {
    "delete": lambda t: ice.delete(t, "id >= 10"),
    "overwrite": lambda t: ice.overwrite(t, ids(0, 0), where="id >= 10"),
    "merge": lambda t: ice.merge(t, ids(10, 12), on="id", when_not_matched="ignore"),
}


@pytest.mark.parametrize("nothing", _NOTHING.values(), ids=_NOTHING.keys())
@pytest.mark.parametrize(
    "beside",
    [
        lambda t: None,
        lambda t: t.set_properties({"colour": "red"}),
        lambda t: ice.append(t, ids(3, 4)),
    ],
    ids=["nothing else", "a property", "an append"],
)
def test_rows_that_a_staged_change_would_have_had_to_see_refuse_the_transaction(
    catalog: SqlCatalog,
    other: SqlCatalog,
    nothing: Callable[[Transaction], Any],
    beside: Callable[[Transaction], object],
) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    for first in (True, False):
        transaction = table.refresh().transaction()
        if first:
            beside(transaction)
        assert nothing(transaction).snapshot_id is None
        if not first:
            beside(transaction)
        theirs = other.load_table("db.t")
        ice.append(theirs, ids(10, 12))
        _refused(transaction)
        assert ids_of(table) == [0, 1, 2, 10, 11]
        assert "colour" not in table.properties
        assert markers_of(table) == []
        ice.delete(theirs, "id >= 10")


@pytest.mark.parametrize("nothing", _NOTHING.values(), ids=_NOTHING.keys())
def test_other_rows_do_not(
    catalog: SqlCatalog, other: SqlCatalog, nothing: Callable[[Transaction], object]
) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    transaction = table.transaction()
    nothing(transaction)
    ice.append(transaction, ids(3, 4))
    transaction.set_properties({"colour": "red"})
    ice.append(other.load_table("db.t"), ids(4, 6))
    transaction.commit_transaction()
    assert ids_of(table) == [0, 1, 2, 3, 4, 5]
    assert table.properties["colour"] == "red"


def test_a_property_is_set_beside_a_delete_of_nothing_and_rows_of_others(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """No snapshot would tell whether the transaction was committed before: it was not."""
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    transaction = table.transaction()
    ice.delete(transaction, "id >= 10")
    transaction.set_properties({"colour": "red"})
    ice.append(other.load_table("db.t"), ids(4, 6))
    transaction.commit_transaction()
    assert table.refresh().properties["colour"] == "red"


def test_a_transaction_that_was_committed_is_known_by_its_snapshot_beside_a_delete_of_nothing(
    catalog: SqlCatalog,
) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    transaction = table.transaction()
    ice.delete(transaction, "id >= 10")
    ice.append(transaction, ids(3, 4))
    with after_commits(catalog, _FALSE):
        transaction.commit_transaction()
    assert ids_of(table) == [0, 1, 2, 3]
    assert len(snapshots_of(table)) == 2


def test_a_new_table_takes_a_delete_of_nothing(catalog: SqlCatalog) -> None:
    transaction = catalog.create_table_transaction("db.new", SCHEMA)
    ice.append(transaction, ids(0, 3))
    ice.delete(transaction, "id >= 10")
    transaction.commit_transaction()
    assert ids_of(catalog.load_table("db.new")) == [0, 1, 2]


# A transaction that is given up


def test_what_an_abandoned_transaction_leaves_is_found_by_orphans(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, ids(0, 3))
    before = listing(table)

    def abandon() -> None:
        with table.transaction() as transaction:
            ice.append(transaction, ids(3, 5))
            ice.delete(transaction, "id = 1")
            raise RuntimeError("the caller's own")

    with pytest.raises(RuntimeError, match="own"):
        abandon()
    assert ids_of(table) == [0, 1, 2]
    left = listing(table) - before
    assert {name.partition("/")[0] for name in left} == {"data", "metadata"}
    assert len(markers_of(table)) == 2
    kept = ice.orphans(table, older_than=0)
    assert kept.count == 0  # this process runs: the writes may still be committed
    with mock.patch("icestream.operations.upkeep.markers._runs_here", return_value=False):
        found = ice.orphans(table, older_than=0, delete=True)
    assert found.files_deleted == len(left)
    assert listing(table) == before
    assert ids_of(table) == [0, 1, 2]
