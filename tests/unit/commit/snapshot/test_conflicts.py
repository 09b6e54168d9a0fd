"""Changes beside those of others: what goes together is retried, what does not is refused."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType

import icestream as ice
from icestream.commit.change import Change
from icestream.commit.committer import Committer
from icestream.commit.snapshot.conflicts import validate
from tests.support.delete_files import commit_equality_deletes, commit_position_deletes
from tests.support.loads import (
    BY_PART,
    batch,
    before_commits,
    head_of,
    ids,
    ids_of,
    listing,
    make_table,
    rows_of,
    snapshots_of,
    then,
)
from tests.support.tables import data_file_paths, data_files, upgrade_to_v3

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}
_Write = Callable[[Table], ice.WriteReport]


def _refuses(write: _Write, table: Table, theirs: Table, meanwhile: Callable[[], object]) -> str:
    """The write is refused beside what happens meanwhile, and leaves nothing behind."""
    before = listing(table)
    added: set[str] = set()

    def action() -> None:
        open_now = listing(table)
        meanwhile()
        added.update(listing(table) - open_now)

    with (
        before_commits(table.catalog, action),
        pytest.raises(ice.CommitConflictError) as refusal,
    ):
        write(table)
    assert head_of(table).snapshot_id == theirs.refresh().metadata.current_snapshot_id
    assert listing(table) == before | added
    return str(refusal.value)


@pytest.mark.parametrize(
    "write",
    [
        lambda t: ice.overwrite(t, ids(50, 51)),
        lambda t: ice.overwrite(t, ids(50, 51), where="id > 1"),
        lambda t: ice.overwrite(t, ids(50, 51, 1), partitions="dynamic"),
        lambda t: ice.delete(t, "part = 1"),
        lambda t: ice.overwrite(t, ids(50, 51), where="id > 5"),
    ],
    ids=["all", "where", "dynamic", "delete", "matches only theirs"],
)
def test_rows_added_meanwhile_that_the_change_had_to_see_refuse_it(
    catalog: SqlCatalog, other: SqlCatalog, write: _Write
) -> None:
    table = make_table(catalog, spec=BY_PART, **_QUICK)
    ice.append(table, batch([(0, 0), (1, 1), (2, 2)]))
    theirs = other.load_table("db.t")
    message = _refuses(write, table, theirs, lambda: ice.append(theirs, ids(10, 11, 1)))
    assert "added rows to db.t" in message
    assert "isolation-level" in message
    assert ids_of(table) == [0, 1, 2, 10]


@pytest.mark.parametrize(
    ("write", "left"),
    [
        (lambda t: ice.overwrite(t, ids(50, 51), where="id < 2"), [2, 10, 50]),
        (lambda t: ice.overwrite(t, ids(50, 51, 1), partitions="dynamic"), [0, 2, 10, 50]),
        (lambda t: ice.delete(t, "part = 1"), [0, 2, 10]),
        (lambda t: ice.delete(t, "id = 1"), [0, 2, 10]),
    ],
    ids=["where", "dynamic", "delete partition", "delete row"],
)
def test_rows_added_meanwhile_elsewhere_do_not(
    catalog: SqlCatalog, other: SqlCatalog, write: _Write, left: list[int]
) -> None:
    """Other ranges, by statistics; other partitions, by their values."""
    table = make_table(catalog, spec=BY_PART, **_QUICK)
    ice.append(table, batch([(0, 0), (1, 1), (2, 2)]))
    theirs = other.load_table("db.t")
    with before_commits(catalog, lambda: ice.append(theirs, ids(10, 11, 7))):
        write(table)
    assert ids_of(table) == left


def test_rows_added_meanwhile_without_statistics_might_match_anything(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, write__metadata__metrics__default="none", **_QUICK)
    ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")
    _refuses(
        lambda t: ice.delete(t, "id = 1"), table, theirs, lambda: ice.append(theirs, ids(10, 11))
    )


def test_snapshot_isolation_lets_added_rows_stay(catalog: SqlCatalog, other: SqlCatalog) -> None:
    table = make_table(
        catalog,
        write__update__isolation_level="snapshot",
        write__delete__isolation_level="snapshot",
        **_QUICK,
    )
    ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")
    with before_commits(catalog, lambda: ice.append(theirs, ids(10, 11))):
        ice.overwrite(table, ids(50, 51))
    assert ids_of(table) == [10, 50]
    with before_commits(catalog, lambda: ice.append(theirs, ids(11, 12))):
        ice.delete(table, "id < 20")
    assert ids_of(table) == [11, 50]


def test_each_isolation_level_is_for_its_own_operation(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, write__delete__isolation_level="snapshot", **_QUICK)
    ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")
    _refuses(
        lambda t: ice.overwrite(t, ids(50, 51)),
        table,
        theirs,
        lambda: ice.append(theirs, ids(10, 11)),
    )
    with before_commits(catalog, lambda: ice.append(theirs, ids(11, 12))):
        ice.delete(table, "id < 20")
    assert ids_of(table) == [11]


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_rows_deleted_meanwhile_from_a_file_that_is_rewritten_refuse_it(
    catalog: SqlCatalog, other: SqlCatalog, isolation: str
) -> None:
    """Also when another snapshot follows, which PyIceberg's own check would not look behind."""
    table = make_table(
        catalog,
        write__delete__isolation_level=isolation,
        write__update__isolation_level=isolation,
        **_QUICK,
    )
    ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")

    def meanwhile() -> None:
        commit_position_deletes(theirs, {data_file_paths(theirs)[0]: [2]})
        ice.append(theirs, ids(100, 101))

    message = _refuses(lambda t: ice.delete(t, "id = 1"), table, theirs, meanwhile)
    assert "would reappear" in message or "added rows" in message
    assert ids_of(table) == [0, 1, 100]


