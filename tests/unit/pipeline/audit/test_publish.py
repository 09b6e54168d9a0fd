"""Audit branches: made, outrun, published in one commit, dropped."""

from __future__ import annotations

import time
from pathlib import Path
from unittest import mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.table import CommitTableResponse, Table

import icestream as ice
from icestream.pipeline.audit.publish import AuditBranch, OutrunError
from tests.support.loads import (
    after_commits,
    before_commits,
    head_of,
    ids,
    ids_of,
    make_table,
    raising,
    snapshots_of,
)
from tests.support.tables import make_catalog

_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Ids 0 to 2 on main."""
    catalog = make_catalog(tmp_path)
    table = make_table(catalog, **_QUICK)
    ice.append(table, ids(0, 3))
    yield table
    catalog.close()


@pytest.fixture
def catalog(table: Table) -> SqlCatalog:
    return table.catalog


@pytest.fixture
def audit(table: Table) -> AuditBranch:
    return AuditBranch(table, "icestream_audit_x")


def _loaded(audit: AuditBranch) -> int:
    audit.prepare("L")
    ice.append(audit.table, ids(3, 5), branch=audit.name, load_id="L")
    return audit.head()


def _refs(table: Table) -> set[str]:
    return set(table.refresh().metadata.refs)


def test_a_load_is_seen_on_main_only_when_it_is_published(audit: AuditBranch) -> None:
    head = _loaded(audit)
    assert ids_of(audit.table) == [0, 1, 2]
    assert audit.published("L") is None
    audit.publish(head, "L")
    assert ids_of(audit.table) == [0, 1, 2, 3, 4]
    assert head_of(audit.table).snapshot_id == head
    assert _refs(audit.table) == {"main"}
    assert audit.published("L") is not None


def test_publishing_is_one_commit(audit: AuditBranch, catalog: SqlCatalog) -> None:
    head = _loaded(audit)
    with before_commits(catalog, lambda: None, times=1):
        audit.publish(head, "L")
    before = len(audit.table.metadata.metadata_log)
    audit.publish(head, "L")  # a second time changes nothing
    assert len(audit.table.refresh().metadata.metadata_log) == before


def test_a_published_load_is_remembered_after_its_snapshot_expired(audit: AuditBranch) -> None:
    head = _loaded(audit)
    audit.publish(head, "L")
    ice.append(audit.table, ids(9, 10))
    audit.table.maintenance.expire_snapshots().by_id(head).commit()
    assert audit.published("L") is not None
    assert ice.append(audit.table, ids(3, 5), load_id="L").already_committed


def test_a_commit_to_main_meanwhile_is_not_lost(audit: AuditBranch) -> None:
    head = _loaded(audit)
    ice.append(audit.table, ids(100, 101))
    with pytest.raises(OutrunError, match="Nothing was published"):
        audit.publish(head, "L")
    assert ids_of(audit.table) == [0, 1, 2, 100]
    head = _loaded(audit)
    audit.publish(head, "L")
    assert ids_of(audit.table) == [0, 1, 2, 3, 4, 100]


def test_a_commit_to_main_at_the_last_moment_is_not_lost(
    audit: AuditBranch, catalog: SqlCatalog
) -> None:
    head = _loaded(audit)
    other = catalog.load_table("db.t")
    with (
        before_commits(catalog, lambda: ice.append(other, ids(100, 101))),
        pytest.raises(OutrunError),
    ):
        audit.publish(head, "L")
    assert ids_of(audit.table) == [0, 1, 2, 100]


def test_what_was_not_looked_at_is_not_published(audit: AuditBranch) -> None:
    head = _loaded(audit)
    ice.append(audit.table, ids(50, 51), branch=audit.name)
    with pytest.raises(OutrunError):
        audit.publish(head, "L")
    assert ids_of(audit.table) == [0, 1, 2]


def test_a_commit_to_another_branch_meanwhile_is_no_reason_to_load_again(
    audit: AuditBranch, catalog: SqlCatalog
) -> None:
    audit.table.manage_snapshots().create_branch(head_of(audit.table).snapshot_id, "b").commit()
    head = _loaded(audit)
    other = catalog.load_table("db.t")
    with before_commits(catalog, lambda: ice.append(other, ids(100, 101), branch="b")):
        audit.publish(head, "L")
    assert ids_of(audit.table) == [0, 1, 2, 3, 4]
    assert ids_of(audit.table, branch="b") == [0, 1, 2, 100]


@pytest.mark.parametrize("error", [ConnectionError("lost"), TimeoutError()])
def test_a_lost_answer_is_looked_up(
    audit: AuditBranch, catalog: SqlCatalog, error: Exception
) -> None:
    with after_commits(catalog, raising(error)):
        audit.prepare("L")
    head = _loaded(audit)
    with after_commits(catalog, raising(error)):
        audit.publish(head, "L")
    assert ids_of(audit.table) == [0, 1, 2, 3, 4]
    audit.prepare("L")
    with after_commits(catalog, raising(error)):
        audit.drop()
    assert _refs(audit.table) == {"main"}


def test_a_request_that_was_lost_is_sent_again(audit: AuditBranch, catalog: SqlCatalog) -> None:
    head = _loaded(audit)
    with before_commits(catalog, raising(ConnectionError("lost")), times=2):
        audit.publish(head, "L")
    assert ids_of(audit.table) == [0, 1, 2, 3, 4]


def test_a_catalog_that_never_answers_is_said_to_be_unknown(
    audit: AuditBranch, catalog: SqlCatalog
) -> None:
    head = _loaded(audit)
    with (
        mock.patch("icestream.commit.ref_change.has_ended", return_value=False),
        before_commits(catalog, raising(ConnectionError("lost")), times=4),
        pytest.raises(ice.CommitUnknownError, match="done once") as caught,
    ):
        audit.publish(head, "L")
    assert caught.value.snapshot_id == head
    assert ids_of(audit.table) == [0, 1, 2]


@pytest.mark.parametrize("error", [ForbiddenError("no"), ValueError("no"), OSError("no")], ids=repr)
def test_a_publication_that_happened_is_done_whatever_the_catalog_said(
    audit: AuditBranch, catalog: SqlCatalog, error: Exception
) -> None:
    head = _loaded(audit)
    with after_commits(catalog, raising(error)):
        audit.publish(head, "L")
    assert ids_of(audit.table) == [0, 1, 2, 3, 4]


def test_a_refusal_that_may_be_false_is_not_called_one(
    audit: AuditBranch, catalog: SqlCatalog
) -> None:
    """A copy of the request may still be under way, while the branches are where it needs them."""
    head = _loaded(audit)
    with (
        mock.patch("icestream.commit.ref_change.has_ended", return_value=False),
        before_commits(catalog, raising(ForbiddenError("no"))),
        pytest.raises(ice.CommitUnknownError),
    ):
        audit.publish(head, "L")
    with (
        before_commits(catalog, raising(ForbiddenError("no"))),
        pytest.raises(ice.CommitError, match="refused") as caught,
    ):
        audit.publish(head, "L")
    assert type(caught.value) is ice.CommitError


def test_a_catalog_that_says_yes_and_does_nothing_is_not_asked_for_ever(
    audit: AuditBranch, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = _loaded(audit)
    unchanged = CommitTableResponse(
        metadata=audit.table.metadata, metadata_location=audit.table.metadata_location
    )
    calls = []

    def commit_table(*_: object) -> CommitTableResponse:
        calls.append(None)
        time.sleep(0.002)  # the time is part of what the catalog is asked for
        return unchanged

    monkeypatch.setattr(catalog, "commit_table", commit_table)
    with pytest.raises(ice.CommitUnknownError, match="said yes, and the table is as it was"):
        audit.publish(head, "L")
    assert len(calls) <= 5


def test_a_dropped_branch_forgets_its_load(audit: AuditBranch) -> None:
    head = _loaded(audit)
    audit.drop()
    audit.drop()
    assert not any(audit.name in key for key in audit.table.properties)
    audit.prepare("L")
    audit.table.maintenance.expire_snapshots().by_id(head).commit()
    report = ice.append(audit.table, ids(3, 5), branch=audit.name, load_id="L")
    assert not report.already_committed


def test_a_branch_that_is_still_ahead_is_taken_up(audit: AuditBranch) -> None:
    head = _loaded(audit)
    assert _loaded(audit) == head
    assert len(snapshots_of(audit.table)) == 2


@pytest.mark.parametrize("then", [None, "L"])
def test_a_load_that_was_given_up_is_not_published_with_another(
    audit: AuditBranch, then: str | None
) -> None:
    audit.prepare("gone")
    ice.append(audit.table, ids(60, 61), branch=audit.name, load_id="gone")
    if then is not None:
        ice.append(audit.table, ids(61, 62), branch=audit.name, load_id=then)
    audit.publish(_loaded(audit), "L")
    assert ids_of(audit.table) == [0, 1, 2, 3, 4]


def test_an_empty_table_gets_an_empty_snapshot_to_start_at(catalog: SqlCatalog) -> None:
    audit = AuditBranch(make_table(catalog, "db.empty", **_QUICK), "icestream_audit_x")
    head = _loaded(audit)
    assert ids_of(audit.table) == []
    audit.publish(head, "L")
    assert ids_of(audit.table) == [3, 4]


def test_a_branch_that_is_loaded_must_be_there(table: Table) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="no branch 'dev'"):
        AuditBranch(table, "icestream_audit_x", "dev").prepare("L")


def test_another_branch_than_main_keeps_what_is_set_for_it(table: Table) -> None:
    start = head_of(table).snapshot_id
    table.manage_snapshots().create_branch(start, "dev", max_ref_age_ms=10**9).commit()
    audit = AuditBranch(table, "icestream_audit_x", "dev")
    audit.publish(_loaded(audit), "L")
    assert ids_of(table) == [0, 1, 2]
    assert ids_of(table, branch="dev") == [0, 1, 2, 3, 4]
    assert table.metadata.refs["dev"].max_ref_age_ms == 10**9
