"""A table that a failed load created: dropped if nobody uses it, however close others come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table

import icestream as ice
from icestream.pipeline.audit.new_audited_table import drop_new_table
from icestream.pipeline.audit.publish import AuditBranch
from tests.support.loads import ids, ids_of, make_table
from tests.support.stored import folder_of, stored_files
from tests.support.tables import make_catalog

_AUDIT = "icestream_audit_x"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """A table with rows on its audit branch alone."""
    table = make_table(catalog)
    AuditBranch(table, _AUDIT).prepare("L")
    ice.append(table, ids(0, 3), branch=_AUDIT, load_id="L")
    return table


def _drop(table: Table) -> bool:
    return drop_new_table(table, str(table.metadata.table_uuid), _AUDIT)


def _before(catalog: SqlCatalog, name: str, action: Callable[[], object]) -> mock._patch[object]:
    """Do something before a method of the catalog is called for the first time."""
    method, called = getattr(catalog, name), list[int]()

    def call(*args: object) -> object:
        if not called:
            called.append(1)
            action()
        return method(*args)

    return mock.patch.object(catalog, name, call)


def _names(catalog: SqlCatalog) -> list[str]:
    return [name for _, name in catalog.list_tables("db")]


def test_it_is_dropped_with_its_files(catalog: SqlCatalog, table: Table) -> None:
    assert _drop(table)
    assert _names(catalog) == []
    assert stored_files(folder_of(table)) == set()


@pytest.mark.parametrize("method", ["rename_table", "purge_table"])
def test_an_append_after_the_first_look_is_not_lost(
    catalog: SqlCatalog, table: Table, tmp_path: Path, method: str
) -> None:
    """It gets through before the table has another name, or is refused."""
    appended = []

    def append() -> None:
        others = make_catalog(tmp_path)
        try:
            ice.append(others.load_table("db.t"), ids(10, 12))
            appended.append(1)
        except Exception:
            assert not others.table_exists("db.t")
        finally:
            others.close()

    with _before(catalog, method, append):
        dropped = _drop(table)
    assert dropped != bool(appended)
    assert _names(catalog) == (["t"] if appended else [])
    if appended:
        assert ids_of(catalog.load_table("db.t")) == [10, 11]
        assert ids_of(catalog.load_table("db.t"), branch=_AUDIT) == [0, 1, 2]


def test_a_table_whose_name_is_taken_meanwhile_keeps_its_rows(
    catalog: SqlCatalog, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    load = catalog.load_table

    def use() -> None:
        ice.append(load("db.t"), ids(10, 12))

    def take_the_name(identifier: object) -> Table:
        taken = mock.patch.object(catalog, "load_table", load)
        with taken:
            if "drop" in str(identifier) and not catalog.table_exists("db.t"):
                make_table(catalog)
        return load(identifier)

    with (
        _before(catalog, "rename_table", use),
        mock.patch.object(catalog, "load_table", take_the_name),
        caplog.at_level(logging.WARNING),
    ):
        assert not _drop(table)
    aside = next(name for name in _names(catalog) if name != "t")
    assert ids_of(catalog.load_table(f"db.{aside}")) == [10, 11]
    assert aside in caplog.text


@pytest.mark.parametrize("used", [True, False])
def test_a_rename_that_happened_and_raised_is_gone_on_with(
    catalog: SqlCatalog, table: Table, used: bool
) -> None:
    rename = catalog.rename_table

    def rename_table(*names: object) -> None:
        if used and names[0] == ("db", "t"):
            ice.append(catalog.load_table("db.t"), ids(10, 12))
        rename(*names)
        raise ConnectionError("lost")

    with mock.patch.object(catalog, "rename_table", rename_table):
        assert _drop(table) == (not used)
    assert _names(catalog) == (["t"] if used else [])


@pytest.mark.parametrize("how", ["copies", "can not rename"])
def test_it_stays_in_a_catalog_that_can_not_rename_at_once(
    catalog: SqlCatalog, table: Table, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    patch = (
        mock.patch("icestream.pipeline.audit.new_audited_table._RENAME_AT_ONCE", ())
        if how == "copies"
        else mock.patch.object(catalog, "rename_table", side_effect=NotImplementedError)
    )
    with patch, caplog.at_level(logging.WARNING):
        assert not _drop(table)
    assert "created by a load that failed" in caplog.text
    assert ids_of(catalog.load_table("db.t")) == []


@pytest.mark.parametrize("at", [1, 3, 4], ids=["branch", "load", "publication"])
def test_a_load_that_may_still_land_keeps_the_table(
    catalog: SqlCatalog, tmp_path: Path, at: int
) -> None:
    """The second run, by the same state, finishes the load."""
    pq.write_table(ids(0, 3), tmp_path / "a.parquet")
    (tmp_path / "p.yaml").write_text(
        "{defaults: {engine: local}, loads: {a: {source: a.parquet, into: db.a, "
        "tests: [{unique: id}], table_properties: {commit.retry.num-retries: '0', "
        "commit.retry.min-wait-ms: '1', commit.retry.max-wait-ms: '2'}}}}"
    )
    commit, count = catalog.commit_table, list[int]()

    def commit_table(*args: object) -> object:
        count.append(1)
        if len(count) == 1 + at:
            raise CommitStateUnknownException("lost")
        return commit(*args)

    with (
        mock.patch("icestream.commit.outcome.unknown_outcome.has_ended", return_value=False),
        mock.patch("icestream.commit.ref_change.has_ended", return_value=False),
        mock.patch.object(catalog, "commit_table", commit_table),
        pytest.raises(ice.RunFailedError) as failed,
    ):
        ice.run(tmp_path / "p.yaml", catalog=catalog, state=tmp_path / "state")
    assert isinstance(failed.value.__cause__, ice.CommitUnknownError)
    assert catalog.table_exists("db.a")
    ice.run(tmp_path / "p.yaml", catalog=catalog, state=tmp_path / "state")
    assert ids_of(catalog.load_table("db.a")) == [0, 1, 2]
