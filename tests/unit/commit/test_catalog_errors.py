"""What a catalog says when it refuses, or does not answer, is shown without its secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import UnauthorizedError
from pyiceberg.table import Table

import icestream as ice
from icestream.pipeline.audit.publish import AuditBranch
from tests.support.loads import before_commits, ids, make_table, raising
from tests.support.tables import make_catalog

_SECRET = "hush-hush"
_REFUSED = UnauthorizedError(f"bad token {_SECRET}")
_NO_ANSWER = ConnectionError(f"lost https://me:{_SECRET}@host")
_QUICK = {"commit__retry__min_wait_ms": "1", "commit__retry__max_wait_ms": "2"}

each_error = pytest.mark.parametrize(
    ("error", "times"), [(_REFUSED, 1), (_NO_ANSWER, 4)], ids=["refused", "no answer"]
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = make_catalog(tmp_path, token=_SECRET)
    yield opened
    opened.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return make_table(catalog, **_QUICK)


def _check(error: BaseException) -> None:
    assert "*****" in str(error) or "lost https://host" in str(error)
    assert _SECRET not in str(error)


@each_error
def test_by_a_commit(catalog: SqlCatalog, table: Table, error: Exception, times: int) -> None:
    with (
        before_commits(catalog, raising(error), times=times),
        pytest.raises(ice.CommitError) as caught,
    ):
        ice.append(table, ids(0, 3))
    _check(caught.value)


@each_error
def test_by_a_change_of_branches(
    catalog: SqlCatalog, table: Table, error: Exception, times: int
) -> None:
    ice.append(table, ids(0, 3))
    with (
        before_commits(catalog, raising(error), times=times),
        pytest.raises(ice.CommitError) as caught,
    ):
        AuditBranch(table, "audit").prepare("L")
    _check(caught.value)


@pytest.mark.parametrize("error", [_REFUSED, _NO_ANSWER])
def test_by_a_creation(catalog: SqlCatalog, error: Exception) -> None:
    with before_commits(catalog, raising(error)), pytest.raises(ice.CommitError) as caught:
        ice.load(ids(0, 3), "db.new", catalog=catalog, engine="local")
    _check(caught.value)


def test_by_a_refresh(catalog: SqlCatalog, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "load_table", lambda *_: raising(_REFUSED)())
    with pytest.raises(ice.CatalogError) as caught:
        ice.append(table, ids(0, 3))
    _check(caught.value)