def test_rows_deleted_meanwhile_from_another_file_do_not(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    ice.append(table, ids(10, 13))
    theirs = other.load_table("db.t")
    path = next(f.file_path for f in data_files(table) if b"\x0a" in f.lower_bounds[1])
    with before_commits(catalog, lambda: commit_position_deletes(theirs, {path: [2]})):
        ice.delete(table, "id = 1")
    assert ids_of(table) == [0, 2, 10, 11]


def test_deletes_of_several_files_in_one_are_told_by_partition(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """The bounds of such a file name no data file: its partition must do."""
    table = make_table(catalog, spec=BY_PART, **_QUICK)
    ice.append(table, batch([(0, 0), (1, 0), (10, 1), (11, 1)]))
    ice.append(table, batch([(2, 0), (3, 0), (12, 1), (13, 1)]))
    theirs = other.load_table("db.t")
    of_part = [f.file_path for f in data_files(table) if f.partition[0] == 1]
    positions = {path: [0] for path in of_part}

    def meanwhile() -> None:
        commit_position_deletes(theirs, positions, one_file=True)

    with before_commits(catalog, meanwhile):
        ice.delete(table, "id = 1")
    assert ids_of(table) == [0, 2, 3, 11, 13]
    positions = {path: [1] for path in of_part}
    _refuses(lambda t: ice.delete(t, "id = 13"), table, theirs, meanwhile)


def test_equality_deletes_committed_meanwhile_refuse_it(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")
    _refuses(
        lambda t: ice.delete(t, "id = 1"),
        table,
        theirs,
        lambda: commit_equality_deletes(theirs, ["id"], [{"id": 2}]),
    )


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_files_removed_meanwhile_refuse_it(
    catalog: SqlCatalog, other: SqlCatalog, isolation: str
) -> None:
    table = make_table(
        catalog,
        write__delete__isolation_level=isolation,
        write__update__isolation_level=isolation,
        **_QUICK,
    )
    ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")
    _refuses(lambda t: ice.delete(t, "id = 1"), table, theirs, lambda: ice.delete(theirs, "id = 2"))
    assert ids_of(table) == [0, 1]
    _refuses(
        lambda t: ice.overwrite(t, ids(5, 6)), table, theirs, lambda: ice.delete(theirs, "id < 9")
    )
    assert ids_of(table) == []


def test_a_rollback_meanwhile_refuses_it(catalog: SqlCatalog, other: SqlCatalog) -> None:
    table = make_table(catalog, **_QUICK)
    first = ice.append(table, ids(0, 3)).snapshot_id
    ice.append(table, ids(3, 5))
    theirs = other.load_table("db.t")
    message = _refuses(
        lambda t: ice.delete(t, "id = 1"),
        table,
        theirs,
        lambda: theirs.manage_snapshots().set_current_snapshot(first).commit(),
    )
    assert "rolled back" in message
    assert ids_of(table) == [0, 1, 2]


def test_a_compaction_meanwhile_adds_no_rows(catalog: SqlCatalog, other: SqlCatalog) -> None:
    """A replace snapshot holds the same rows in other files: no conflict by what it adds."""
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    ice.append(table, batch([(10, 0), (12, 0)]))
    theirs = other.load_table("db.t")
    small = [f for f in data_files(table) if b"\x0a" in f.lower_bounds[1]]

    def compact() -> None:
        new = ice.write_files(theirs, batch([(10, 0), (12, 0)]))
        change = Change(
            Operation.REPLACE,
            added=tuple(file.to_data_file() for file in new),
            removed=tuple(small),
            base_snapshot_id=head_of(theirs).snapshot_id,
        )
        Committer(theirs, change, None).commit()

    with before_commits(catalog, compact):
        # By its bounds, the new file might hold 11; it does not, and neither did the old one.
        ice.overwrite(table, ids(50, 51), where="id < 3 or id = 11")
    assert ids_of(table) == [10, 12, 50]


# The table itself changes meanwhile


def test_the_filter_is_judged_by_the_columns_that_it_was_written_for(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """Renamed, and the name given to another column: the ids tell."""
    table = make_table(catalog, **_QUICK)
    ice.append(table, batch([(0, 1), (1, 2)]))
    theirs = other.load_table("db.t")

    def meanwhile() -> None:
        with theirs.update_schema() as update:
            update.rename_column("part", "old_part")
        with theirs.update_schema() as update:
            update.add_column("part", LongType())
        rows = {"id": [9], "old_part": [1], "text": ["text 9"], "part": [5]}
        ice.append(theirs, pa.table(rows))

    _refuses(lambda t: ice.overwrite(t, ids(50, 51), where="part = 1"), table, theirs, meanwhile)


def test_a_renamed_column_alone_is_no_conflict(catalog: SqlCatalog, other: SqlCatalog) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, batch([(0, 1), (1, 2)]))
    theirs = other.load_table("db.t")

    def meanwhile() -> None:
        with theirs.update_schema() as update:
            update.rename_column("part", "portion")
        ice.append(theirs, pa.table({"id": [9], "portion": [7], "text": ["text 9"]}))

    with before_commits(catalog, meanwhile):
        ice.overwrite(table, ids(50, 51, 1), where="part = 1")
    assert rows_of(table) == [(1, 2), (9, 7), (50, 1)]


def test_partitions_are_judged_by_the_spec_that_they_were_written_under(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, spec=BY_PART, **_QUICK)
    ice.append(table, batch([(0, 1), (1, 2)]))
    theirs = other.load_table("db.t")

    def meanwhile() -> None:
        with theirs.update_spec() as update:
            update.remove_field("part")
            update.add_identity("id")
        ice.append(theirs, batch([(9, 1)]))

    _refuses(
        lambda t: ice.overwrite(t, ids(50, 51, 1), partitions="dynamic"), table, theirs, meanwhile
    )


def test_a_spec_that_changes_while_a_load_is_written_leaves_its_files_right(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, spec=BY_PART, **_QUICK)
    theirs = other.load_table("db.t")

    def meanwhile() -> None:
        with theirs.update_spec() as update:
            update.remove_field("part")
            update.add_identity("id")
        ice.append(theirs, batch([(9, 1)]))

    ice.append(table, then([batch([(1, 1), (2, 2)])], meanwhile))
    assert rows_of(table) == [(1, 1), (2, 2), (9, 1)]
    for where, expected in [("part = 1", [1, 9]), ("id = 2", [2]), ("id = 9", [9])]:
        found = table.scan(row_filter=where).to_arrow()["id"].to_pylist()
        assert sorted(found) == expected


def test_an_upgrade_to_version_3_meanwhile_refuses_it(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    theirs = other.load_table("db.t")
    with pytest.raises(ice.CommitConflictError, match="upgraded concurrently to format version 3"):
        ice.append(table, then([ids(0, 3)], lambda: upgrade_to_v3(theirs)))
    assert listing(table) == set()


def test_a_table_can_be_upgraded_to_version_2_meanwhile(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, version=1, **_QUICK)
    ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")

    def upgrade() -> None:
        with theirs.transaction() as transaction:
            transaction.upgrade_table_version(2)

    ice.delete(table, "id = 0")
    ice.append(table, then([ids(3, 5)], upgrade))
    ice.delete(table, "id in (1, 4)")
    assert ids_of(table) == [2, 3]


# A branch that was empty when the change was planned


def _expire_first(table: Table) -> None:
    table.maintenance.expire_snapshots().by_id(snapshots_of(table)[0]).commit()


@pytest.mark.parametrize("where", [None, "id < 100"])
def test_rows_that_expired_snapshots_added_to_an_empty_table_are_a_conflict(
    catalog: SqlCatalog, other: SqlCatalog, where: str | None
) -> None:
    """PyIceberg takes the parent out of the snapshot that is left: its history looks whole."""
    table = make_table(catalog, **_QUICK)
    theirs = other.load_table("db.t")

    def meanwhile() -> None:
        ice.append(theirs, ids(10, 12))
        ice.append(theirs, ids(200, 201))
        _expire_first(theirs)

    with pytest.raises(ice.CommitConflictError, match="added rows"):
        ice.overwrite(table, then([ids(0, 1)], meanwhile), where=where)
    assert ids_of(theirs) == [10, 11, 200]


def test_rows_that_a_compaction_has_moved_in_a_table_that_was_empty_are_a_conflict(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    theirs = other.load_table("db.t")

    def meanwhile() -> None:
        for number in (10, 11):
            ice.append(theirs, ids(number, number + 1))
        ice.compact(theirs, min_files=2)
        _expire_first(theirs)
        _expire_first(theirs)

    with pytest.raises(ice.CommitConflictError):
        ice.overwrite(table, then([ids(0, 1)], meanwhile))
    assert ids_of(theirs) == [10, 11]


def test_rows_outside_of_the_filter_are_none(catalog: SqlCatalog, other: SqlCatalog) -> None:
    table = make_table(catalog, **_QUICK)
    theirs = other.load_table("db.t")

    def meanwhile() -> None:
        ice.append(theirs, ids(10, 12))
        ice.append(theirs, ids(12, 13))
        _expire_first(theirs)

    ice.overwrite(table, then([ids(0, 1)], meanwhile), where="id < 5")
    assert ids_of(table) == [0, 10, 11, 12]


def test_a_history_that_is_cut_off_is_a_conflict_on_a_branch_that_was_empty(
    catalog: SqlCatalog,
) -> None:
    """Other engines leave the parent of the oldest snapshot that is left where it was."""
    table = make_table(catalog)
    for number in (10, 11):
        ice.append(table, ids(number, number + 1))
    metadata = table.refresh().metadata
    head = metadata.snapshots[1]
    cut = metadata.model_copy(update={"snapshots": [head]})
    change = Change(operation=Operation.OVERWRITE, conflict_filter=parse("id < 5"))
    with pytest.raises(ice.CommitConflictError, match="has expired"):
        validate(change, cut, table.io, base_id=None, head=head, table="db.t")
    validate(change, metadata, table.io, base_id=None, head=head, table="db.t")
