"""A purge deletes the files of a dropped table, unless another table might need one of them."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import icestream as ice
from icestream.operations.upkeep.metadata.table_entry import drop_table, rename_table
from tests.support.loads import ids, make_table, rows_of
from tests.support.rest_catalog import rest_catalog
from tests.support.s3 import make_s3_catalog, s3_server
from tests.support.stored import folder_of, leave_a_write, stored_files
from tests.support.tables import data_file_paths, make_catalog


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog)
    for number in range(3):
        ice.append(table, ids(number, number + 1))
    return table


def _refused(table: Table, words: str, error: type[Exception] = ice.CatalogError) -> None:
    files = stored_files(folder_of(table))
    with pytest.raises(error, match=words):
        drop_table(table, purge=True)
    assert table.catalog.table_exists(table.name())
    assert stored_files(folder_of(table)) == files


def test_a_file_that_another_table_has_added_stays(catalog: SqlCatalog, table: Table) -> None:
    other = make_table(catalog, "db.other")
    other.add_files(data_file_paths(table)[:1])
    ice.delete(other, "id >= 0")  # only an earlier snapshot has the file
    _refused(table, r"db\.other of the same catalog refers to .*parquet")
    # The other way round, the file is not in the folders of the table that is purged.
    report = drop_table(other, purge=True)
    assert report.files_deleted == report.files > 0
    assert rows_of(table) == [(0, 0), (1, 0), (2, 0)]


def test_a_table_with_two_names_or_shared_folders_stays(catalog: SqlCatalog, table: Table) -> None:
    catalog.register_table("db.copy", table.metadata_location)
    _refused(table, r"db\.copy of the same catalog has files in the same folders")
    catalog.drop_table("db.copy")
    shared = f"{table.location()}/data/inside"
    other = make_table(catalog, "db.inside", write__data__path=shared)
    _refused(table, r"db\.inside of the same catalog has files in the same folders")
    _refused(other, r"db\.t of the same catalog has files in the same folders")


def test_a_table_that_another_catalog_may_have_stays(tmp_path: Path, table: Table) -> None:
    (tmp_path / "elsewhere").mkdir()
    elsewhere = make_catalog(tmp_path / "elsewhere")
    try:
        copy = elsewhere.register_table("db.t", table.metadata_location)
        ice.append(copy, ids(7, 8))
        _refused(table, "so another catalog may have the table. If none has, pass only_catalog")
        assert len(rows_of(copy)) == 4
    finally:
        elsewhere.close()
    left = drop_table(table, purge=True, only_catalog=True).files_left
    assert left > 0  # what the copy added


def test_metadata_of_a_dropped_table_needs_its_id(catalog: SqlCatalog, table: Table) -> None:
    drop_table(table)
    again = make_table(catalog)
    ice.append(again, ids(0, 1))
    assert again.location() == table.location()
    uuid = str(table.metadata.table_uuid)
    _refused(again, rf"metadata of other tables: .*pass its id: dropped=\['{uuid}'\]")
    files = len(stored_files(folder_of(again)))
    report = drop_table(again, purge=True, dropped=[uuid])
    assert report.files_deleted + report.files_left == files
    assert report.files_left == len(stored_files(folder_of(again))) > 0


def test_a_catalog_that_does_not_say_what_it_has_stops_the_purge(
    catalog: SqlCatalog, table: Table
) -> None:
    lost = mock.Mock(side_effect=ConnectionError("lost"))
    with mock.patch.object(catalog, "list_tables", lost):
        _refused(
            table,
            r"can't be deleted safely: the tables in db could not be listed.*lost.*"
            r"in this table's folders\. Try again.*Nothing was dropped",
        )


def test_a_running_write_stops_the_purge(table: Table) -> None:
    leave_a_write(table, pid=os.getpid())
    _refused(table, "a write to it is running on this machine")


def test_a_table_may_forbid_it(catalog: SqlCatalog) -> None:
    table = make_table(catalog, gc__enabled="false")
    _refused(table, "gc.enabled=false", ice.UnsupportedFeatureError)
    drop_table(table)


def test_files_that_the_table_does_not_refer_to_stay(table: Table) -> None:
    stray = folder_of(table) / "data" / "notes.txt"
    stray.write_text("mine")
    report = drop_table(table, purge=True)
    assert report.files_left == 1
    assert stored_files(folder_of(table)) == {str(stray)}


def test_files_in_a_folder_of_its_own_elsewhere_are_deleted(
    tmp_path: Path, catalog: SqlCatalog
) -> None:
    far = tmp_path / "far"
    table = make_table(catalog, write__data__path=far.as_uri())
    ice.append(table, ids(0, 1))
    assert stored_files(far)
    drop_table(table, purge=True)
    assert not far.exists()


def test_older_versions_that_the_table_has_forgotten_are_deleted(catalog: SqlCatalog) -> None:
    table = make_table(catalog, write__metadata__previous_versions_max="1")
    for number in range(4):
        ice.append(table, ids(number, number + 1))
    assert len(table.metadata.metadata_log) == 1
    assert drop_table(table, purge=True).files_left == 0


def test_a_table_that_comes_to_the_folders_meanwhile_keeps_its_files(
    catalog: SqlCatalog, table: Table
) -> None:
    files = stored_files(folder_of(table))
    drop = catalog.drop_table
    for name in ("db.copy", "db.t"):

        def drop_and_register(dropped: object, name: str = name) -> None:
            drop(dropped)  # type: ignore[arg-type]
            catalog.register_table(name, table.metadata_location)

        with (
            mock.patch.object(catalog, "drop_table", drop_and_register),
            pytest.raises(ice.CatalogError, match="its files stay: meanwhile"),
        ):
            drop_table(catalog.load_table("db.t"), purge=True)
        assert stored_files(folder_of(table)) == files
        catalog.drop_table(name)
        catalog.register_table("db.t", table.metadata_location)
    assert rows_of(catalog.load_table("db.t")) == [(0, 0), (1, 0), (2, 0)]


def test_a_table_of_a_rest_catalog_is_renamed_and_purged(tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as (_, catalog):
        table = make_table(catalog)
        ice.append(table, ids(0, 1))
        renamed = rename_table(table, "db.new")
        with pytest.raises(ice.InvalidArgumentError, match="has no namespace 'nope'"):
            rename_table(renamed, "nope.t")
        make_table(catalog, "db.other")
        with pytest.raises(ice.InvalidArgumentError, match=r"there is a table 'db\.other'"):
            rename_table(renamed, "db.other")
        assert drop_table(renamed, purge=True).files_left == 0
        assert not catalog.table_exists("db.new")
        assert not folder_of(renamed).exists()


def test_files_on_an_object_store_are_deleted(tmp_path: Path) -> None:
    with s3_server() as endpoint:
        catalog = make_s3_catalog(tmp_path, endpoint)
        table = make_table(catalog)
        ice.append(table, ids(0, 1))
        planned = drop_table(table, purge=True, dry_run=True)
        report = drop_table(table, purge=True)
        assert report.files_deleted == planned.files > 3
        assert (report.files_left, report.not_deleted) == (0, ())
        catalog.close()
