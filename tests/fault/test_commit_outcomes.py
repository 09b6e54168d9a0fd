"""Every verb x every error of a catalog x committed or not x retries x look-ups that fail.

A commit that happened is never called refused, and no file of one that may still land is deleted.
`make test` runs every error for appends and a choice of them for the other verbs.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.commit.new_table import NewTable
from tests.support.commit_faults import (
    CLASSES,
    ERRORS,
    START,
    WAITS,
    Case,
    Trial,
    Verb,
    check_creation,
)
from tests.support.loads import batch, ids, ids_of
from tests.support.stored import folder_of, stored_files
from tests.support.tables import make_catalog


def _merge(mode: str) -> Callable[[Table], object]:
    rows = batch([(1, 7), (9, 7)])
    return lambda table: ice.merge(table, rows, on="id", write_mode=mode)


_VERBS = {
    "append": Verb(lambda t: ice.append(t, ids(6, 8)), [*START, 6, 7]),
    "append with an id": Verb(lambda t: ice.append(t, ids(6, 8), load_id="x"), [*START, 6, 7]),
    "overwrite": Verb(lambda t: ice.overwrite(t, ids(6, 8), where="id < 2"), [*range(2, 8)]),
    "delete": Verb(lambda t: ice.delete(t, "id in (0, 4)"), [1, 2, 3, 5]),
    "delete whole files": Verb(lambda t: ice.delete(t, "id < 3"), [3, 4, 5]),
    "merge": Verb(_merge("copy-on-write"), [*START, 9]),
    "merge on read": Verb(_merge("merge-on-read"), [*START, 9]),
    "compact": Verb(lambda t: ice.compact(t, min_files=2), START),
    "commit_files": Verb(
        lambda t: ice.commit_files(t, ice.write_files(t, ids(6, 8))), [*START, 6, 7], kept=2
    ),
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path_factory.mktemp("outcomes"))
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def trial(catalog: SqlCatalog) -> Trial:
    return Trial.on(catalog)


@pytest.mark.parametrize("error", ERRORS)
def test_an_append_beside_each_error(trial: Trial, error: str) -> None:
    """The last try ends with it: after the commit, or before; with a look that fails, or not."""
    for commits, unreachable, remote in itertools.product([True, False], repeat=3):
        if not (remote and (commits or unreachable)):  # those are as for a catalog that is not
            case = Case(commits, True, unreachable, remote)
            trial.check(_VERBS["append"], ERRORS[error], case)


@pytest.mark.parametrize("retries", ["1", None], ids=["1", "default"])
@pytest.mark.parametrize("error", ["conflict", "unknown", "403"])
def test_an_append_that_is_tried_again(trial: Trial, error: str, retries: str | None) -> None:
    for commits, remote in itertools.product([True, False], repeat=2):
        case = Case(commits, False, False, remote, retries)
        trial.check(_VERBS["append"], ERRORS[error], case)


@pytest.mark.parametrize("verb", [name for name in _VERBS if name != "append"])
def test_each_verb_beside_answers_that_mislead(trial: Trial, verb: str) -> None:
    for error in ("conflict", "value"):
        trial.check(_VERBS[verb], ERRORS[error], Case(True, True, False, False))
        trial.check(_VERBS[verb], ERRORS[error], Case(False, True, False, False))
    trial.check(_VERBS[verb], ERRORS["conflict"], Case(True, True, True, False))
    trial.check(_VERBS[verb], ERRORS["conflict"], Case(False, True, False, True))


def _create(catalog: SqlCatalog, name: str) -> None:
    """Create a table with ids 0 to 2."""
    new = NewTable.plan(catalog, name, ids(0, 1).schema, properties=WAITS)
    transaction = new.transaction(catalog)
    report = ice.append(transaction, ids(0, 3))
    new.create(transaction, catalog, report.snapshot_id)


@pytest.mark.parametrize(
    "error",
    [pytest.param(name, marks=() if name in CLASSES else pytest.mark.slow) for name in ERRORS],
)
def test_a_creation_beside_each_error(catalog: SqlCatalog, error: str) -> None:
    for commits, unreachable, remote in itertools.product([True, False], repeat=3):
        if not (remote and (commits or unreachable)):
            case = Case(commits, True, unreachable, remote)
            check_creation(catalog, _create, ERRORS[error], case)


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


_ALL = list(itertools.product(_VERBS, ERRORS, ["0", "1", None]))
_SAMPLE = 23  # Has no factor in common with the lists, so that the sample has all of each.


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
    trial.check_all(_VERBS[verb], error, retries)
