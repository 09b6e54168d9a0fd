"""Retries of a commit, and the meaning of its errors."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
    WaitingForLockException,
)
from pyiceberg.table import TableProperties

from icestream.errors import InvalidArgumentError

_MIN_WAIT_MS = 50
_MAX_WAIT_MS = 5_000
# Longest wait in durations of a try: after the first, after the second, and the final value.
_FIRST_TIMES, _MOST_TIMES, _LAST_TIMES = 4, 24, 6
_STATUS_CHECKS = "commit.status-check.num-retries"
_STATUS_WAIT_MS = "commit.status-check.min-wait-ms"
_UNKNOWN_TRIES = 3
_RUNS = 3

T = TypeVar("T")


def whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """The value of a table property; negative values count as 0.

    Raises:
        InvalidArgumentError: If it is not a whole number.
    """
    text = properties.get(name, default)
    try:
        return max(0, int(text))
    except ValueError as error:
        raise InvalidArgumentError(
            f"table property {name} is {text!r}: it must be a whole number"
        ) from error


def run_again(
    action: Callable[[], T], *, on: tuple[type[Exception], ...], if_possible: bool = True
) -> T:
    """Run an action up to three times, as long as it raises one of these errors.

    Args:
        action: The action, from its start.
        on: Errors that another run may avoid.
        if_possible: Whether the action can be repeated at all.
    """
    for _ in range(_RUNS - 1 if if_possible else 0):
        try:
            return action()
        except on:
            continue
    return action()


class Outcome(Enum):
    """What a catalog's error means for a commit: whether another try may help.

    It never decides whether files are deleted: `icestream.commit.outcome.unknown_outcome` does.
    """

    CONFLICT = "not committed: another commit was first, so try again"
    REFUSED = "not committed, and trying again won't help"
    UNKNOWN = "committed or not"


_CONFLICTS = (CommitFailedException, WaitingForLockException, TooManyRequestsError)
_REFUSALS = (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    UnauthorizedError,
)
_LOST_CONNECTIONS = (ConnectionError, TimeoutError)
# PyIceberg's SQL catalog raises these itself, when none of its statements is under way.
_RAISED_HERE = (
    CommitFailedException,
    KeyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    TypeError,
    ValueError,
)


def classify(error: BaseException, catalog: Catalog) -> Outcome:
    """Whether to try again after an error of a commit."""
    text = str(error)
    if isinstance(error, _CONFLICTS):
        return Outcome.CONFLICT
    if _is_from("sqlalchemy", error):
        # SQLite raises an error instead of waiting; PostgreSQL aborts one of two concurrent writes.
        busy = ("database is locked", "could not serialize", "deadlock detected")
        return Outcome.CONFLICT if any(word in text for word in busy) else Outcome.UNKNOWN
    stale = "older than last sequence number" in text or "Snapshot with id" in text
    if stale and isinstance(error, (BadRequestError, ValueError)):
        return Outcome.CONFLICT  # a commit to another branch came first, or an earlier try
    if isinstance(error, _REFUSALS):
        return Outcome.REFUSED
    return _classify_local(error) if _is_sql(catalog) else Outcome.UNKNOWN


def is_busy(error: BaseException, catalog: Catalog) -> bool:
    """Whether the cause of an error is a conflict with other requests to the catalog."""
    cause = error.__cause__
    return cause is not None and classify(cause, catalog) is Outcome.CONFLICT


def _classify_local(error: BaseException) -> Outcome:
    """Classify errors that a SQL catalog itself raises: most of them precede the update."""
    if _is_from("requests", error) or isinstance(error, _LOST_CONNECTIONS):
        return Outcome.UNKNOWN
    if isinstance(error, KeyError):
        return Outcome.CONFLICT  # a property that was to be removed is gone already
    invalid_or_not_written = isinstance(error, (OSError, TypeError, ValueError))
    return Outcome.REFUSED if invalid_or_not_written else Outcome.UNKNOWN


def answers_at_once(catalog: Catalog) -> bool:
    """Whether a commit that did not happen during the call can't happen later.

    A database server may still execute a statement after its connection was lost.
    """
    engine = getattr(catalog, "engine", None)
    if engine is None or not _is_sql(catalog):
        return False
    # Other drivers of the same dialect connect to a server.
    return (engine.dialect.name, engine.dialect.driver) == ("sqlite", "pysqlite")


def has_ended(error: BaseException, catalog: Catalog) -> bool:
    """Whether a commit that failed with this error can't happen later, if it has not happened yet.

    Over a network, an answer does not prove that: a copy of the request may be under way.
    """
    if answers_at_once(catalog):
        return True
    if _is_from("sqlalchemy", error) or _is_from("requests", error):
        return False
    return _is_sql(catalog) and isinstance(error, _RAISED_HERE)


def _is_from(package: str, error: BaseException) -> bool:
    return any(kind.__module__.partition(".")[0] == package for kind in type(error).__mro__)


def _is_sql(catalog: Catalog) -> bool:
    return any(kind.__module__ == "pyiceberg.catalog.sql" for kind in type(catalog).__mro__)


@dataclass(slots=True)
class Backoff:
    """Waits of random length, until the time is used up.

    A wait is a multiple of the duration of the last try. When several writers try at once, one
    succeeds and the work of the others is lost. So most writers must wait most of the time, whether
    a try takes 20 ms or seconds: the second wait is much longer than the first. Later waits are
    shorter again, so that the writer that lost most often is first and none waits for ever.

    The table properties `commit.retry.*` apply; `commit.retry.num-retries` only if it is set,
    because its default of 4 is too few for several writers. The properties
    `commit.status-check.num-retries` and `.min-wait-ms` apply to checks for the outcome of a
    commit, which come on top of the tries.
    """

    retries: int | None
    min_wait_seconds: float
    max_wait_seconds: float
    total_seconds: float
    status_checks: int = _UNKNOWN_TRIES
    status_wait_seconds: float = 0.0
    tried: int = 0
    unknown: int = 0
    looked: int = 0
    _started: float = field(default_factory=time.monotonic)
    _try_started: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Backoff:
        """The waits that a table's properties describe."""
        names = TableProperties
        limited = names.COMMIT_NUM_RETRIES in properties
        total_ms = names.COMMIT_TOTAL_RETRY_TIME_MS_DEFAULT

        def seconds(name: str, default_ms: int) -> float:
            return whole_number(properties, name, default_ms) / 1000

        return cls(
            retries=whole_number(properties, names.COMMIT_NUM_RETRIES, 0) if limited else None,
            min_wait_seconds=seconds(names.COMMIT_MIN_RETRY_WAIT_MS, _MIN_WAIT_MS),
            max_wait_seconds=seconds(names.COMMIT_MAX_RETRY_WAIT_MS, _MAX_WAIT_MS),
            total_seconds=seconds(names.COMMIT_TOTAL_RETRY_TIME_MS, total_ms),
            status_checks=whole_number(properties, _STATUS_CHECKS, _UNKNOWN_TRIES),
            status_wait_seconds=seconds(_STATUS_WAIT_MS, 0),
        )

    def wait(self, outcome: Outcome) -> bool:
        """Wait before the next try; False if no tries are left."""
        self.tried += 1
        self.unknown += outcome is Outcome.UNKNOWN
        now = time.monotonic()
        left = self.total_seconds - (now - self._started)
        if left <= 0 or self.unknown > self.status_checks:
            return False
        if self.retries is not None and self.tried > self.retries:
            return False
        least = self.status_wait_seconds if outcome is Outcome.UNKNOWN else 0.0
        self._sleep(least, left)
        return True

    def look_again(self) -> bool:
        """Wait before the next check for a commit's outcome; False if no checks are left."""
        self.looked += 1
        if self.looked > self.status_checks:
            return False
        self._sleep(self.status_wait_seconds, math.inf)
        return True

    def _sleep(self, least: float, most: float) -> None:
        unit = max(self.min_wait_seconds, time.monotonic() - self._try_started)
        wait = max(least, random.uniform(unit / 2, unit * self._times()))
        time.sleep(min(most, max(self.max_wait_seconds, self.status_wait_seconds), wait))
        self._try_started = time.monotonic()

    def _times(self) -> float:
        if self.tried <= 1:
            return _FIRST_TIMES
        return max(_LAST_TIMES, _MOST_TIMES / (1 + (self.tried - 2) / 4))
