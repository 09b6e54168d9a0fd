"""Differences between a stream and a table, and the changes that would cure them."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from icestream.write.schema.comparison import Comparison, SchemaMode, compare, never_optional

_KEY = StructType(NestedField(6, "k", LongType(), required=True))
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(
        2,
        "s",
        StructType(NestedField(3, "x", LongType(), required=True)),
        required=True,
    ),
    NestedField(4, "m", MapType(5, _KEY, 7, StringType(), value_required=False), required=False),
    identifier_field_ids=[3],
)
_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("x", pa.int64())])),
        ("m", pa.map_(pa.struct([("k", pa.int64())]), pa.string())),
    ]
)


def _compare(arrow: pa.Schema, mode: SchemaMode = "freeze") -> Comparison:
    return compare(_SCHEMA, arrow, mode=mode, format_version=2, downcast_ns=False)


def test_the_tables_own_columns_have_no_difference() -> None:
    for mode in ("freeze", "evolve", "discard"):
        assert _compare(_ARROW, mode) == Comparison()  # type: ignore[arg-type]


def test_a_mode_decides_whether_a_new_column_is_an_error_a_change_or_left_out() -> None:
    arrow = _ARROW.append(pa.field("ID", pa.int32()))
    (difference,) = _compare(arrow).differences
    assert difference.unknown
    assert "it has 'id': names are matched by case" in difference.text
    assert _compare(arrow, "discard").discarded == ["ID"]
    (change,) = _compare(arrow, "evolve").changes
    assert change.text == "add column 'ID' int"


def test_all_differences_are_found_at_once() -> None:
    arrow = pa.schema([("s", pa.struct([("x", pa.string()), ("y", pa.int64())])), ("m", pa.int8())])
    texts = [each.text for each in _compare(arrow).differences]
    assert [text.split("'")[1] for text in texts] == ["s.x", "s.y", "m", "id"]


def test_identifiers_their_structs_and_keys_never_become_optional() -> None:
    assert never_optional(_SCHEMA) == {2, 3, 5, 6}
    missing = _compare(pa.schema([("m", _ARROW.field("m").type)]), "evolve")
    assert [each.text for each in missing.changes] == ["make column 'id' optional"]
    (difference,) = missing.differences
    assert "is an identifier of the table" in difference.text


def test_keys_of_maps_never_change() -> None:
    key = pa.struct([("k", pa.int64()), ("new", pa.int64())])
    arrow = _ARROW.set(2, pa.field("m", pa.map_(key, pa.string())))
    for mode in ("evolve", "discard"):
        (difference,) = _compare(arrow, mode).differences  # type: ignore[arg-type]
        assert "'m.key.new' is not in the key of the table's map" in difference.text


def test_new_nested_columns_are_optional_at_every_depth_and_nulls_are_left_out() -> None:
    inner = pa.struct([("a", pa.int64()), ("nothing", pa.null())])
    result = _compare(_ARROW.append(pa.field("new", pa.list_(inner))), "evolve")
    assert result.discarded == ["new.element.nothing"]
    kinds: list[ListType] = []

    class Update:
        def add_column(self, path: object, *, field_type: ListType, doc: object) -> None:
            kinds.append(field_type)

    (change,) = result.changes
    change.make(Update())  # type: ignore[arg-type]
    (kind,) = kinds
    assert not kind.element_required
    assert isinstance(kind.element_type, StructType)
    assert [(each.name, each.required) for each in kind.element_type.fields] == [("a", False)]
