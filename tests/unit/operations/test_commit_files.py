"""`write_files` in workers, `commit_files` once."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.types import LongType

import icestream as ice
from tests.support.loads import (
    BY_PART,
    batch,
    before_commits,
    head_of,
    ids,
    ids_of,
    listing,
    make_table,
    markers_of,
    rows_of,
    snapshots_of,
)
from tests.support.stored import folder_of

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


def _write(target: ice.WriteTarget, task: int) -> tuple[ice.NewFile, ...]:
    """Runs in a process of its own."""
    return ice.write_files(target, ids(task * 10, task * 10 + 10, task), task=task, memory="32MB")


@pytest.mark.slow
def test_files_of_a_process_pool_become_one_snapshot(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART)
    target = ice.write_target(table)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        written = list(pool.map(_write, [target] * 3, range(3)))
    assert ids_of(table) == []
    assert len(markers_of(table)) == 1
    report = ice.commit_files(table, [file for files in written for file in files])
    assert ids_of(table) == list(range(30))
    assert snapshots_of(table) == [report.snapshot_id]
    assert (report.rows_inserted, report.files_added) == (30, 3)
    assert len(head_of(table).manifests(table.io)) == 1
    assert markers_of(table) == []


def test_descriptions_and_targets_are_plain_data(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    target = pickle.loads(pickle.dumps(ice.write_target(table)))
    files = pickle.loads(pickle.dumps(ice.write_files(target, ids(0, 3))))
    ice.commit_files(table, files)
    assert ids_of(table) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, [7]),
        ({"where": "id < 2"}, [2, 3, 7]),
        ({"partitions": "dynamic"}, [0, 1, 7]),
    ],
    ids=["all", "where", "dynamic"],
)
def test_files_can_replace_others(
    catalog: SqlCatalog, options: dict[str, str], left: list[int]
) -> None:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch([(0, 0), (1, 0), (2, 1), (3, 1)]))
    files = ice.write_files(table, ids(7, 8, 1))
    report = ice.commit_files(table, files, mode="overwrite", **options)
    assert ids_of(table) == left
    assert (report.rows_inserted, report.rows_deleted) == (1, 4 - (len(left) - 1))
    assert len(snapshots_of(table)) == 2


def test_no_files_are_no_snapshot(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    assert ice.write_files(table, iter(())) == ()
    assert ice.write_files(table, ids(0, 0)) == ()
    assert listing(table) == set()
    assert ice.commit_files(table, ()).snapshot_id is None


def test_the_same_files_twice_are_committed_once_and_stay(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    files = ice.write_files(table, ids(0, 3))
    first = ice.commit_files(table, files)
    before = listing(table)
    for mode in ("append", "overwrite"):
        again = ice.commit_files(table, files, mode=mode)
        assert again.already_committed
        assert again.snapshot_id == first.snapshot_id
        assert (again.rows_inserted, again.bytes_written) == (3, first.bytes_written)
    assert listing(table) == before
    assert ids_of(table) == [0, 1, 2]


def test_the_same_files_in_a_race_are_committed_once_and_stay(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """The loser must not delete what the winner has committed."""
    table = make_table(catalog, **_QUICK)
    files = ice.write_files(table, ids(0, 3))
    theirs = other.load_table("db.t")
    with before_commits(catalog, lambda: ice.commit_files(theirs, files)):
        lost = ice.commit_files(table, files)
    assert lost.already_committed
    assert ids_of(table) == [0, 1, 2]
    assert len(snapshots_of(table)) == 1
    assert len(listing(table)) == 3


def test_files_of_one_write_can_be_committed_in_parts(catalog: SqlCatalog) -> None:
    """They are known by their paths, not by the write alone: else rows would be lost."""
    table = make_table(catalog)
    target = ice.write_target(table)
    first = ice.write_files(target, ids(0, 3), task=0)
    second = ice.write_files(target, ids(3, 5), task=1)
    ice.commit_files(table, first)
    assert not ice.commit_files(table, second).already_committed
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert ice.commit_files(table, [*second, *first]).already_committed
    assert ids_of(table) == [0, 1, 2, 3, 4]


def test_files_of_which_some_are_committed_are_refused_and_stay(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    target = ice.write_target(table)
    first = ice.write_files(target, ids(0, 3), task=0)
    second = ice.write_files(target, ids(3, 5), task=1)
    ice.commit_files(table, first)
    with pytest.raises(ice.InvalidArgumentError, match="1 of the 2 files"):
        ice.commit_files(table, [*first, *second])
    ice.commit_files(table, second)
    assert ids_of(table) == [0, 1, 2, 3, 4]


def test_files_of_which_another_commits_some_meanwhile_stay(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    target = ice.write_target(table)
    first = ice.write_files(target, ids(0, 3), task=0)
    second = ice.write_files(target, ids(3, 5), task=1)
    theirs = other.load_table("db.t")
    with (
        before_commits(catalog, lambda: ice.commit_files(theirs, first)),
        pytest.raises(ice.InvalidArgumentError, match="1 of the 2 files"),
    ):
        ice.commit_files(table, [*first, *second])
    assert ids_of(table) == [0, 1, 2]
    ice.commit_files(table, second)
    assert ids_of(table) == [0, 1, 2, 3, 4]


def test_files_that_were_rolled_back_can_be_committed_again(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    start = ice.append(table, ids(9, 10)).snapshot_id
    assert start is not None
    files = ice.write_files(table, ids(0, 3))
    ice.commit_files(table, files)
    table.manage_snapshots().set_current_snapshot(start).commit()
    assert not ice.commit_files(table, files).already_committed
    assert ids_of(table) == [0, 1, 2, 9]


def test_a_refused_commit_keeps_the_files_for_another_call(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(8, 9))
    files = ice.write_files(table, ids(0, 3))
    before = listing(table)
    theirs = other.load_table("db.t")
    added: set[str] = set()

    def meanwhile() -> None:
        open_now = listing(table)
        ice.append(theirs, ids(9, 10))
        added.update(listing(table) - open_now)

    with before_commits(catalog, meanwhile), pytest.raises(ice.CommitConflictError):
        ice.commit_files(table, files, mode="overwrite")
    assert listing(table) == before | added
    assert ids_of(table) == [8, 9]
    ice.commit_files(table, files)
    assert ids_of(table) == [0, 1, 2, 8, 9]
    assert markers_of(table) == []


def test_files_that_a_clean_up_has_deleted_are_not_committed(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    files = ice.write_files(table, ids(0, 3))
    for path in listing(table):
        (folder_of(table) / path).unlink()
    with pytest.raises(ice.InvalidArgumentError, match="files are gone"):
        ice.commit_files(table, files)
    assert snapshots_of(table) == []


@pytest.mark.parametrize(
    "options",
    [
        {"where": "id = 1"},
        {"mode": "overwrite", "where": "typo = 1"},
        {"mode": "overwrite", "partitions": "dynamic"},
        {"mode": "merge"},
        {"branch": "nothing"},
        {"properties": {"a": 1}},
        {"load_id": ""},
    ],
    ids=str,
)
def test_a_call_that_does_not_fit_keeps_the_files_for_a_better_one(
    catalog: SqlCatalog, options: dict[str, object]
) -> None:
    table = make_table(catalog)
    files = ice.write_files(table, ids(0, 3))
    written = listing(table)
    with pytest.raises(ice.InvalidArgumentError):
        ice.commit_files(table, files, **options)  # type: ignore[arg-type]
    assert listing(table) == written
    ice.commit_files(table, files)
    assert ids_of(table) == [0, 1, 2]


def test_what_is_not_of_this_table_is_refused(catalog: SqlCatalog) -> None:
    table, other = make_table(catalog), make_table(catalog, "db.other")
    files = ice.write_files(other, ids(0, 3))
    for given, message in [
        (files, "a table other than"),
        ([*files, *files], "a table other than"),
        (["path"], "the results of write_files"),
        ([files[0].to_data_file()], "the results of write_files"),
    ]:
        with pytest.raises(ice.InvalidArgumentError, match=message):
            ice.commit_files(table, given)  # type: ignore[arg-type]
    with pytest.raises(ice.InvalidArgumentError, match="twice"):
        ice.commit_files(other, [*files, *files])
    ice.commit_files(other, files)
    assert ids_of(other) == [0, 1, 2]


def test_a_spec_that_changed_since_can_not_be_overwritten_by_partition(
    catalog: SqlCatalog,
) -> None:
    """The values would be taken for those of other partitions."""
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch([(1, 1), (2, 2)]))
    files = ice.write_files(table, batch([(9, 2)]))
    with table.update_spec() as update:
        update.remove_field("part")
        update.add_identity("id")
    ice.append(table, batch([(2, 77)]))
    with pytest.raises(ice.CommitConflictError, match=r"partition spec of db\.t was changed"):
        ice.commit_files(table, files, mode="overwrite", partitions="dynamic")
    assert rows_of(table) == [(1, 1), (2, 2), (2, 77)]
    assert len(markers_of(table)) == 1


# Evolved schemas

_WIDER = pa.schema([("id", "int64"), ("part", "int64"), ("text", "string"), ("new", "string")])


def _wider(number: int) -> pa.Table:
    return ids(number, number + 1).append_column("new", pa.array([f"new {number}"]))


def test_workers_evolve_the_schema_together(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    target = ice.write_target(table, schema=_WIDER, schema_mode="evolve")
    files = [*ice.write_files(target, _wider(0)), *ice.write_files(target, _wider(1), task=1)]
    with pytest.raises(ice.InvalidArgumentError, match="target="):
        ice.commit_files(table, files)
    ice.commit_files(table, files, target=target)
    assert sorted(table.refresh().scan().to_arrow()["new"].to_pylist()) == ["new 0", "new 1"]
    assert len(snapshots_of(table)) == 1


def test_a_schema_that_another_evolves_meanwhile_is_a_conflict(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """Both new columns have the same id: the other's values would be read as ours."""
    table = make_table(catalog)
    target = ice.write_target(table, schema=_WIDER, schema_mode="evolve")
    files = ice.write_files(target, _wider(0))
    theirs = other.load_table("db.t")
    with theirs.update_schema() as update:
        update.add_column("theirs", LongType())
    ice.append(theirs, ids(5, 6).append_column("theirs", pa.array([55])))
    with pytest.raises(ice.CommitConflictError, match=r"schema of db\.t was changed"):
        ice.commit_files(table, files, target=target)
    found = table.refresh().scan().to_arrow()
    assert found["theirs"].to_pylist() == [55]
    assert len(markers_of(table)) == 1


