"""Merges beside what others do, and merges that break off: all of it happens, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.types import LongType

import icestream as ice
from icestream.operations.merge.match.matches import keys_of_files
from icestream.write.table_writer import TableWriter
from tests.support.delete_files import commit_equality_deletes, commit_position_deletes
from tests.support.loads import (
    BY_PART,
    after_commits,
    before_commits,
    head_of,
    listing,
    raising,
    snapshots_of,
    then,
)
from tests.support.merges import filled, found, nothing_in_vain, stream
from tests.support.tables import data_file_paths

_A = [(1, 1, "a"), (2, 1, "b"), (3, 1, "c")]
_B = [(11, 2, "k"), (12, 2, "l")]
_NEW = [(2, 5, "B"), (4, 6, "d")]
_MERGED = [(1, 1, "a"), (2, 5, "B"), (3, 1, "c"), (4, 6, "d")]

_Action = Callable[[], object]


def _merge(table: Table, rows: Any, meanwhile: _Action, *, when: str, **options: Any) -> Any:
    """Merge, and have something happen when the files are known, or just before the commit."""
    options = {"on": "id", **options}
    if when == "matching":
        waiting = [meanwhile]  # Once: it may be a merge itself.

        def keys(*of_files: Any) -> Any:
            while waiting:
                waiting.pop()()
            return keys_of_files(*of_files)

        with mock.patch("icestream.operations.merge.merge.keys_of_files", keys):
            return ice.merge(table, stream(rows), **options)
    with before_commits(table.catalog, meanwhile):
        return ice.merge(table, stream(rows), **options)


def _refused(table: Table, rows: Any, meanwhile: _Action, *, when: str, **options: Any) -> str:
    """The merge is refused; what is stored is what was there, and what others have added."""
    before = listing(table)
    added: set[str] = set()

    def action() -> None:
        open_now = listing(table)
        meanwhile()
        added.update(listing(table) - open_now)

    with pytest.raises(ice.CommitConflictError) as refusal:
        _merge(table, rows, action, when=when, **options)
    assert listing(table) == before | added
    return str(refusal.value)


@pytest.fixture(params=["matching", "committing"])
def when(request: pytest.FixtureRequest) -> str:
    """When the others do it."""
    return str(request.param)


# Rows that others add


@pytest.mark.parametrize("key", [4, 3], ids=["inserted by both", "between the keys"])
def test_rows_added_meanwhile_that_might_match_refuse_it(
    catalog: SqlCatalog, other: SqlCatalog, mode: str, when: str, key: int
) -> None:
    table = filled(catalog, _A)
    theirs = other.load_table("db.t")
    action = partial(ice.append, theirs, stream([(key, 9, "theirs")]))
    message = _refused(table, _NEW, action, when=when, write_mode=mode)
    assert "added rows to db.t" in message
    assert found(table) == sorted([*_A, (key, 9, "theirs")])


def test_snapshot_isolation_lets_them_stay(
    catalog: SqlCatalog, other: SqlCatalog, mode: str, when: str
) -> None:
    table = filled(catalog, _A)
    theirs = other.load_table("db.t")
    action = partial(ice.append, theirs, stream([(4, 9, "theirs")]))
    _merge(table, _NEW, action, when=when, write_mode=mode, isolation="snapshot")
    assert found(table) == [*_MERGED, (4, 9, "theirs")]


def test_the_table_says_what_isolation_it_wants(
    catalog: SqlCatalog, other: SqlCatalog, mode: str
) -> None:
    table = filled(catalog, _A, write__merge__isolation_level="snapshot")
    theirs = other.load_table("db.t")
    action = partial(ice.append, theirs, stream([(4, 9, "theirs")]))
    options = {"when": "committing", "write_mode": mode}
    _refused(table, _NEW, action, isolation="serializable", **options)
    _merge(table, [(2, 5, "B")], action, **options)
    assert found(table) == [*_MERGED[:3], (4, 9, "theirs"), (4, 9, "theirs")]


def test_rows_added_meanwhile_outside_of_the_keys_do_not(
    catalog: SqlCatalog, other: SqlCatalog, mode: str, when: str
) -> None:
    table = filled(catalog, _A)
    theirs = other.load_table("db.t")
    action = partial(ice.append, theirs, stream(_B))
    report = _merge(table, _NEW, action, when=when, write_mode=mode)
    assert report.commit_attempts == (1 if when == "matching" else 2)
    assert found(table) == [*_MERGED, *_B]
    assert len(snapshots_of(table)) == 3
    assert nothing_in_vain(table)


def test_a_merge_of_other_keys_meanwhile_does_not(
    catalog: SqlCatalog, other: SqlCatalog, mode: str, when: str
) -> None:
    """It changes another file, and adds rows outside of the range."""
    table = filled(catalog, _A, _B)
    theirs = other.load_table("db.t")
    rows = stream([(11, 2, "K"), (13, 3, "m")])
    action = partial(ice.merge, theirs, rows, on="id", write_mode=mode)
    _merge(table, _NEW, action, when=when, write_mode=mode)
    assert found(table) == [*_MERGED, (11, 2, "K"), (12, 2, "l"), (13, 3, "m")]


def test_only_the_keys_of_the_partition_matter_if_it_is_part_of_the_key(
    catalog: SqlCatalog, other: SqlCatalog, mode: str, when: str
) -> None:
    table = filled(catalog, _A, _B, spec=BY_PART)
    theirs = other.load_table("db.t")
    action = partial(ice.append, theirs, stream([(2, 2, "theirs")]))
    _merge(table, [(2, 1, "B")], action, when=when, write_mode=mode, on=["id", "part"])
    assert found(table) == [_A[0], (2, 1, "B"), (2, 2, "theirs"), _A[2], *_B]


# Rows that others change


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda t: ice.delete(t, "id = 1"), [_A[1], _A[2], *_B]),
        (lambda t: ice.delete(t, "part = 1"), _B),
        (lambda t: ice.compact(t), [*_A, *_B]),
        (
            lambda t: ice.merge(t, stream([(2, 7, "!")]), on="id", write_mode="merge-on-read"),
            [_A[0], (2, 7, "!"), _A[2], *_B],
        ),
        (
            lambda t: ice.merge(t, stream([(3, 7, "!")]), on="id", write_mode="merge-on-read"),
            [_A[0], _A[1], (3, 7, "!"), *_B],
        ),
        (
            lambda t: ice.merge(t, stream([(2, 7, "!")]), on="id", write_mode="copy-on-write"),
            [_A[0], (2, 7, "!"), _A[2], *_B],
        ),
    ],
    ids=["deleted row", "deleted file", "compacted", "same row on read", "same file", "copied"],
)
def test_changes_meanwhile_to_the_files_that_are_merged_refuse_it(
    catalog: SqlCatalog,
    other: SqlCatalog,
    mode: str,
    when: str,
    isolation: str,
    change: Callable[[Table], object],
    left: list[Any],
) -> None:
    table = filled(catalog, _A, _B)
    theirs = other.load_table("db.t")
    options = {"when": when, "write_mode": mode, "isolation": isolation}
    _refused(table, [(2, 5, "B")], lambda: change(theirs), **options)
    assert found(table) == left
    assert head_of(table).snapshot_id == theirs.refresh().metadata.current_snapshot_id


def test_position_deletes_of_other_engines_meanwhile_refuse_it(
    catalog: SqlCatalog, other: SqlCatalog, mode: str, when: str
) -> None:
    table = filled(catalog, _A)
    theirs = other.load_table("db.t")
    path = data_file_paths(table)[0]
    action = partial(commit_position_deletes, theirs, {path: [0]})
    _refused(table, [(2, 5, "B")], action, when=when, write_mode=mode)
    assert found(table) == _A[1:]


def test_equality_deletes_meanwhile_refuse_it(
    catalog: SqlCatalog, other: SqlCatalog, mode: str
) -> None:
    table = filled(catalog, _A)
    theirs = other.load_table("db.t")
    action = partial(commit_equality_deletes, theirs, ["id"], [{"id": 1}])
    _refused(table, [(2, 5, "B")], action, when="committing", write_mode=mode)


def test_changes_meanwhile_to_other_files_do_not(
    catalog: SqlCatalog, other: SqlCatalog, mode: str, when: str
) -> None:
    table = filled(catalog, _A, _B)
    theirs = other.load_table("db.t")
    action = partial(ice.delete, theirs, "id = 11")
    _merge(table, _NEW, action, when=when, write_mode=mode)
    assert found(table) == [*_MERGED, _B[1]]


def test_inserts_alone_go_beside_a_compaction(
    catalog: SqlCatalog, other: SqlCatalog, mode: str, when: str
) -> None:
    table = filled(catalog, _A, _B)
    theirs = other.load_table("db.t")
    action = partial(ice.compact, theirs)
    _merge(table, [(4, 6, "d"), (1, 1, "a")], action, when=when, write_mode=mode)
    assert found(table) == [*_A, (4, 6, "d"), *_B]


def test_a_column_added_meanwhile_is_kept(
    catalog: SqlCatalog, other: SqlCatalog, mode: str, when: str
) -> None:
    table = filled(catalog, _A)
    theirs = other.load_table("db.t")

    def action() -> None:
        with theirs.update_schema() as update:
            update.add_column("theirs", LongType())

    _merge(table, _NEW, action, when=when, write_mode=mode)
    assert found(table) == [(*row, None) for row in _MERGED]


def test_a_merge_that_evolves_beside_another_is_run_again(
    catalog: SqlCatalog, other: SqlCatalog, mode: str
) -> None:
    """The second run starts from scratch: nothing of the first is counted."""
    table = filled(catalog, _A)
    theirs = other.load_table("db.t")
    rows = stream(_NEW, ours=pa.array([1, 2], pa.int64()))

    def action() -> None:
        with theirs.update_schema() as update:
            update.add_column("theirs", LongType())

    with before_commits(catalog, action):
        report = ice.merge(table, rows, on="id", schema_mode="evolve", write_mode=mode)
    assert (report.rows_updated, report.rows_inserted) == (1, 1)
    assert report.files_kept == (mode == "merge-on-read")
    names = [field.name for field in table.refresh().schema().fields]
    assert names == ["id", "part", "text", "theirs", "ours"]
    values = {2: 1, 4: 2}
    assert found(table) == [(*row, None, values.get(row[0])) for row in _MERGED]
    assert nothing_in_vain(table)


def test_of_two_merges_with_one_id_the_second_does_nothing(
    catalog: SqlCatalog, other: SqlCatalog, mode: str
) -> None:
    table = filled(catalog, _A)
    theirs = other.load_table("db.t")
    options = {"on": "id", "load_id": "monday", "write_mode": mode}
    with before_commits(catalog, lambda: ice.merge(theirs, stream(_NEW), **options)):
        report = ice.merge(table, stream(_NEW), **options)
    assert report.already_committed
    assert (report.rows_updated, report.rows_inserted) == (1, 1)
    assert found(table) == _MERGED
    assert nothing_in_vain(table)


# Merges that break off


@pytest.mark.parametrize(
    "error", [RuntimeError("no more"), KeyboardInterrupt(), MemoryError()], ids=repr
)
@pytest.mark.parametrize("memory", ["16MB", "256MB"])
def test_a_source_that_breaks_off_leaves_the_table_as_it_was(
    catalog: SqlCatalog, mode: str, error: BaseException, memory: str
) -> None:
    table = filled(catalog, _A)
    before, location = listing(table), table.metadata_location

    def source() -> Iterator[pa.RecordBatch]:
        for start in range(0, 45_000, 5_000):
            rows = stream(
                [
                    (n, 1, f"text {n}, and more than that to fill the memory with rows")
                    for n in range(start, start + 5_000)
                ]
            )
            yield from rows.to_batches()
        raise error

    with pytest.raises(type(error)):
        ice.merge(table, source(), on="id", write_mode=mode, memory=memory)
    assert listing(table) == before
    assert table.refresh().metadata_location == location
    assert found(table) == _A


@pytest.mark.parametrize("error", [OSError("disk"), KeyboardInterrupt()], ids=repr)
def test_changes_that_can_not_be_written_leave_the_table_as_it_was(
    catalog: SqlCatalog, mode: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the files are written again, or have their delete files, when it happens."""
    table = filled(catalog, _A, _B)
    before = listing(table)
    name = "delete_rows" if mode == "merge-on-read" else "write_conformed"
    write = getattr(TableWriter, name)
    left = [1]

    def failing(self: TableWriter, *args: Any) -> None:
        if not left[0]:
            raise error
        left[0] -= 1
        write(self, *args)

    monkeypatch.setattr(TableWriter, name, failing)
    with pytest.raises(type(error)):
        ice.merge(table, stream([(1, 9, "x"), (11, 9, "y")]), on="id", write_mode=mode)
    monkeypatch.undo()
    assert listing(table) == before
    assert found(table) == [*_A, *_B]


