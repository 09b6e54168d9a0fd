"""A catalog that commits and says nothing, or says nothing and does not: each load lands once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import requests
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.table import CommitTableResponse, Table
from sqlalchemy.exc import OperationalError

import icestream as ice
from icestream.commit.schema_change import SchemaConflictError
from tests.support.loads import (
    after_commits,
    before_commits,
    ids,
    ids_of,
    listing,
    make_table,
    markers_of,
    raising,
    snapshots_of,
    summary_of,
)
from tests.support.tables import make_catalog

_LOST: dict[str, Callable[[], Exception]] = {
    "unknown": lambda: CommitStateUnknownException("lost"),
    "requests": lambda: requests.ConnectionError("lost"),
    "sql": lambda: OperationalError("COMMIT", {}, Exception("server closed the connection")),
    "socket": lambda: ConnectionResetError("lost"),
    "anything": lambda: RuntimeError("lost"),
}
_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def other(tmp_path: Path, catalog: SqlCatalog) -> Iterator[SqlCatalog]:
    other = make_catalog(tmp_path)
    yield other
    other.close()


@pytest.fixture
def remote(catalog: SqlCatalog) -> Iterator[SqlCatalog]:
    """The catalog as if its requests could arrive after their answers were given up on."""
    with mock.patch("icestream.commit.outcome.unknown_outcome.has_ended", return_value=False):
        yield catalog


def _table(catalog: SqlCatalog, **properties: str) -> Table:
    table = make_table(catalog, **_QUICK, **properties)
    ice.append(table, ids(0, 3))
    return table


@pytest.mark.parametrize("lost", _LOST.values(), ids=_LOST.keys())
def test_a_commit_whose_answer_is_lost_is_found_by_its_snapshot(
    catalog: SqlCatalog, lost: Callable[[], Exception]
) -> None:
    table = _table(catalog)
    with after_commits(catalog, raising(lost())):
        report = ice.append(table, ids(3, 5), load_id="x")
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert snapshots_of(table)[-1] == report.snapshot_id
    assert len(snapshots_of(table)) == 2
    assert (report.rows_inserted, report.files_added, report.commit_attempts) == (2, 1, 1)
    assert not report.already_committed
    assert len(listing(table)) == 6  # no metadata of another try, no marker
    assert ice.append(table, ids(3, 5), load_id="x").already_committed


@pytest.mark.parametrize("lost", _LOST.values(), ids=_LOST.keys())
def test_a_commit_that_did_not_happen_is_tried_again_and_lands_once(
    catalog: SqlCatalog, lost: Callable[[], Exception]
) -> None:
    table = _table(catalog)
    with before_commits(catalog, raising(lost())):
        report = ice.append(table, ids(3, 5))
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert (len(snapshots_of(table)), report.commit_attempts) == (2, 2)
    assert len(listing(table)) == 6


def test_an_answer_lost_after_a_conflict_is_found_too(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = _table(catalog)
    theirs = other.load_table("db.t")
    with (
        after_commits(catalog, raising(CommitStateUnknownException("lost"))),
        before_commits(catalog, lambda: ice.append(theirs, ids(10, 11))),
    ):
        report = ice.append(table, ids(3, 5))
    assert ids_of(table) == [0, 1, 2, 3, 4, 10]
    assert report.commit_attempts == 2
    assert len(listing(table)) == 9


def test_a_commit_that_landed_under_others_is_found_too(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    """Its snapshot is no longer the head when the table is looked at."""
    table = _table(catalog)
    theirs = other.load_table("db.t")

    def lose() -> None:
        ice.append(theirs, ids(10, 11))
        raise CommitStateUnknownException("lost")

    with after_commits(catalog, lose):
        ice.append(table, ids(3, 5))
    assert ids_of(table) == [0, 1, 2, 3, 4, 10]
    assert len(snapshots_of(table)) == 3


def test_a_catalog_that_is_busy_is_asked_again(catalog: SqlCatalog) -> None:
    """SQLite says so instead of waiting; it may do so at any question."""
    table = _table(catalog)
    busy = OperationalError("UPDATE", {}, Exception("database is locked"))
    with before_commits(catalog, raising(busy), times=5):
        report = ice.append(table, ids(3, 5))
    assert report.commit_attempts == 6
    load, left = catalog.load_table, [2]

    def load_table(name: object) -> Table:
        if left[0] and markers_of(table):  # while the commit is on its way
            left[0] -= 1
            raise busy
        return load(name)

    with mock.patch.object(catalog, "load_table", load_table):
        ice.append(table, ids(5, 6))
    assert left == [0]
    assert ids_of(table) == [0, 1, 2, 3, 4, 5]
    assert len(listing(table)) == 9


def _unreachable(catalog: SqlCatalog) -> mock._patch[mock.Mock]:
    return mock.patch.object(catalog, "load_table", side_effect=requests.ConnectionError("gone"))


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("stages", [1, 2])
def test_a_catalog_that_can_not_be_asked_keeps_every_file(
    catalog: SqlCatalog, landed: bool, stages: int
) -> None:
    table = _table(catalog)
    before = listing(table)
    files = ice.write_files(table, ids(3, 5)) if stages == 2 else ()
    gone = _unreachable(catalog)

    def lose() -> None:
        gone.start()
        raise requests.ConnectionError("lost")

    around = after_commits if landed else before_commits
    with around(catalog, lose), pytest.raises(ice.CommitUnknownError) as unknown:
        _ = ice.commit_files(table, files) if files else ice.append(table, ids(3, 5))
    gone.stop()
    assert isinstance(unknown.value.__cause__, ice.CatalogError)
    assert len([n for n in listing(table) - before if n.startswith("data")]) == 1
    assert len(markers_of(table)) == 1
    assert (unknown.value.snapshot_id in snapshots_of(table)) == landed
    assert ids_of(table) == ([0, 1, 2, 3, 4] if landed else [0, 1, 2])
    if stages == 2:  # whoever tries again gets it right
        assert ice.commit_files(table, files).already_committed == landed
        assert ids_of(table) == [0, 1, 2, 3, 4]


def test_a_catalog_that_never_answers_keeps_every_file(remote: SqlCatalog) -> None:
    table = _table(remote)
    before = listing(table)
    lost = raising(CommitStateUnknownException("lost"))
    with before_commits(remote, lost, times=4), pytest.raises(ice.CommitUnknownError, match="lost"):
        ice.append(table, ids(3, 5))
    assert len([n for n in listing(table) - before if n.startswith("data")]) == 1
    assert len(markers_of(table)) == 1
    assert ids_of(table) == [0, 1, 2]


def test_a_refusal_after_a_lost_answer_is_unknown_where_the_first_may_still_arrive(
    remote: SqlCatalog,
) -> None:
    table = _table(remote)
    errors = iter([CommitStateUnknownException("lost"), ForbiddenError("no")])
    before = listing(table)

    def fail() -> None:
        raise next(errors)

    with before_commits(remote, fail, times=2), pytest.raises(ice.CommitUnknownError):
        ice.append(table, ids(3, 5))
    assert len(markers_of(table)) == 1
    assert len([n for n in listing(table) - before if n.startswith("data")]) == 1


def test_a_refusal_after_a_lost_answer_is_one_where_the_first_has_failed(
    catalog: SqlCatalog,
) -> None:
    table = _table(catalog)
    errors = iter([CommitStateUnknownException("lost"), ForbiddenError("no")])
    before = listing(table)

    def fail() -> None:
        raise next(errors)

    with before_commits(catalog, fail, times=2), pytest.raises(ice.CommitError, match="refused"):
        ice.append(table, ids(3, 5))
    assert listing(table) == before


def test_a_conflict_after_a_lost_answer_cleans_up_since_the_branch_has_moved_on(
    remote: SqlCatalog, other: SqlCatalog
) -> None:
    """The lost commit can't arrive any more: it was to go on top of another snapshot."""
    table = _table(remote)
    before = listing(table)
    theirs = other.load_table("db.t")
    added: set[str] = set()

    def lose() -> None:
        open_now = listing(table)
        ice.append(theirs, ids(10, 11))
        added.update(listing(table) - open_now)
        raise CommitStateUnknownException("lost")

    with before_commits(remote, lose), pytest.raises(ice.CommitConflictError):
        ice.overwrite(table, ids(3, 5))
    assert listing(table) == before | added


