"""Orphans of a table whose catalog fails to say what else it has: nothing is deleted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    ForbiddenError,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

import icestream as ice
from icestream.operations.upkeep.orphan_search import catalog_tables
from tests.support.stored import folder_of, make_older, stored_files

DAY = 24 * 60 * 60
_ROWS = pa.table({"id": pa.array(range(10), pa.int64())})
_SECRET = "hunter2"
_NO_ANSWERS = [
    OperationalError("select", {}, Exception("server closed the connection")),
    TooManyRequestsError("429"),
    AuthorizationExpiredError("419"),
    UnauthorizedError("401"),
    ForbiddenError("403"),
    BadRequestError("400"),
    OAuthError("no token"),
    RESTError("502"),
    ServiceUnavailableError("503"),
    PermissionError("not yours"),
    ConnectionResetError("reset"),
    TimeoutError("timed out"),
    ValueError("metadata of version 9"),
    RuntimeError("a bug"),
]


@pytest.fixture
def guest(catalog: SqlCatalog) -> Table:
    """A table whose data lies in the folder of `db.t`, known by the catalog alone."""
    table = catalog.create_table("db.t", _ROWS.schema)
    ice.append(table, _ROWS)
    catalog.create_namespace("other")
    guest = catalog.create_table(
        "other.guest",
        _ROWS.schema,
        properties={"write.data.path": f"{table.location()}/shared"},
    )
    ice.append(guest, _ROWS)
    for path in stored_files(folder_of(table)):
        make_older(Path(path), 4 * DAY)
    return guest


@pytest.fixture
def table(catalog: SqlCatalog, guest: Table) -> Table:
    return catalog.load_table("db.t")


def _fail(
    monkeypatch: pytest.MonkeyPatch, method: str, error: BaseException, about: str = ""
) -> None:
    """Have the catalog raise an error, if it is asked about something of that name."""
    real = getattr(SqlCatalog, method)

    def failing(self: SqlCatalog, name: str | tuple[str, ...] = ()) -> object:
        parts = SqlCatalog.identifier_to_tuple(name)
        if not about or about in parts:
            raise error
        return real(self, name)

    monkeypatch.setattr(SqlCatalog, method, failing)


def _rows(table: Table) -> int:
    return table.scan().to_arrow().num_rows


@pytest.mark.parametrize("error", _NO_ANSWERS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    ("method", "about", "named"),
    [
        ("list_namespaces", "", "namespaces of the catalog"),
        ("list_namespaces", "other", "namespaces in other"),
        ("list_tables", "other", "tables in other"),
        ("load_table", "guest", r"other\.guest"),
    ],
)
def test_nothing_is_deleted_if_the_catalog_does_not_say_what_it_has(
    table: Table,
    guest: Table,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    method: str,
    about: str,
    named: str,
) -> None:
    with monkeypatch.context() as patch:
        _fail(patch, method, error, about)
        with pytest.raises(ice.CatalogError, match=f"{named} could not be") as caught:
            ice.orphans(table, delete=True)
    assert type(error).__name__ in str(caught.value)
    assert "no file was reported as an orphan" in str(caught.value)
    assert _rows(guest) == _rows(table) == 10


def test_a_table_whose_metadata_is_gone_stops_the_search_and_the_error_says_what_to_do(
    table: Table, guest: Table
) -> None:
    path = Path(guest.metadata_location.removeprefix("file://"))
    path.rename(path.with_suffix(".away"))
    with pytest.raises(ice.CatalogError, match=r"other\.guest .* drop it from the catalog"):
        ice.orphans(table, delete=True)
    path.with_suffix(".away").rename(path)
    assert _rows(guest) == 10


def test_a_table_that_is_dropped_while_it_is_loaded_is_skipped(
    table: Table, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [FileNotFoundError("its metadata was purged"), NoSuchTableError("other.guest")]
    real = SqlCatalog.load_table

    def load(self: SqlCatalog, name: str | tuple[str, ...]) -> Table:
        if "guest" in SqlCatalog.identifier_to_tuple(name):
            raise errors.pop(0)
        return real(self, name)

    monkeypatch.setattr(SqlCatalog, "load_table", load)
    assert [file.path.split("/")[-2] for file in ice.orphans(table).files] == ["shared"]
    assert errors == []


@pytest.mark.parametrize(
    "error",
    [
        NoSuchTableError("dropped"),
        NoSuchNamespaceError("dropped with its namespace"),
        NoSuchIcebergTableError("a Hive table"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_not_an_iceberg_table_any_more_is_skipped(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    _fail(monkeypatch, "load_table", error, "guest")
    assert ice.orphans(table).count == 1


def test_a_table_whose_entry_in_the_catalog_is_incomplete_stops_the_search(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail(monkeypatch, "load_table", NoSuchPropertyException("metadata_location"), "guest")
    with pytest.raises(ice.CatalogError, match=r"other\.guest could not be loaded"):
        ice.orphans(table)


def test_a_namespace_that_is_dropped_meanwhile_is_skipped(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail(monkeypatch, "list_namespaces", NoSuchNamespaceError("gone"), "other")
    _fail(monkeypatch, "list_tables", NoSuchNamespaceError("gone"), "other")
    assert ice.orphans(table).count == 1


@pytest.mark.parametrize("error", [NoSuchNamespaceError("flat"), NotImplementedError("flat")])
def test_tables_of_a_catalog_without_nested_namespaces_are_seen(
    table: Table, guest: Table, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    for namespace in ("db", "other"):
        _fail(monkeypatch, "list_namespaces", error, namespace)
    with pytest.raises(ice.CatalogError, match=r"other\.guest .* of the same catalog"):
        ice.orphans(table, delete=True)
    assert _rows(guest) == 10


@pytest.mark.parametrize("method", ["list_namespaces", "list_tables"])
def test_a_catalog_that_cannot_list_is_not_asked_for_its_tables(
    table: Table, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    _fail(monkeypatch, method, NotImplementedError("not supported by the server"))
    assert ice.orphans(table).count == 1


def test_a_failed_search_is_repeated_in_full(
    table: Table, guest: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        _fail(patch, "load_table", TooManyRequestsError("429"), "guest")
        with pytest.raises(ice.CatalogError, match="Try again"):
            ice.orphans(table)
    with pytest.raises(ice.CatalogError, match=r"other\.guest .* of the same catalog"):
        ice.orphans(table, delete=True)
    assert _rows(guest) == 10


def test_secrets_of_the_catalog_are_not_in_the_error(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table.catalog.properties, "token", _SECRET)
    _fail(monkeypatch, "list_tables", RESTError(f"bad answer to {_SECRET}"))
    with pytest.raises(ice.CatalogError, match="bad answer") as caught:
        ice.orphans(table)
    assert _SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    catalog_tables._seen.clear()
