"""Catalogs whose commits end with errors, and what must become of rows and files then.

Tests of loads in one process and on Spark share this.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import requests
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
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

import icestream as ice
from icestream.commit.in_flight import MARKER_PREFIX, MARKER_SUFFIX
from icestream.commit.new_table import NewTable
from icestream.commit.outcome.retry import Outcome, classify
from tests.support.loads import ids, ids_of, listing, make_table, snapshots_of
from tests.support.stored import folder_of, referenced_files, stored_files

ERRORS: dict[str, Callable[[], Exception]] = {
    "conflict": lambda: CommitFailedException("another was first"),
    "unknown": lambda: CommitStateUnknownException("lost"),
    "disk full": lambda: OSError(28, "No space left on device"),
    "value": lambda: ValueError("no"),
    "type": lambda: TypeError("no"),
    "key": lambda: KeyError("no"),
    "runtime": lambda: RuntimeError("no"),
    "read timeout": lambda: requests.ReadTimeout("no answer"),
    "connect timeout": lambda: requests.ConnectTimeout("no answer"),
    "connection": lambda: requests.ConnectionError("lost"),
    "socket": lambda: ConnectionResetError("lost"),
    "timeout": lambda: TimeoutError("no answer"),
    "database": lambda: OperationalError("COMMIT", {}, Exception("server closed the connection")),
    "busy": lambda: OperationalError("UPDATE", {}, Exception("database is locked")),
    "400": lambda: BadRequestError("no"),
    "401": lambda: UnauthorizedError("no"),
    "403": lambda: ForbiddenError("no"),
    "404": lambda: NoSuchTableError("no"),
    "419": lambda: AuthorizationExpiredError("no"),
    "422": lambda: RESTError("no"),
    "429": lambda: TooManyRequestsError("no"),
    "500": lambda: ServerError("no"),
    "503": lambda: ServiceUnavailableError("no"),
    "exists": lambda: TableAlreadyExistsError("no"),
}
CLASSES = ("conflict", "unknown", "403", "exists", "value", "read timeout")  # one of each kind
START = list(range(6))
WAITS = {
    "commit.retry.min-wait-ms": "0",
    "commit.retry.max-wait-ms": "0",
    "commit.status-check.num-retries": "2",
}


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: what it does to ids 0 to 5, which lie in two files.

    Attributes:
        run: Runs it.
        expected: The ids afterwards.
        markers: How many writes it has under way when it commits.
        kept: How many files a refusal leaves: `commit_files` keeps the caller's, with their marker.
    """

    run: Callable[[Table], object]
    expected: list[int]
    markers: int = 1
    kept: int = 0


class FaultyCatalog:
    """Has commits of a catalog end with an error, which may come after the commit was made.

    Args:
        catalog: The catalog.
        error: What each commit ends with.
        commits: Whether the first one is made.
        always: Whether every commit ends so, or the first one alone.
        unreachable: Whether the catalog can't be asked for tables once it was asked to commit.
        remote: Whether requests may be carried out after their calls have ended.
    """

    def __init__(
        self,
        catalog: SqlCatalog,
        error: Callable[[], BaseException],
        *,
        commits: bool,
        always: bool,
        unreachable: bool,
        remote: bool,
    ) -> None:
        self._catalog, self._error = catalog, error
        self._commits, self._always, self._unreachable = commits, always, unreachable
        self._commit, self._load = catalog.commit_table, catalog.load_table
        self._patches = [mock.patch.object(catalog, "commit_table", self._commit_table)]
        if remote:
            never = mock.patch(
                "icestream.commit.outcome.unknown_outcome.has_ended", return_value=False
            )
            self._patches.append(never)
        self._gone = mock.patch.object(
            catalog, "load_table", side_effect=requests.ConnectionError("gone")
        )
        self._is_gone = False
        self.sent: list[tuple[Any, ...]] = []

    def __enter__(self) -> FaultyCatalog:
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_gone:
            self._gone.stop()
        for patch in self._patches:
            patch.stop()

    def _commit_table(self, *args: Any) -> Any:
        first = not self.sent
        self.sent.append(args)
        if not first and not self._always:
            return self._commit(*args)
        if first and self._commits:
            self._commit(*args)
        if self._unreachable and not self._is_gone:
            self._gone.start()
            self._is_gone = True
        raise self._error()

    def land_late(self) -> None:
        """Carry the first request out now."""
        self._commit(*self.sent[0])


