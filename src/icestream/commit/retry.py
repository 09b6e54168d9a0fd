"""When a commit is tried again, and what its errors mean."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

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

from icestream.commit.table_property import whole_number

_MIN_WAIT_MS = 50
_MAX_WAIT_MS = 5_000
# The longest wait after each try, in multiples of what a try takes; the last holds from then on.
_FIRST_TIMES, _MOST_TIMES, _LAST_TIMES = 4, 24, 6
_STATUS_CHECKS = "commit.status-check.num-retries"
_STATUS_WAIT_MS = "commit.status-check.min-wait-ms"
_UNKNOWN_TRIES = 3


class Outcome(Enum):
    """What an error of the catalog says of the commit: whether there is use in another try.

    No file is deleted on the strength of it: `icestream.commit.sent` says when that is safe.
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
# What PyIceberg's SQL catalog raises itself: none of its statements is under way then.
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
    """Tell from the error that a commit ended with whether to try again."""
    text = str(error)
    if isinstance(error, _CONFLICTS):
        return Outcome.CONFLICT
    if _is_from("sqlalchemy", error):
        # SQLite says so instead of waiting; PostgreSQL aborts one of two that touch the same row.
        busy = ("database is locked", "could not serialize", "deadlock detected")
        return Outcome.CONFLICT if any(word in text for word in busy) else Outcome.UNKNOWN
    stale = "older than last sequence number" in text or "Snapshot with id" in text
    if stale and isinstance(error, (BadRequestError, ValueError)):
        return Outcome.CONFLICT  # a commit to another branch came first, or this one did
    if isinstance(error, _REFUSALS):
        return Outcome.REFUSED
    return _classify_local(error) if _is_sql(catalog) else Outcome.UNKNOWN


def _classify_local(error: BaseException) -> Outcome:
    """Of a SQL catalog: all but its database's errors mostly come before the row is changed."""
    if _is_from("requests", error) or isinstance(error, _LOST_CONNECTIONS):
        return Outcome.UNKNOWN
    if isinstance(error, KeyError):
        return Outcome.CONFLICT  # a property that was to be removed is gone already
    invalid_or_not_written = isinstance(error, (OSError, TypeError, ValueError))
    return Outcome.REFUSED if invalid_or_not_written else Outcome.UNKNOWN


def answers_at_once(catalog: Catalog) -> bool:
    """Whether a commit that is not there after the call can't come later.

    A database server may still carry out what it was sent on a connection that was lost.
    """
    engine = getattr(catalog, "engine", None)
    if engine is None or not _is_sql(catalog):
        return False
    # Other drivers of the same dialect ask a server.
    return (engine.dialect.name, engine.dialect.driver) == ("sqlite", "pysqlite")


def has_ended(error: BaseException, catalog: Catalog) -> bool:
    """Whether a commit that ended with this error can't come later, if it is not there now.

    Over a network, no answer says that: a copy of the request may still be under way.
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

    They are multiples of what the last try took. Of writers that try at once one gets through and
    the work of the others is lost, so that most must stay away most of the time, whether a try
    takes 20 ms or seconds: the second wait is much longer than the first. Later ones are shorter
    again, so that whoever lost most often comes back soonest and none waits for ever.

    `commit.retry.*` table properties are honoured. `commit.retry.num-retries` is, only where it is
    set: its usual 4 is too few for several writers, and the total time bounds the rest. So are
    `commit.status-check.num-retries` and `.min-wait-ms`, for looking up what became of a commit:
    such looks come on top of the tries.
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
        """The waits that a table asks for."""
        names = TableProperties
        limited = names.COMMIT_NUM_RETRIES in properties
        return cls(
            retries=whole_number(properties, names.COMMIT_NUM_RETRIES, 0) if limited else None,
            min_wait_seconds=whole_number(properties, names.COMMIT_MIN_RETRY_WAIT_MS, _MIN_WAIT_MS)
            / 1000,
            max_wait_seconds=whole_number(properties, names.COMMIT_MAX_RETRY_WAIT_MS, _MAX_WAIT_MS)
            / 1000,
            total_seconds=whole_number(
                properties,
                names.COMMIT_TOTAL_RETRY_TIME_MS,
                names.COMMIT_TOTAL_RETRY_TIME_MS_DEFAULT,
            )
            / 1000,
            status_checks=whole_number(properties, _STATUS_CHECKS, _UNKNOWN_TRIES),
            status_wait_seconds=whole_number(properties, _STATUS_WAIT_MS, 0) / 1000,
        )

    def wait(self, outcome: Outcome) -> bool:
        """Wait before the next try; False if there is to be none."""
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
        """Wait before the next look for a commit that is not tried again; False: no more looks."""
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