@pytest.mark.parametrize("where", ["catalog", "remote"])
def test_another_with_the_same_load_id_after_a_lost_answer_is_not_doubled(
    request: pytest.FixtureRequest, other: SqlCatalog, where: str
) -> None:
    catalog = request.getfixturevalue(where)
    table = _table(catalog)
    before = listing(table)
    theirs = other.load_table("db.t")
    added: set[str] = set()

    def lose() -> None:
        open_now = listing(table)
        ice.append(theirs, ids(3, 5), load_id="same")
        added.update(listing(table) - open_now)
        raise CommitStateUnknownException("lost")

    with before_commits(catalog, lose):
        report = ice.append(table, ids(3, 5), load_id="same")
    assert report.already_committed
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert listing(table) == before | added


def test_a_request_that_arrives_late_lands_once(remote: SqlCatalog) -> None:
    """The first is given up on, and lands while the second is on its way."""
    table = _table(remote)
    commit = type(remote).commit_table
    sent: list[tuple[object, ...]] = []

    def commit_table(*args: object) -> object:
        sent.append(args)
        if len(sent) == 1:
            raise CommitStateUnknownException("lost")
        commit(remote, *sent[0])
        return commit(remote, *args)

    with mock.patch.object(remote, "commit_table", commit_table):
        report = ice.append(table, ids(3, 5))
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert snapshots_of(table)[-1] == report.snapshot_id
    assert len(listing(table)) == 6  # the metadata of the second try is gone, not the first's
    assert summary_of(table)["total-records"] == "5"


