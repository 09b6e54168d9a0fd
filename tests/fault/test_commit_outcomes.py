"""Every verb x every error of a catalog x committed or not x retries x look-ups that fail.

A commit that happened is never called refused, and no file of one that may still land is deleted.
`make test` runs every error for appends and a choice of them for the other verbs.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
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
from icestream.commit.new_table import NewTable
from icestream.commit.retry import Outcome, classify
from tests.support.loads import batch, ids, ids_of, listing, make_table, snapshots_of
from tests.support.stored import folder_of, referenced_files, stored_files
from tests.support.tables import make_catalog

_ERRORS: dict[str, Callable[[], Exception]] = {
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
_CLASSES = ("conflict", "unknown", "403", "exists", "value", "read timeout")  # one of each kind
_START = list(range(6))
_WAITS = {
    "commit.retry.min-wait-ms": "0",
    "commit.retry.max-wait-ms": "0",
    "commit.status-check.num-retries": "2",
}


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: what it does to ids 0 to 5, which lie in two files."""

    run: Callable[[Table], object]
    expected: list[int]


def _merge(mode: str) -> Callable[[Table], object]:
    rows = batch([(1, 7), (9, 7)])
    return lambda table: ice.merge(table, rows, on="id", write_mode=mode)


_VERBS = {
    "append": Verb(lambda t: ice.append(t, ids(6, 8)), [*_START, 6, 7]),
    "append with an id": Verb(lambda t: ice.append(t, ids(6, 8), load_id="x"), [*_START, 6, 7]),
    "overwrite": Verb(lambda t: ice.overwrite(t, ids(6, 8), where="id < 2"), [*range(2, 8)]),
    "delete": Verb(lambda t: ice.delete(t, "id in (0, 4)"), [1, 2, 3, 5]),
    "delete whole files": Verb(lambda t: ice.delete(t, "id < 3"), [3, 4, 5]),
    "merge": Verb(_merge("copy-on-write"), [*_START, 9]),
    "merge on read": Verb(_merge("merge-on-read"), [*_START, 9]),
    "compact": Verb(lambda t: ice.compact(t, min_files=2), _START),
    "commit_files": Verb(
        lambda t: ice.commit_files(t, ice.write_files(t, ids(6, 8))), [*_START, 6, 7]
    ),
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path_factory.mktemp("outcomes"))
    yield catalog
    catalog.close()


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
            never = mock.patch("icestream.commit.sent.has_ended", return_value=False)
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


@pytest.fixture(scope="module")
def stored(catalog: SqlCatalog) -> dict[str | None, str]:
    """The metadata of tables with ids 0 to 5 in two files, one for each number of retries.

    Each case has a table of its own by that metadata. Their folder is the same: what was there
    before is left out of account.
    """
    found: dict[str | None, str] = {}
    for retries in ("0", "1", None):
        given = {} if retries is None else {"commit.retry.num-retries": retries}
        table = make_table(catalog, f"db.stored_{retries}")
        with table.transaction() as transaction:
            transaction.set_properties(_WAITS | given)
        ice.append(table, ids(0, 3))
        ice.append(table, ids(3, 6))
        found[retries] = table.metadata_location
    return found


@dataclass(frozen=True, slots=True)
class Trial:
    """Runs one case on a table of its own, and checks what became of rows, files and the error."""

    catalog: SqlCatalog
    stored: dict[str | None, str]

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
            assert sum("in-flight" in path for path in left) == 1
            if not landed:
                assert ids_of(table) == _START
                faulty.land_late()
        elif case.commits or again:
            assert raised is None, raised
            assert landed
            assert {f"{folder_of(table)}/{path}" for path in left} <= referenced_files(table)
        else:
            kind = ice.CommitConflictError if outcome is Outcome.CONFLICT else ice.CommitError
            assert type(raised) is kind, raised
            assert not left
            assert not landed
            assert ids_of(table) == _START
            return
        assert ids_of(table) == verb.expected
        assert referenced_files(table) <= stored_files(folder_of(table))


@pytest.fixture(scope="module")
def trial(catalog: SqlCatalog, stored: dict[str | None, str]) -> Trial:
    return Trial(catalog, stored)


@pytest.mark.parametrize("error", _ERRORS)
def test_an_append_beside_each_error(trial: Trial, error: str) -> None:
    """The last try ends with it: after the commit, or before; with a look that fails, or not."""
    for commits, unreachable, remote in itertools.product([True, False], repeat=3):
        if not (remote and (commits or unreachable)):  # those are as for a catalog that is not
            case = Case(commits, True, unreachable, remote)
            trial.check(_VERBS["append"], _ERRORS[error], case)


