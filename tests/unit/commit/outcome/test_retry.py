"""What an error of the catalog says of a commit, and how long to wait before the next try."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from pydantic import BaseModel, ValidationError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchTableError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
    WaitingForLockException,
)
from requests.exceptions import ConnectionError as LostConnection
from requests.exceptions import JSONDecodeError, ReadTimeout
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from icestream.commit.outcome import retry
from icestream.commit.outcome.retry import Backoff, Outcome, answers_at_once, classify, has_ended
from tests.support.tables import make_catalog

_STALE = "Cannot add snapshot with sequence number 3 older than last sequence number 3"
_real_time = time.monotonic


def _sql(kind: type[DBAPIError], text: str) -> Exception:
    return kind("UPDATE", {}, Exception(text))


def _invalid() -> Exception:
    class Answer(BaseModel):
        metadata: int

    try:
        Answer.model_validate_json("<html>bad gateway</html>")
    except ValidationError as error:
        return error
    raise AssertionError


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path_factory.mktemp("retry"))
    yield catalog
    catalog.close()


class _Remote:
    """Stands for a catalog that is asked over the network."""


_EVERYWHERE = [
    (CommitFailedException("x"), Outcome.CONFLICT),
    (WaitingForLockException("x"), Outcome.CONFLICT),
    (TooManyRequestsError("x"), Outcome.CONFLICT),
    (ValueError(_STALE), Outcome.CONFLICT),
    (BadRequestError(_STALE), Outcome.CONFLICT),
    (ValueError("Snapshot with id 7 already exists"), Outcome.CONFLICT),
    (BadRequestError("x"), Outcome.REFUSED),
    (ForbiddenError("x"), Outcome.REFUSED),
    (UnauthorizedError("x"), Outcome.REFUSED),
    (AuthorizationExpiredError("x"), Outcome.REFUSED),
    (NoSuchTableError("x"), Outcome.REFUSED),
    (CommitStateUnknownException("x"), Outcome.UNKNOWN),
    (ServerError("x"), Outcome.UNKNOWN),
    (ServiceUnavailableError("x"), Outcome.UNKNOWN),
    (RESTError("x"), Outcome.UNKNOWN),
    (LostConnection("x"), Outcome.UNKNOWN),
    (ReadTimeout("x"), Outcome.UNKNOWN),
    (JSONDecodeError("x", "y", 0), Outcome.UNKNOWN),
    (ConnectionResetError("x"), Outcome.UNKNOWN),
    (TimeoutError("x"), Outcome.UNKNOWN),
    (RuntimeError("x"), Outcome.UNKNOWN),
]
_SQL = [
    (_sql(OperationalError, "database is locked"), Outcome.CONFLICT),
    (_sql(OperationalError, "could not serialize access"), Outcome.CONFLICT),
    (_sql(OperationalError, "deadlock detected"), Outcome.CONFLICT),
    (_sql(OperationalError, "server closed the connection unexpectedly"), Outcome.UNKNOWN),
    (_sql(IntegrityError, "x"), Outcome.UNKNOWN),
    (PoolTimeout("x"), Outcome.UNKNOWN),
    (ValueError("a snapshot before a schema"), Outcome.REFUSED),
    (TypeError("x"), Outcome.REFUSED),
    (OSError(28, "No space left on device"), Outcome.REFUSED),
    (PermissionError("x"), Outcome.REFUSED),
    (KeyError("icestream.load.main:x"), Outcome.CONFLICT),
]
_REMOTE = [
    (_invalid(), Outcome.UNKNOWN),  # an answer that makes no sense may follow a commit
    (ValueError("x"), Outcome.UNKNOWN),
    (TypeError("x"), Outcome.UNKNOWN),
    (OSError("x"), Outcome.UNKNOWN),
    (KeyError("x"), Outcome.UNKNOWN),
]


def _name(value: Any) -> str:
    return value.name if isinstance(value, Outcome) else f"{type(value).__name__}({value})"[:60]


@pytest.mark.parametrize(("error", "outcome"), [*_EVERYWHERE, *_SQL], ids=_name)
def test_errors_of_a_sql_catalog(sql: SqlCatalog, error: Exception, outcome: Outcome) -> None:
    assert classify(error, sql) is outcome


@pytest.mark.parametrize(("error", "outcome"), [*_EVERYWHERE, *_REMOTE], ids=_name)
def test_errors_of_a_remote_catalog(error: Exception, outcome: Outcome) -> None:
    assert classify(error, _Remote()) is outcome  # type: ignore[arg-type]


def test_only_sqlite_is_known_to_have_answered_when_the_call_ends(catalog: SqlCatalog) -> None:
    """A database server may carry out what was sent on a connection that was lost."""
    assert answers_at_once(catalog)
    assert not answers_at_once(_Remote())  # type: ignore[arg-type]
    catalog.engine.dialect.name = "postgresql"
    assert not answers_at_once(catalog)


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (CommitFailedException("x"), True),
        (NoSuchTableError("x"), True),
        (ValueError("x"), True),
        (KeyError("x"), True),
        (CommitStateUnknownException("x"), False),
        (OSError("x"), False),
        (ConnectionResetError("x"), False),
        (LostConnection("x"), False),
        (JSONDecodeError("x", "y", 0), False),
        (_sql(OperationalError, "database is locked"), False),
        (RuntimeError("x"), False),
        (KeyboardInterrupt(), False),
    ],
    ids=_name,
)
def test_when_a_database_server_has_nothing_under_way(
    catalog: SqlCatalog, error: BaseException, ended: bool
) -> None:
    assert has_ended(error, catalog)  # SQLite runs in this process
    assert not has_ended(error, _Remote())  # type: ignore[arg-type]
    catalog.engine.dialect.name = "postgresql"
    assert has_ended(error, catalog) is ended


class _Clock:
    """Time that passes only while somebody sleeps or works; every wait is the longest allowed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.waits = _real_time(), []
        monkeypatch.setattr(retry.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(retry.time, "sleep", self._sleep)
        monkeypatch.setattr(retry.random, "uniform", lambda low, high: high)

    def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def _waits(
    monkeypatch: pytest.MonkeyPatch, *, try_seconds: float, tries: int, **properties: str
) -> list[float]:
    clock = _Clock(monkeypatch)
    backoff = Backoff(retries=None, min_wait_seconds=0.05, max_wait_seconds=1000, total_seconds=1e9)
    if properties:
        backoff = Backoff.of({f"commit.retry.{k}": v for k, v in properties.items()})
    for _ in range(tries):
        clock.now += try_seconds
        assert backoff.wait(Outcome.CONFLICT)
    return [round(wait, 1) for wait in clock.waits]


def test_looks_come_on_top_of_the_tries() -> None:
    quick = {"commit.retry.min-wait-ms": "0", "commit.retry.total-timeout-ms": "0"}
    backoff = Backoff.of({**quick, "commit.status-check.num-retries": "2"})
    assert not backoff.wait(Outcome.CONFLICT)
    assert [backoff.look_again() for _ in range(4)] == [True, True, False, False]


def test_the_tables_number_of_retries_is_honoured() -> None:
    backoff = Backoff.of({"commit.retry.num-retries": "2", "commit.retry.min-wait-ms": "0"})
    assert [backoff.wait(Outcome.CONFLICT) for _ in range(4)] == [True, True, False, False]


def test_without_a_number_the_time_alone_ends_the_tries() -> None:
    quick = {"commit.retry.min-wait-ms": "0", "commit.retry.max-wait-ms": "0"}
    backoff = Backoff.of(quick)
    assert all(backoff.wait(Outcome.CONFLICT) for _ in range(50))
    ended = Backoff.of({**quick, "commit.retry.total-timeout-ms": "0"})
    assert not ended.wait(Outcome.CONFLICT)


def test_unknown_outcomes_are_looked_into_a_few_times_only() -> None:
    backoff = Backoff.of({"commit.retry.min-wait-ms": "0", "commit.retry.max-wait-ms": "0"})
    assert [backoff.wait(Outcome.UNKNOWN) for _ in range(4)] == [True, True, True, False]


def test_negative_numbers_are_none() -> None:
    backoff = Backoff.of({"commit.retry.num-retries": "-3", "commit.retry.min-wait-ms": "-5"})
    assert backoff.retries == 0
    assert backoff.min_wait_seconds == 0


def test_waits_are_multiples_of_what_a_try_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = _waits(monkeypatch, try_seconds=20.0, tries=8)
    quick = _waits(monkeypatch, try_seconds=2.0, tries=8)
    assert slow == pytest.approx([10 * wait for wait in quick], rel=0.1)


def test_the_second_wait_is_the_longest_and_later_ones_are_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, *later = _waits(monkeypatch, try_seconds=1.0, tries=30)
    assert first == 4
    assert later[0] == 24
    assert later == sorted(later, reverse=True)
    assert later[-1] == 6


def test_a_quick_try_waits_for_as_long_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _waits(monkeypatch, try_seconds=0.001, tries=1, **{"min-wait-ms": "500"}) == [2.0]


def test_no_wait_is_longer_than_the_table_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = _waits(monkeypatch, try_seconds=30.0, tries=5, **{"max-wait-ms": "700"})
    assert waits == [0.7] * 5


def test_status_checks_are_as_many_and_as_far_apart_as_the_table_says() -> None:
    waits: list[float] = []
    properties = {
        "commit.status-check.num-retries": "5",
        "commit.status-check.min-wait-ms": "7000",
    }
    backoff = Backoff.of(properties)
    with mock.patch("icestream.commit.outcome.retry.time.sleep", waits.append):
        tried = sum(backoff.wait(Outcome.UNKNOWN) for _ in range(20))
    assert tried == len(waits) == 5
    assert min(waits) >= 7