def test_a_commit_that_the_catalog_refuses_leaves_nothing(catalog: SqlCatalog, mode: str) -> None:
    table = filled(catalog, _A, commit__retry__num_retries="0")
    before = listing(table)
    with (
        before_commits(catalog, raising(CommitFailedException("no"))),
        pytest.raises(ice.CommitConflictError),
    ):
        ice.merge(table, stream(_NEW), on="id", write_mode=mode)
    assert listing(table) == before
    assert found(table) == _A


def test_a_commit_of_unknown_outcome_keeps_every_file(catalog: SqlCatalog, mode: str) -> None:
    """It happened: the files are the table's."""
    table = filled(catalog, _A)
    with (
        after_commits(catalog, raising(CommitStateUnknownException("lost"))),
        suppress(ice.CommitUnknownError),
    ):
        ice.merge(table, stream(_NEW), on="id", write_mode=mode)
    assert found(table) == _MERGED
    assert len(snapshots_of(table)) == 2


def test_what_others_commit_before_the_stream_ends_is_no_conflict(catalog: SqlCatalog) -> None:
    """The table is looked at only then."""
    table = filled(catalog, _A)
    action = partial(ice.append, catalog.load_table("db.t"), stream([(4, 9, "theirs"), *_B]))
    report = ice.merge(table, then([stream(_NEW)], action), on="id")
    assert (report.rows_updated, report.rows_inserted) == (2, 0)
    assert found(table) == [*_MERGED, *_B]
