"""Schemas of partition specs, and schemas with optional fields."""

from __future__ import annotations

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from icestream.commit.snapshot.spec_schema import loosen, schema_for
from tests.support.loads import BY_PART, make_table


def test_a_spec_whose_column_was_dropped_has_the_newest_schema_with_it(
    catalog: SqlCatalog,
) -> None:
    table = make_table(catalog, spec=BY_PART)
    with table.update_spec() as update_spec:
        update_spec.remove_field("part")
    with table.update_schema() as update_schema:
        update_schema.add_column("more", LongType())
    with table.update_schema() as update_schema:
        update_schema.delete_column("part")
    metadata = table.refresh().metadata
    old, new = (metadata.specs()[spec_id] for spec_id in (0, metadata.default_spec_id))
    assert schema_for(metadata, old).column_names == ["id", "part", "text", "more"]
    assert schema_for(metadata, new) == metadata.schema()


def test_fields_are_made_optional_at_any_depth() -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(
            2,
            "nested",
            StructType(NestedField(3, "inner", LongType(), required=True)),
            required=True,
        ),
        NestedField(4, "list", ListType(5, LongType(), element_required=True), required=True),
        NestedField(
            6, "map", MapType(7, StringType(), 8, LongType(), value_required=True), required=True
        ),
        identifier_field_ids=[1],
    )
    loose = loosen(schema, {3, 5, 8})
    optional = {each for each in schema.field_ids if not loose.find_field(each).required}
    assert optional == {3, 5, 8}
    assert loose.identifier_field_ids == [1]
    assert loosen(schema, ()) == schema