@pytest.mark.parametrize(
    "error",
    [
        ice.CommitConflictError("the files are gone"),
        ice.CommitError("a manifest could not be written"),
        SchemaConflictError("a column has another type now"),
        MemoryError("full"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_second_try_that_can_not_be_prepared_keeps_the_files_of_the_first(
    remote: SqlCatalog, error: BaseException
) -> None:
    """The first has no answer and lands when the second is given up."""
    table = _table(remote)
    commit, sent = remote.commit_table, list[tuple[object, ...]]()

    def lose(*args: object) -> None:
        sent.append(args)
        prepare.start()
        raise CommitStateUnknownException("lost")

    prepare = mock.patch("icestream.commit.committer.attempt", side_effect=error)
    kind = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else ice.CommitUnknownError
    with mock.patch.object(remote, "commit_table", lose), pytest.raises(kind):
        ice.append(table, ids(3, 5))
    prepare.stop()
    assert len(markers_of(table)) == 1
    commit(*sent[0])
    assert ids_of(table) == [0, 1, 2, 3, 4]


def test_a_look_is_not_taken_in_by_what_another_thread_has_set(catalog: SqlCatalog) -> None:
    """A thread that has committed before sets the metadata of a shared table object late."""
    table = _table(catalog, commit__retry__num_retries="0")
    older = table.refresh().metadata

    class Stale(type(table)):  # type: ignore[misc]
        """Shows the older metadata, whatever it was given."""

        @property
        def metadata(self) -> object:
            return older

        @metadata.setter
        def metadata(self, _: object) -> None: ...

    shared = Stale(table.name(), older, table.metadata_location, table.io, catalog)
    with after_commits(catalog, raising(CommitFailedException("false"))):
        report = ice.append(shared, ids(3, 5))
    assert snapshots_of(table)[-1] == report.snapshot_id
    assert ids_of(table) == [0, 1, 2, 3, 4]


def _land_and_expire(table: Table, theirs: Table) -> None:
    """Others commit on top of the newest snapshot, which then expires."""
    landed = snapshots_of(table)[-1]
    ice.append(theirs, ids(10, 11))
    theirs.maintenance.expire_snapshots().by_id(landed).commit()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("empty", [True, False], ids=["first", "later"])
@pytest.mark.parametrize("retries", ["0", "3"])
@pytest.mark.parametrize("where", ["catalog", "remote"])
def test_a_commit_that_landed_and_expired_is_not_taken_for_a_refused_one(
    request: pytest.FixtureRequest,
    other: SqlCatalog,
    where: str,
    retries: str,
    empty: bool,
    version: int,
) -> None:
    """Its files are in the snapshots of those who came after it, and not a second time."""
    catalog = request.getfixturevalue(where)
    table = make_table(catalog, version=version, commit__retry__num_retries=retries, **_QUICK)
    if not empty:
        ice.append(table, ids(0, 3))
    theirs = other.load_table("db.t")

    def lose() -> None:
        _land_and_expire(other.load_table("db.t"), theirs)
        raise CommitFailedException("another was first")

    with after_commits(catalog, lose), pytest.raises(ice.CommitUnknownError):
        ice.append(table, ids(3, 5))
    assert ids_of(table) == [*(() if empty else (0, 1, 2)), 3, 4, 10]


def test_a_load_that_landed_and_expired_is_known_by_its_id(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = _table(catalog)
    theirs = other.load_table("db.t")

    def lose() -> None:
        _land_and_expire(other.load_table("db.t"), theirs)
        raise CommitStateUnknownException("lost")

    with after_commits(catalog, lose):
        report = ice.append(table, ids(3, 5), load_id="x")
    assert not report.already_committed
    assert ids_of(table) == [0, 1, 2, 3, 4, 10]
    assert markers_of(table) == []


def test_a_catalog_that_takes_an_earlier_try_keeps_its_metadata(remote: SqlCatalog) -> None:
    """It knows the snapshot's id from the first request and says yes to the second."""
    table = _table(remote)
    commit, sent = remote.commit_table, list[tuple[Any, ...]]()

    def commit_table(*args: Any) -> Any:
        sent.append(args)
        if len(sent) == 1:
            raise CommitStateUnknownException("lost")
        return commit(*sent[0])

    with mock.patch.object(remote, "commit_table", commit_table):
        report = ice.append(table, ids(3, 5))
    assert snapshots_of(table)[-1] == report.snapshot_id
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert len(listing(table)) == 6


def test_a_catalog_that_says_yes_and_does_nothing_is_not_believed(catalog: SqlCatalog) -> None:
    table = _table(catalog)
    unchanged = CommitTableResponse(
        metadata=table.refresh().metadata, metadata_location=table.metadata_location
    )
    with (
        mock.patch.object(catalog, "commit_table", return_value=unchanged),
        pytest.raises(ice.CommitUnknownError, match="said yes"),
    ):
        ice.append(table, ids(3, 5))
    assert len(markers_of(table)) == 1
    assert ids_of(table) == [0, 1, 2]


# Ctrl-C


@pytest.mark.parametrize("where", ["catalog", "remote"])
def test_ctrl_c_after_the_catalog_has_committed_keeps_the_files(
    request: pytest.FixtureRequest, where: str
) -> None:
    catalog = request.getfixturevalue(where)
    table = _table(catalog)
    with after_commits(catalog, raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        ice.append(table, ids(3, 5))
    assert ids_of(table) == [0, 1, 2, 3, 4]


def test_ctrl_c_before_it_has_leaves_nothing_where_that_is_certain(catalog: SqlCatalog) -> None:
    table = _table(catalog)
    before = listing(table)
    with before_commits(catalog, raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        ice.append(table, ids(3, 5))
    assert ids_of(table) == [0, 1, 2]
    assert listing(table) == before


def test_ctrl_c_keeps_the_files_where_the_request_may_still_arrive(remote: SqlCatalog) -> None:
    table = _table(remote)
    with before_commits(remote, raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        ice.append(table, ids(3, 5))
    assert len(markers_of(table)) == 1
    assert len(listing(table)) == 3 + 4


def test_ctrl_c_while_waiting_for_the_next_try_leaves_nothing(catalog: SqlCatalog) -> None:
    table = _table(catalog)
    before = listing(table)
    with (
        mock.patch("icestream.commit.outcome.retry.time.sleep", side_effect=KeyboardInterrupt),
        before_commits(catalog, raising(CommitFailedException("other"))),
        pytest.raises(KeyboardInterrupt),
    ):
        ice.append(table, ids(3, 5))
    assert listing(table) == before


def test_a_catalog_that_fails_before_the_commit_leaves_nothing(catalog: SqlCatalog) -> None:
    table = _table(catalog)
    before = listing(table)
    load = catalog.load_table

    def load_table(name: object) -> Table:
        if markers_of(table):
            raise requests.ConnectionError("gone")
        return load(name)

    with (
        mock.patch.object(catalog, "load_table", load_table),
        pytest.raises(ice.CatalogError, match="gone"),
    ):
        ice.append(table, ids(3, 5))
    assert listing(table) == before


def test_a_snapshot_stored_under_another_spelling_of_its_paths_loses_no_manifest(
    catalog: SqlCatalog,
) -> None:
    """Some catalogs rewrite locations: what can't be told apart must not be deleted."""
    table = _table(catalog)
    commit = type(catalog).commit_table

    def commit_table(given: Table, requirements: tuple, updates: tuple) -> object:  # type: ignore[type-arg]
        for update in updates:
            snapshot = getattr(update, "snapshot", None)
            if snapshot is not None:
                path = snapshot.manifest_list.replace("file:///", "file:/")
                object.__setattr__(snapshot, "manifest_list", path)
        commit(catalog, given, requirements, updates)
        raise CommitStateUnknownException("lost")

    with mock.patch.object(catalog, "commit_table", commit_table):
        ice.append(table, ids(3, 5))
    assert len([name for name in listing(table) if name.endswith(".avro")]) == 4
