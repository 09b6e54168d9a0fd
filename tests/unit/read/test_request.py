"""What travels with a scan."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.read.request import request, with_fields
from tests.support.tables import make_catalog


def test_what_only_the_catalog_needs_does_not_travel_with_splits(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path, password="hunter2", **{"s3.access-key-id": "needed"})
    rows = pa.table({"id": [1, 2, 3]})
    table = catalog.create_table("db.t", rows.schema)
    table.append(rows)
    [split] = ice.scan(table).splits()
    assert split.context.io.properties["s3.access-key-id"] == "needed"
    assert b"hunter2" not in pickle.dumps(split)
    assert b"sqlite" not in pickle.dumps(split)
    assert sum(b.num_rows for b in ice.read_splits([split])) == 3
    catalog.close()


def test_a_request_for_some_fields_also_reads_those_of_its_filter(catalog: SqlCatalog) -> None:
    rows = pa.table({"id": [1], "pair": [{"a": 1, "b": 2}], "more": [1]})
    table = catalog.create_table("db.t", rows.schema)
    part = table.schema().select("pair.b")
    asked = with_fields(request(table, where="id = 1 and more = 1"), part)
    assert asked.context.schema == part
    assert sorted(asked.context.read_schema.column_names) == ["id", "more", "pair", "pair.b"]
    with table.update_schema() as update:
        update.delete_column("pair")
    again = with_fields(request(table, where="id = 1"), part)
    assert [field.name for field in again.context.read_schema.fields] == ["pair", "id", "more"]
