"""A new schema in the same commit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import LongType, NestedField, StringType

import icestream as ice
from icestream.commit.change import SchemaChange
from icestream.commit.schema_change import (
    SchemaConflictError,
    apply_schema_change,
    evolved,
    loosened_in_words,
)
from tests.support.loads import make_table
from tests.support.tables import set_name_mapping

_NEW = NestedField(4, "new", LongType(), required=False)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return make_table(catalog)


def _change(metadata: TableMetadata, *fields: NestedField) -> SchemaChange:
    schema = Schema(*metadata.schema().fields, *fields)
    return SchemaChange(schema, metadata.current_schema_id, metadata.last_column_id)


def test_the_table_gets_the_new_schema(table: Table) -> None:
    metadata, updates, requirements = apply_schema_change(
        _change(table.metadata, _NEW), table.metadata, table="db.t"
    )
    assert metadata.schema().column_names == ["id", "part", "text", "new"]
    assert len(updates) == len(requirements) == 2


def test_nothing_changes_without_a_change_or_if_the_table_has_the_columns(table: Table) -> None:
    metadata = table.metadata
    for change in (None, _change(metadata)):
        assert apply_schema_change(change, metadata, table="db.t") == (metadata, (), ())


def test_a_schema_that_another_commit_changed_meanwhile_is_a_conflict(table: Table) -> None:
    planned = _change(table.metadata, _NEW)
    with table.update_schema() as update:
        update.add_column("other", StringType())
    with pytest.raises(SchemaConflictError, match=r"the schema of db\.t was changed"):
        apply_schema_change(planned, table.refresh().metadata, table="db.t")


def test_the_same_column_that_another_commit_added_is_none(table: Table) -> None:
    planned = _change(table.metadata, _NEW)
    with table.update_schema() as update:
        update.add_column("new", LongType())
    metadata = table.refresh().metadata
    assert apply_schema_change(planned, metadata, table="db.t") == (metadata, (), ())


def test_new_columns_are_added_to_the_name_mapping(table: Table) -> None:
    set_name_mapping(table)
    metadata, updates, _ = apply_schema_change(
        _change(table.refresh().metadata, _NEW), table.metadata, table="db.t"
    )
    mapping = json.loads(metadata.properties[TableProperties.DEFAULT_NAME_MAPPING])
    assert {"field-id": 4, "names": ["new"]} in mapping
    assert len(updates) == 3


def test_files_of_the_same_schema_need_no_change(table: Table) -> None:
    target = ice.write_target(table)
    assert evolved(target, ()) is None
    wider = replace(target, schema=Schema(*target.schema.fields, _NEW))
    change = evolved(wider, ())
    assert change is not None
    assert change.base_last_column_id == table.metadata.last_column_id


def test_fields_made_optional_are_named() -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    assert loosened_in_words(schema, {1}) == ("column 'id' made optional",)