@pytest.mark.parametrize("retries", ["1", None], ids=["1", "default"])
@pytest.mark.parametrize("error", ["conflict", "unknown", "403"])
def test_an_append_that_is_tried_again(trial: Trial, error: str, retries: str | None) -> None:
    for commits, remote in itertools.product([True, False], repeat=2):
        case = Case(commits, False, False, remote, retries)
        trial.check(_VERBS["append"], _ERRORS[error], case)


@pytest.mark.parametrize("verb", [name for name in _VERBS if name != "append"])
def test_each_verb_beside_answers_that_mislead(trial: Trial, verb: str) -> None:
    for error in ("conflict", "value"):
        trial.check(_VERBS[verb], _ERRORS[error], Case(True, True, False, False))
        trial.check(_VERBS[verb], _ERRORS[error], Case(False, True, False, False))
    trial.check(_VERBS[verb], _ERRORS["conflict"], Case(True, True, True, False))
    trial.check(_VERBS[verb], _ERRORS["conflict"], Case(False, True, False, True))


def _check_creation(catalog: SqlCatalog, error: Callable[[], Exception], case: Case) -> None:
    new = NewTable.plan(catalog, f"db.t{uuid.uuid4().hex}", ids(0, 1).schema, properties=_WAITS)
    transaction = new.transaction(catalog)
    report = ice.append(transaction, ids(0, 3))
    folder = folder_of(new.table(catalog))
    raised: Exception | None = None
    with case.faulty(catalog, error) as faulty:
        try:
            new.create(transaction, catalog, report.snapshot_id)
        except ice.IcestreamError as caught:
            raised = caught
    assert catalog.table_exists(new.name) == case.commits
    if case.unreachable or (case.remote and not case.commits):
        assert isinstance(raised, ice.CommitUnknownError), raised
        assert len(list(folder.glob("metadata/icestream-in-flight-*"))) == 1
        if not case.commits:
            faulty.land_late()
    elif not case.commits:
        assert type(raised) is ice.CommitError, raised
        assert not [path for path in stored_files(folder) if not path.endswith("metadata.json")]
        return
    else:
        assert raised is None, raised
        assert not list(folder.glob("metadata/icestream-in-flight-*"))
    table = catalog.load_table(new.name)
    assert ids_of(table) == [0, 1, 2]
    assert referenced_files(table) <= stored_files(folder)


@pytest.mark.parametrize(
    "error",
    [pytest.param(name, marks=() if name in _CLASSES else pytest.mark.slow) for name in _ERRORS],
)
def test_a_creation_beside_each_error(catalog: SqlCatalog, error: str) -> None:
    for commits, unreachable, remote in itertools.product([True, False], repeat=3):
        if not (remote and (commits or unreachable)):
            _check_creation(catalog, _ERRORS[error], Case(commits, True, unreachable, remote))


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize("commits", [True, False])
def test_ctrl_c_in_a_creation(catalog: SqlCatalog, commits: bool, remote: bool) -> None:
    new = NewTable.plan(catalog, f"db.t{uuid.uuid4().hex}", ids(0, 1).schema)
    transaction = new.transaction(catalog)
    report = ice.append(transaction, ids(0, 3))
    case = Case(commits, True, False, remote)
    with case.faulty(catalog, KeyboardInterrupt) as faulty, pytest.raises(KeyboardInterrupt):
        new.create(transaction, catalog, report.snapshot_id)
    folder = folder_of(new.table(catalog))
    if not commits and not remote:
        assert not [path for path in stored_files(folder) if not path.endswith("metadata.json")]
        return
    if not commits:
        faulty.land_late()
    table = catalog.load_table(new.name)
    assert ids_of(table) == [0, 1, 2]


_ALL = list(itertools.product(_VERBS, _ERRORS, ["0", "1", None]))
_SAMPLE = 13  # Has no factor in common with the lists, so that the sample has all of each.


@pytest.mark.parametrize(
    ("verb", "error", "retries"),
    [
        pytest.param(
            *each,
            marks=pytest.mark.soak if number % _SAMPLE else pytest.mark.slow,
            id="-".join(part or "default" for part in each),
        )
        for number, each in enumerate(_ALL)
    ],
)
def test_all_of_it(trial: Trial, verb: str, error: str, retries: str | None) -> None:
    conflict = classify(_ERRORS[error](), trial.catalog) is Outcome.CONFLICT
    for flags in itertools.product([True, False], repeat=4):
        case = Case(*flags, retries)
        if retries is None and conflict and case.always and not case.commits:
            continue  # such a conflict is tried again until the time is used up
        trial.check(_VERBS[verb], _ERRORS[error], case)