def test_a_schema_that_has_all_columns_meanwhile_is_none(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog)
    target = ice.write_target(table, schema=_WIDER, schema_mode="evolve")
    files = ice.write_files(target, _wider(0))
    theirs = other.load_table("db.t")
    ice.append(theirs, _wider(1), schema_mode="evolve")
    ice.commit_files(table, files, target=target)
    assert sorted(table.refresh().scan().to_arrow()["new"].to_pylist()) == ["new 0", "new 1"]
    assert len(table.schemas()) == 2


def _unanswered(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Have the storage leave questions for files without an answer, so many times."""
    left, exists = iter(range(times)), PyArrowFile.exists

    def asked(self: PyArrowFile) -> bool:
        if next(left, None) is not None:
            raise TimeoutError("no answer")
        return exists(self)

    monkeypatch.setattr(PyArrowFile, "exists", asked)


def test_a_store_that_does_not_answer_is_asked_again(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(catalog)
    files = ice.write_files(table, ids(0, 10))
    _unanswered(monkeypatch, 2)
    ice.commit_files(table, files)
    assert ids_of(table) == list(range(10))


def test_a_store_that_never_answers_is_an_error_and_the_files_stay(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(catalog)
    files = ice.write_files(table, ids(0, 10))
    before = listing(table)
    with monkeypatch.context() as patched:
        _unanswered(patched, 100)
        with pytest.raises(ice.TransientReadError, match="in-flight"):
            ice.commit_files(table, files)
    assert listing(table) == before
    ice.commit_files(table, files)
    assert ids_of(table) == list(range(10))
