"""A REST catalog that answers wrongly, or not at all, and commits later than anybody waits for."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.committer import Committer
from icestream.commit.in_flight import InFlightWrite
from tests.support.loads import (
    SCHEMA,
    batch,
    ids,
    ids_of,
    listing,
    make_table,
    markers_of,
    snapshots_of,
)
from tests.support.rest_catalog import Fault, RestServer, impatient, rest_catalog
from tests.support.stored import folder_of, referenced_files, stored_files

_QUICK = {
    "commit__retry__min_wait_ms": "1",
    "commit__retry__max_wait_ms": "2",
    "commit__retry__num_retries": "0",
}
_ANSWERS = [None, 400, 401, 403, 404, 409, 419, 422, 429, 500, 502, 503, 504]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[RestServer, RestCatalog]]:
    with rest_catalog(tmp_path) as opened:
        yield opened


def _filled(catalog: RestCatalog) -> Table:
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    return table


def _check_files(table: Table) -> None:
    assert referenced_files(table) <= stored_files(folder_of(table))


@pytest.mark.parametrize("status", _ANSWERS)
def test_a_commit_that_happened_is_found_whatever_the_answer(
    served: tuple[RestServer, RestCatalog], status: int | None
) -> None:
    server, catalog = served
    table = _filled(catalog)
    # Where the answer is 401 or 419, PyIceberg itself sends the request again.
    server.faults = [Fault(status, commits=True), *[Fault(status)] * (status in (401, 419))]
    report = ice.append(table, ids(3, 5))
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert snapshots_of(table)[-1] == report.snapshot_id
    assert {f"{folder_of(table)}/{path}" for path in listing(table)} <= referenced_files(table)


@pytest.mark.parametrize("status", _ANSWERS)
def test_a_commit_that_lands_late_finds_its_files_whatever_the_answer(
    served: tuple[RestServer, RestCatalog], status: int | None
) -> None:
    server, catalog = served
    table = _filled(catalog)
    server.faults = [Fault(status, late=True)] * (1 + (status in (401, 419)))
    with pytest.raises(ice.CommitUnknownError) as unknown:
        ice.append(table, ids(3, 5))
    assert ids_of(table) == [0, 1, 2]
    assert len(markers_of(table)) == 1
    server.land_late_commits()
    assert ids_of(table) == [0, 1, 2, 3, 4]
    assert snapshots_of(table)[-1] == unknown.value.snapshot_id
    _check_files(table)


@pytest.mark.parametrize(
    "later_seconds", [0.0, pytest.param(5.0, marks=pytest.mark.slow)], ids=["at once", "later"]
)
def test_a_server_that_commits_after_the_clients_timeout(
    tmp_path: Path, later_seconds: float
) -> None:
    with rest_catalog(tmp_path) as (server, catalog):
        table = _filled(catalog)
        before = listing(table)
        server.released.clear()
        impatient(catalog, seconds=0.4)
        with pytest.raises(ice.CommitUnknownError, match="Timeout"):
            ice.overwrite(table, ids(3, 5))
        impatient(catalog, seconds=60)
        assert ids_of(table) == [0, 1, 2]
        assert len(markers_of(table)) == 1
        assert len([path for path in listing(table) - before if path.startswith("data")]) == 1
        time.sleep(later_seconds)
        server.released.set()
        server.wait_for_requests()
        assert ids_of(table) == [3, 4]
        _check_files(table)


def test_a_commit_is_found_that_lands_while_it_is_looked_for(
    served: tuple[RestServer, RestCatalog],
) -> None:
    server, catalog = served
    table = _filled(catalog)
    server.faults = [Fault(409, late=True)]
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            server.land_late_commits()

    server.on_fault = lambda: setattr(server, "on_load", look)
    report = ice.append(table, ids(3, 5))
    assert snapshots_of(table)[-1] == report.snapshot_id
    assert ids_of(table) == [0, 1, 2, 3, 4]


def test_a_refusal_is_one_when_the_branch_has_moved_past_it(
    served: tuple[RestServer, RestCatalog],
) -> None:
    _, catalog = served
    table = _filled(catalog)
    theirs = catalog.load_table("db.t")
    before, added = listing(table), set[str]()

    def stream() -> Iterator[object]:
        yield from ids(3, 5).to_batches()
        at_first = listing(table)
        ice.append(theirs, ids(10, 11))
        added.update(listing(table) - at_first)

    with pytest.raises(ice.CommitConflictError):
        ice.overwrite(table, stream())
    assert listing(table) == before | added
    assert ids_of(table) == [0, 1, 2, 10]


def test_a_branch_that_was_moved_back_does_not_rule_a_late_commit_out(
    served: tuple[RestServer, RestCatalog],
) -> None:
    """It may be moved forward again, to where the commit needs it."""
    server, catalog = served
    table = _filled(catalog)
    first = snapshots_of(table)[0]
    ice.append(table, ids(3, 5))
    second = snapshots_of(table)[1]
    server.faults = [Fault(503, late=True)]
    moved = catalog.load_table("db.t")

    def roll_back() -> None:
        server.on_fault = None
        server.backend.load_table("db.t").manage_snapshots().set_current_snapshot(first).commit()

    server.on_fault = roll_back
    with pytest.raises(ice.CommitUnknownError):
        ice.append(table, ids(5, 7))
    moved.refresh().manage_snapshots().set_current_snapshot(second).commit()
    server.land_late_commits()
    assert ids_of(table) == list(range(7))
    _check_files(table)


@pytest.mark.parametrize("verb", ["merge", "delete", "compact", "commit_files"])
def test_each_verb_that_lands_late_finds_its_files(
    served: tuple[RestServer, RestCatalog], verb: str
) -> None:
    server, catalog = served
    table = _filled(catalog)
    ice.append(table, ids(3, 5))
    run = {
        "merge": lambda: ice.merge(table, batch([(1, 7), (9, 7)]), on="id"),
        "delete": lambda: ice.delete(table, "id = 1"),
        "compact": lambda: ice.compact(table, min_files=2),
        "commit_files": lambda: ice.commit_files(table, ice.write_files(table, ids(5, 6))),
    }[verb]
    server.faults = [Fault(409, late=True)]
    with pytest.raises(ice.CommitUnknownError):
        run()
    server.land_late_commits()
    expected = {"merge": [0, 1, 2, 3, 4, 9], "delete": [0, 2, 3, 4], "compact": [0, 1, 2, 3, 4]}
    assert ids_of(table) == expected.get(verb, [0, 1, 2, 3, 4, 5])
    assert len(snapshots_of(table)) == 3
    _check_files(table)


# Creations


@pytest.mark.parametrize("status", [None, 403, 409, 503])
def test_a_table_that_is_created_late_finds_its_files(
    served: tuple[RestServer, RestCatalog], status: int | None
) -> None:
    server, catalog = served
    server.faults = [Fault(status, late=True)]
    with pytest.raises(ice.CommitUnknownError):
        ice.load(ids(0, 3), "db.new", catalog=catalog, engine="local", table_properties=_waits())
    assert not catalog.table_exists("db.new")
    server.land_late_commits()
    table = catalog.load_table("db.new")
    assert ids_of(table) == [0, 1, 2]
    assert len(markers_of(table)) == 1
    _check_files(table)


@pytest.mark.parametrize("status", [None, 403, 409, 503])
def test_a_table_that_was_created_is_found_whatever_the_answer(
    served: tuple[RestServer, RestCatalog], status: int | None
) -> None:
    server, catalog = served
    server.faults = [Fault(status, commits=True)]
    report = ice.load(
        ids(0, 3), "db.new", catalog=catalog, engine="local", table_properties=_waits()
    )
    table = catalog.load_table("db.new")
    assert report.created
    assert snapshots_of(table) == [report.snapshot_id]
    assert markers_of(table) == []
    _check_files(table)


def test_a_table_whose_creation_can_not_be_looked_up_keeps_its_files(
    served: tuple[RestServer, RestCatalog],
) -> None:
    server, catalog = served
    server.faults = [Fault(409, commits=True)]
    server.load_status_after_commit = 503
    with pytest.raises(ice.CommitUnknownError):
        ice.load(ids(0, 3), "db.new", catalog=catalog, engine="local", table_properties=_waits())
    server.load_status = None
    table = catalog.load_table("db.new")
    assert ids_of(table) == [0, 1, 2]
    _check_files(table)


def test_a_table_that_somebody_else_created_is_loaded_into(
    served: tuple[RestServer, RestCatalog],
) -> None:
    server, catalog = served

    def source() -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            yield from ids(0, 3).to_batches()
            if not server.backend.table_exists("db.new"):
                server.backend.create_table("db.new", SCHEMA)

        return pa.RecordBatchReader.from_batches(ids(0, 1).schema, batches())

    ice.load(source, "db.new", catalog=catalog, engine="local")
    table = catalog.load_table("db.new")
    assert ids_of(table) == [0, 1, 2]
    assert {f"{folder_of(table)}/{path}" for path in listing(table)} <= referenced_files(table)


def _waits() -> dict[str, str]:
    return {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "2"}


def _full_disk() -> mock._patch[mock.Mock]:
    full = OSError(errno.ENOSPC, "No space left on device")
    return mock.patch("icestream.commit.snapshot.producer.write_manifest_list", side_effect=full)


def _interrupt() -> mock._patch[mock.Mock]:
    return mock.patch(
        "icestream.commit.snapshot.producer.write_manifest_list", side_effect=KeyboardInterrupt
    )


def _silent_catalog() -> mock._patch[mock.Mock]:
    lost = ice.CatalogError("the catalog could not be asked")
    return mock.patch("icestream.commit.committer.Committer._refresh", side_effect=lost)


def _refused_schema() -> mock._patch[mock.Mock]:
    refused = ice.CommitConflictError("the schema was changed")
    return mock.patch("icestream.commit.committer.apply_schema_change", side_effect=refused)


@pytest.mark.parametrize("fails", [_full_disk, _interrupt, _silent_catalog, _refused_schema])
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_second_call_that_fails_keeps_the_files_that_the_first_may_still_commit(
    served: tuple[RestServer, RestCatalog], fails: Callable[[], Any], mode: Any
) -> None:
    server, catalog = served
    table = _filled(catalog)
    files = ice.write_files(table, ids(5, 6))
    server.faults = [Fault(503, late=True)]
    with pytest.raises(ice.CommitUnknownError):
        ice.commit_files(table, files)
    before = listing(table)
    with fails(), pytest.raises((ice.IcestreamError, KeyboardInterrupt)):
        ice.commit_files(table, files, mode=mode, where=None if mode == "append" else "id < 2")
    assert listing(table) == before
    assert len(markers_of(table)) == 1
    server.land_late_commits()
    assert ids_of(table) == [0, 1, 2, 5]
    _check_files(table)
    assert ice.commit_files(table, files).already_committed


def test_a_transaction_that_fails_keeps_the_files_that_a_first_call_may_still_commit(
    served: tuple[RestServer, RestCatalog],
) -> None:
    server, catalog = served
    table = _filled(catalog)
    files = ice.write_files(table, ids(5, 6))
    server.faults = [Fault(503, late=True)]
    with pytest.raises(ice.CommitUnknownError):
        ice.commit_files(table, files)
    before = listing(table)
    with _full_disk(), pytest.raises(ice.CommitError):
        ice.commit_files(table.transaction(), files)
    assert listing(table) == before
    server.land_late_commits()
    assert ids_of(table) == [0, 1, 2, 5]
    _check_files(table)


def test_a_refusal_on_one_branch_keeps_files_that_may_still_land_on_another(
    served: tuple[RestServer, RestCatalog],
) -> None:
    server, catalog = served
    table = _filled(catalog)
    table.manage_snapshots().create_branch(snapshots_of(table)[-1], "audit").commit()
    theirs = catalog.load_table("db.t")
    files = ice.write_files(table, ids(5, 6))
    server.faults = [Fault(503, late=True)]
    with pytest.raises(ice.CommitUnknownError):
        ice.commit_files(table, files)
    prepare, calls = Committer._prepare, count()

    def prepared(self: Committer) -> Any:
        if next(calls) == 0:
            ice.append(theirs, ids(8, 9), branch="audit")
            self._refresh()
        return prepare(self)

    with mock.patch.object(Committer, "_prepare", prepared), pytest.raises(ice.CommitConflictError):
        ice.commit_files(table, files, mode="overwrite", branch="audit")
    server.land_late_commits()
    _check_files(table)
    assert len(markers_of(table)) == 1


def test_a_race_that_ctrl_c_ends_keeps_the_files_that_the_other_call_has_committed(
    served: tuple[RestServer, RestCatalog],
) -> None:
    """The loser knows that the files are in the table, and is interrupted before it notes that."""
    _, catalog = served
    table = make_table(catalog, **_QUICK | {"commit__retry__num_retries": "2"})
    ice.append(table, ids(0, 3))
    files = ice.write_files(table, ids(5, 6))
    theirs = catalog.load_table("db.t")
    prepare, calls = Committer._prepare, count()

    def prepared(self: Committer) -> Any:
        if next(calls) == 0:
            ice.commit_files(theirs, files)
        return prepare(self)

    with (
        mock.patch.object(Committer, "_prepare", prepared),
        mock.patch.object(InFlightWrite, "superseded", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        ice.commit_files(table, files)
    assert ids_of(table) == [0, 1, 2, 5]
    _check_files(table)
