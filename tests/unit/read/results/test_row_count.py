"""Counting reads nothing but metadata where that is exact, and else the cheapest columns."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, IntegerType, ListType, LongType, NestedField, StringType

import icestream as ice
from icestream.read.request import request
from icestream.read.results.row_count import counting_context, known_rows
from tests.fault.watched_io import watch

ROWS = pa.table({"id": range(100), "text": ["x"] * 100})


def test_files_without_filter_and_deletes_are_not_opened(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema)
    ice.append(table, ROWS)
    io = watch(table)
    assert ice.scan(table).count() == 100
    assert not [path for path in io.opened if path.endswith(".parquet")]
    assert ice.scan(table, where="id < 7").count() == 7
    assert [path for path in io.opened if path.endswith(".parquet")]


def test_a_mask_does_not_change_the_count_and_a_transform_does(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema)
    ice.append(table, ROWS)
    for mask in ({"text": "hash"}, {"id": "null", "text": "null"}):
        assert ice.scan(table, mask=mask).count() == 100
    assert ice.scan(table, mask={"text": "hash"}, where="id < 7").count() == 7
    ice.delete(table, "id = 3")
    assert ice.scan(table, mask={"text": "hash"}).count() == 99
    half = "SELECT text FROM batch WHERE id % 2 = 0"
    assert ice.scan(table, transform=half).count() == 50
    assert ice.scan(table, transform=half, where="id < 7", limit=3).count() == 3
    assert ice.scan(table, transform="SELECT id, unnest([1, 2]) FROM batch").count() == 198
    splits = ice.scan(table, transform=half, mask={"text": "hash"}).splits()
    assert ice.read_splits(splits).count() == 50


def test_only_the_columns_of_the_filter_are_read(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema)
    wanted = request(table, where="id < 7", metadata_columns=["_file"])
    context = counting_context(wanted.context, table.schema())
    assert context.schema.column_names == context.read_schema.column_names == ["id"]
    assert context.metadata_columns == ()


def test_without_a_filter_one_small_column_is_read(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "text", StringType()),
        NestedField(2, "items", ListType(5, IntegerType())),
        NestedField(3, "id", LongType()),
        NestedField(4, "blob", BinaryType()),
    )
    table = catalog.create_table("db.t", schema)
    context = counting_context(request(table, columns=["text"]).context, table.schema())
    assert context.schema.column_names == ["id"]
    context = counting_context(request(table, columns=["text", "items"]).context, None)
    assert context.schema.column_names == ["text"]


def test_the_snapshot_says_how_many_rows_there_surely_are(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema)
    assert known_rows(request(table), None) == known_rows(None, None) == 0
    ice.append(table, ROWS)
    assert known_rows(request(table), None) == 100
    assert known_rows(request(table, limit=3), 3) == 3
    assert known_rows(request(table, where="id < 1000"), None) == 0