@dataclass(frozen=True, slots=True)
class Case:
    """How a catalog fails, and how often a commit is tried."""

    commits: bool
    always: bool
    unreachable: bool
    remote: bool
    retries: str | None = "0"

    def faulty(self, catalog: SqlCatalog, error: Callable[[], BaseException]) -> FaultyCatalog:
        return FaultyCatalog(
            catalog,
            error,
            commits=self.commits,
            always=self.always,
            unreachable=self.unreachable,
            remote=self.remote,
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """Runs one case on a table of its own, and checks what became of rows, files and the error.

    Each case has a table of its own, registered by the metadata of one that is stored. Their folder
    is the same: the files that were there before do not count.

    Attributes:
        catalog: The catalog.
        stored: The metadata of a table with ids 0 to 5 in two files, by the number of retries.
    """

    catalog: SqlCatalog
    stored: dict[str | None, str]

    @classmethod
    def on(cls, catalog: SqlCatalog) -> Trial:
        """A trial with tables of a catalog."""
        table = make_table(catalog, "db.stored")
        with table.transaction() as transaction:
            transaction.set_properties(WAITS)
        ice.append(table, ids(0, 3))
        ice.append(table, ids(3, 6))
        stored: dict[str | None, str] = {None: table.metadata_location}
        for retries in ("0", "1"):
            with table.transaction() as transaction:
                transaction.set_properties({"commit.retry.num-retries": retries})
            stored[retries] = table.metadata_location
        return cls(catalog, stored)

    def check_all(self, verb: Verb, error: str, retries: str | None) -> None:
        """Check a verb beside an error that comes in every way."""
        conflict = classify(ERRORS[error](), self.catalog) is Outcome.CONFLICT
        for flags in itertools.product([True, False], repeat=4):
            case = Case(*flags, retries)
            if retries is None and conflict and case.always and not case.commits:
                continue  # such a conflict is tried again until the time is used up
            self.check(verb, ERRORS[error], case)

    def check(self, verb: Verb, error: Callable[[], Exception], case: Case) -> None:
        name = f"db.t{uuid.uuid4().hex}"
        table = self.catalog.register_table(name, self.stored[case.retries])
        there = stored_files(folder_of(table))
        self._check(table, verb, error, case)
        self.catalog.drop_table(name)
        for path in stored_files(folder_of(table)) - there:  # or the next cases have to list them
            Path(path).unlink()

    def _check(self, table: Table, verb: Verb, error: Callable[[], Exception], case: Case) -> None:
        before, raised = listing(table), None
        with case.faulty(self.catalog, error) as faulty:
            try:
                verb.run(table)
            except ice.IcestreamError as caught:
                raised = caught
        outcome = classify(error(), self.catalog)
        again = not case.always and case.retries != "0" and outcome is not Outcome.REFUSED
        landed = len(snapshots_of(table)) > 2
        left = listing(table) - before
        if case.unreachable or (case.remote and not case.commits and not again):
            assert isinstance(raised, ice.CommitUnknownError), raised
            assert landed == case.commits
            assert not _unmarked(left)
            assert sum(MARKER_PREFIX in path for path in left) == verb.markers
            if not landed:
                assert ids_of(table) == START
                faulty.land_late()
        elif case.commits or again:
            assert raised is None, raised
            assert landed
            assert {f"{folder_of(table)}/{path}" for path in left} <= referenced_files(table)
        else:
            kind = ice.CommitConflictError if outcome is Outcome.CONFLICT else ice.CommitError
            assert type(raised) is kind, raised
            assert len(left) == verb.kept
            assert not landed
            assert ids_of(table) == START
            return
        assert ids_of(table) == verb.expected
        assert referenced_files(table) <= stored_files(folder_of(table))


def _unmarked(paths: set[str]) -> set[str]:
    """Data files whose writes have no marker."""
    names = (path.rpartition(MARKER_PREFIX) for path in paths)
    marked = {name.removesuffix(MARKER_SUFFIX) for _, prefix, name in names if prefix}
    data = {path for path in paths if path.endswith(".parquet")}
    return {path for path in data if not any(write_id in path for write_id in marked)}


def check_creation(
    catalog: SqlCatalog,
    create: Callable[[SqlCatalog, str], object],
    error: Callable[[], Exception],
    case: Case,
) -> None:
    """Check a table that is created with its first rows, after a fault.

    Args:
        catalog: Where it is created.
        create: Creates a table of that name with ids 0 to 2.
        error: What its commit ends with.
        case: How.
    """
    name = f"db.t{uuid.uuid4().hex}"
    folder = folder_of(NewTable.plan(catalog, name, ids(0, 1).schema).table(catalog))
    raised: Exception | None = None
    with case.faulty(catalog, error) as faulty:
        try:
            create(catalog, name)
        except ice.IcestreamError as caught:
            raised = caught
    assert catalog.table_exists(name) == case.commits
    markers = list(folder.glob(f"metadata/{MARKER_PREFIX}*"))
    if case.unreachable or (case.remote and not case.commits):
        assert isinstance(raised, ice.CommitUnknownError), raised
        assert len(markers) == 1
        if not case.commits:
            faulty.land_late()
    elif not case.commits:
        assert type(raised) is ice.CommitError, raised
        assert not [path for path in stored_files(folder) if not path.endswith("metadata.json")]
        return
    else:
        assert raised is None, raised
        assert not markers
    table = catalog.load_table(name)
    assert ids_of(table) == [0, 1, 2]
    assert referenced_files(table) <= stored_files(folder)


class FailingCatalog(SqlCatalog):
    """Commits end with an error, as a property says: for processes that open a catalog themselves.

    The property `fault` is `"committed"`: the commit is made; `"refused"`: it is not; or
    `"unreachable"`: it is made, and the catalog can't be asked from then on.
    """

    _asked = False

    def commit_table(self, *args: Any) -> Any:
        """Ends with an error."""
        if self.properties["fault"] != "refused":
            super().commit_table(*args)
        self._asked = True
        raise ForbiddenError("no")

    def load_table(self, *args: Any) -> Table:
        """Loads a table, as long as the catalog can be reached."""
        if self._asked and self.properties["fault"] == "unreachable":
            raise requests.ConnectionError("gone")
        return super().load_table(*args)
