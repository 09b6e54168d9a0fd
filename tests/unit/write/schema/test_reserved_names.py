"""Names of Iceberg's metadata columns: no table gets a column of that name from a stream."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import icestream as ice
from icestream.commit.new_table import NewTable
from icestream.write.schema.comparison import RESERVED_NAMES


def _rows(name: str) -> pa.Table:
    return pa.table({"id": pa.array([1], pa.int64()), name: pa.array([7], pa.int64())})


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_a_reserved_name_is_refused_with_the_column(catalog: SqlCatalog, name: str) -> None:
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    with pytest.raises(ice.SchemaMismatchError, match=f"'{name}'.* reserves") as error:
        ice.append(table, _rows(name), schema_mode="evolve")
    assert len(error.value.differences) == 1
    with pytest.raises(ice.SchemaMismatchError, match=f"'{name}'.* reserves"):
        NewTable.plan(catalog, "db.new", _rows(name).schema)
    assert not table.refresh().metadata.snapshots


def test_such_columns_can_be_discarded(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    report = ice.append(table, _rows("_pos"), schema_mode="discard")
    assert report.columns_discarded == ("_pos",)


def test_a_table_that_has_such_a_column_is_written_and_read(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "_pos", LongType()))
    table = catalog.create_table("db.t", schema)
    ice.append(table, _rows("_pos"))
    ice.merge(table, _rows("_pos"), on="id")
    assert ice.scan(table).to_reader().read_all().to_pylist() == [{"id": 1, "_pos": 7}]


def test_fields_of_structs_may_have_such_names(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    nested = pa.table({"id": [1], "origin": [{"_file": "a"}]})
    ice.append(table, nested, schema_mode="evolve")
    assert ice.scan(table).to_reader().read_all().column("origin").to_pylist() == [{"_file": "a"}]
