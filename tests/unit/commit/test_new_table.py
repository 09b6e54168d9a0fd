"""A table that its first write creates."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.commit.new_table import NewTable, TableCreatedError, new_table_schema
from tests.support.loads import ids, ids_of, make_table

_ROWS = ids(0, 3)


def test_a_planned_table_is_not_in_the_catalog_until_its_first_write(catalog: SqlCatalog) -> None:
    new = NewTable.plan(catalog, "db.new", _ROWS.schema, partition_by=["part"], sort_by=["id"])
    assert new.name == "db.new"
    assert not catalog.table_exists("db.new")
    report = new.create_with(catalog, lambda transaction: ice.append(transaction, _ROWS))
    table = catalog.load_table("db.new")
    assert ids_of(table) == [0, 1, 2]
    assert [field.name for field in table.spec().fields] == ["part"]
    assert len(table.sort_order().fields) == 1
    assert [each.snapshot_id for each in table.metadata.snapshots] == [report.snapshot_id]


def test_a_table_that_somebody_else_created_first_is_kept(catalog: SqlCatalog) -> None:
    new = NewTable.plan(catalog, "db.new", _ROWS.schema)
    theirs = make_table(catalog, "db.new")
    with pytest.raises(TableCreatedError, match="created concurrently"):
        new.create_with(catalog, lambda transaction: ice.append(transaction, _ROWS))
    assert catalog.load_table("db.new").metadata == theirs.metadata


def test_a_namespace_that_does_not_exist_is_named(catalog: SqlCatalog) -> None:
    with pytest.raises(ice.CatalogError, match=r"'nope\.new' can't be created.*namespace first"):
        NewTable.plan(catalog, "nope.new", _ROWS.schema)


def test_a_namespace_inside_a_namespace_is_refused_with_a_name_that_works(
    catalog: SqlCatalog,
) -> None:
    catalog.create_namespace("db.inner")
    message = r"has no namespaces inside namespaces\. Give a name with one dot, such as 'db\.new'$"
    with pytest.raises(ice.CatalogError, match=message):
        NewTable.plan(catalog, "db.inner.new", _ROWS.schema)


def test_only_the_main_branch_can_be_written_to(catalog: SqlCatalog) -> None:
    new = NewTable.plan(catalog, "db.new", _ROWS.schema)
    new.check_branch(None)
    new.check_branch("main")
    with pytest.raises(ice.InvalidArgumentError, match="has no branch 'audit'"):
        new.check_branch("audit")


def test_columns_without_a_type_are_left_out() -> None:
    stream = pa.schema([("id", pa.int64()), ("nothing", pa.null())])
    plan = new_table_schema("db.new", stream, {})
    assert plan.schema.column_names == ["id"]
    assert plan.discarded == ("nothing",)


def test_a_stream_without_columns_and_an_unknown_version_are_refused() -> None:
    with pytest.raises(ice.SchemaMismatchError, match=r"no column that table db.new"):
        new_table_schema("db.new", pa.schema([("nothing", pa.null())]), {})
    with pytest.raises(ice.InvalidArgumentError, match="format-version is '3'"):
        new_table_schema("db.new", _ROWS.schema, {"format-version": "3"})
