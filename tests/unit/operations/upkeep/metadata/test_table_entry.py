"""Tables are dropped and renamed in the catalog; a lost answer is looked up."""

from __future__ import annotations

from unittest import mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.operations.upkeep.metadata.table_entry import drop_table, rename_table
from tests.support.loads import ids, make_table, rows_of
from tests.support.stored import folder_of, stored_files


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog)
    ice.append(table, ids(0, 2))
    return table


def test_a_dropped_table_can_be_registered_again(catalog: SqlCatalog, table: Table) -> None:
    files = stored_files(folder_of(table))
    planned = drop_table(table, dry_run=True)
    assert catalog.table_exists("db.t")
    report = drop_table(table)
    assert report == planned
    assert (report.files, report.files_deleted) == (0, 0)
    assert not catalog.table_exists("db.t")
    assert stored_files(folder_of(table)) == files
    again = catalog.register_table("db.t", report.metadata_location)
    assert rows_of(again) == [(0, 0), (1, 0)]


def test_a_purge_deletes_all_files_of_the_table(catalog: SqlCatalog, table: Table) -> None:
    files = stored_files(folder_of(table))
    planned = drop_table(table, purge=True, dry_run=True)
    assert (planned.files, planned.files_deleted) == (len(files), 0)
    assert stored_files(folder_of(table)) == files
    report = drop_table(table, purge=True)
    assert (report.files_deleted, report.not_deleted, report.files_left) == (len(files), (), 0)
    assert report.bytes_deleted == planned.bytes > 0
    assert not folder_of(table).exists()
    assert not catalog.table_exists("db.t")


def test_a_table_that_changes_meanwhile_is_not_dropped(
    catalog: SqlCatalog, other: SqlCatalog, table: Table
) -> None:
    from icestream.operations.upkeep.metadata.purge import Purge

    look = Purge.look

    def slowly(purge: Purge) -> None:
        look(purge)
        ice.append(other.load_table("db.t"), ids(5, 6))

    with (
        mock.patch.object(Purge, "look", slowly),
        pytest.raises(ice.CommitConflictError, match="Nothing was dropped"),
    ):
        drop_table(table, purge=True)
    assert rows_of(catalog.load_table("db.t")) == [(0, 0), (1, 0), (5, 0)]


def test_a_renamed_table_keeps_its_files(catalog: SqlCatalog, table: Table) -> None:
    location = table.location()
    renamed = rename_table(table, "db.new")
    assert (renamed.name(), renamed.location()) == (("db", "new"), location)
    assert rows_of(renamed) == [(0, 0), (1, 0)]
    make_table(catalog, "db.taken")
    for name, words in (
        ("db.taken", "there is a table 'db.taken' already"),
        ("nope.x", "has no namespace 'nope'"),
        ("x", "include the namespace"),
    ):
        with pytest.raises(ice.InvalidArgumentError, match=words):
            rename_table(renamed, name)


def test_answers_that_were_lost_are_looked_up(catalog: SqlCatalog, table: Table) -> None:
    drop, rename = catalog.drop_table, catalog.rename_table

    def lose(do: object) -> object:
        def done(*arguments: object) -> None:
            do(*arguments)  # type: ignore[operator]
            raise ConnectionError("lost")

        return done

    with mock.patch.object(catalog, "rename_table", lose(rename)):
        renamed = rename_table(table, "db.new")
    with mock.patch.object(catalog, "drop_table", lose(drop)):
        drop_table(renamed)
    assert catalog.list_tables("db") == []
    table = make_table(catalog)
    refuse = mock.Mock(side_effect=ConnectionError("refused"))
    with (
        mock.patch.object(catalog, "drop_table", refuse),
        pytest.raises(ice.CatalogError, match=r"the catalog did not drop db\.t: .*refused"),
    ):
        drop_table(table)
    with (
        mock.patch.object(catalog, "rename_table", refuse),
        pytest.raises(ice.CatalogError, match=r"the catalog did not rename db\.t to db\.new"),
    ):
        rename_table(table, "db.new")
