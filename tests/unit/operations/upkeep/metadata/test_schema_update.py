"""Columns are added, renamed, widened and dropped in one commit."""

from __future__ import annotations

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, LongType

import icestream as ice
from icestream.operations.upkeep.metadata.schema_update import (
    SchemaUpdate,
    type_of,
    update_schema,
)
from tests.support.loads import BY_PART, after_commits, before_commits, ids, make_table


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, ids(0, 2))
    return table


def test_several_changes_are_one_commit(table: Table) -> None:
    update_schema(table, SchemaUpdate(add={"small": "int"}))
    versions = len(table.metadata.metadata_log)
    changes = SchemaUpdate(
        add={"price": "decimal(10,2)"}, rename={"id": "key"}, widen={"small": "long"}, drop=["text"]
    )
    assert "text" in {each.name for each in table.schema().fields}
    planned = update_schema(table, changes, dry_run=True)
    assert len(table.refresh().metadata.metadata_log) == versions
    new = update_schema(table, changes)
    assert new.column_names == planned.column_names == ["key", "part", "small", "price"]
    assert len(table.metadata.metadata_log) == versions + 1
    rows = ice.scan(table).to_reader().read_all().to_pylist()
    assert rows == [{"key": n, "part": 0, "small": None, "price": None} for n in range(2)]


def test_what_cannot_be_changed_is_refused(table: Table) -> None:
    for changes, words in (
        (SchemaUpdate(drop=["nope"]), "has no column 'nope': it has id, part, text"),
        (SchemaUpdate(drop=["part"]), "'part' of db.t can't be dropped: its partitions"),
        (SchemaUpdate(widen={"id": "int"}), "Cannot change column type"),
        (SchemaUpdate(add={"id": "int"}), "can't be changed"),
        (SchemaUpdate(add={"x": "tuple"}), "'tuple' is not a type of columns: give boolean"),
    ):
        with pytest.raises(ice.InvalidArgumentError, match=words):
            update_schema(table, changes)


def test_types_have_the_names_of_iceberg_or_arrow() -> None:
    assert type_of("decimal(10, 2)") == DecimalType(10, 2)
    assert type_of("int64") == type_of("Long") == LongType()


def test_a_schema_that_others_change_meanwhile_is_a_conflict(
    catalog: SqlCatalog, other: SqlCatalog, table: Table
) -> None:
    theirs = other.load_table("db.t")
    with (
        before_commits(catalog, lambda: update_schema(theirs, SchemaUpdate(add={"a": "int"}))),
        pytest.raises(ice.CommitConflictError, match=r"changed the columns of db\.t meanwhile"),
    ):
        update_schema(table, SchemaUpdate(add={"b": "int"}))


def test_a_lost_answer_is_looked_up(catalog: SqlCatalog, table: Table) -> None:
    def lose() -> None:
        raise ConnectionError("lost")

    with after_commits(catalog, lose):
        update_schema(table, SchemaUpdate(add={"b": "int"}))
    assert table.refresh().schema().column_names == ["id", "part", "text", "b"]
