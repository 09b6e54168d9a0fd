"""Whether a stream fits a table, in each mode: every difference is listed, and evolving is safe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from icestream.errors import InvalidArgumentError, SchemaMismatchError
from icestream.write.schema.schema_plan import SchemaMode, SchemaPlan, plan_schema
from icestream.write.target import WriteTarget
from tests.support.tables import all_types_rows, all_types_schema, make_catalog

_MODES: list[SchemaMode] = ["freeze", "evolve", "discard"]
_CUT = "PYICEBERG_DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE"


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = make_catalog(tmp_path)
    yield catalog
    catalog.close()


Planner = Callable[..., SchemaPlan]


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """A table with something of everything, `id` being its identifier."""
    return catalog.create_table(
        "db.t",
        Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "n", IntegerType(), required=True),
            NestedField(3, "price", DecimalType(10, 2)),
            NestedField(
                4,
                "place",
                StructType(
                    NestedField(5, "x", FloatType(), required=True),
                    NestedField(6, "name", StringType()),
                ),
            ),
            NestedField(
                7,
                "tags",
                ListType(
                    8,
                    StructType(NestedField(9, "k", IntegerType(), required=True)),
                    element_required=True,
                ),
            ),
            NestedField(
                10,
                "by_key",
                MapType(
                    11,
                    StructType(NestedField(12, "a", IntegerType())),
                    13,
                    StructType(NestedField(14, "v", IntegerType())),
                    value_required=True,
                ),
            ),
            identifier_field_ids=[1],
        ),
    )


_ID_AND_N = {"id": pa.int64(), "n": pa.int32()}


def _plan(table: Table, mode: SchemaMode, /, **columns: pa.DataType) -> SchemaPlan:
    return plan_schema(WriteTarget.of(table), pa.schema(list(columns.items())), mode=mode)


def _differences(table: Table, mode: SchemaMode, /, **columns: pa.DataType) -> tuple[str, ...]:
    with pytest.raises(SchemaMismatchError) as caught:
        _plan(table, mode, **columns)
    for difference in caught.value.differences:
        assert difference in str(caught.value)
    assert "db.t" in str(caught.value)
    return caught.value.differences


# What fits as it is


@pytest.mark.parametrize("mode", _MODES)
def test_a_stream_of_the_tables_own_columns_changes_nothing(
    catalog: SqlCatalog, mode: SchemaMode
) -> None:
    table = catalog.create_table("db.t", all_types_schema())
    target = WriteTarget.of(table)
    plan = plan_schema(target, all_types_rows(1).schema, mode=mode)
    assert plan.schema is target.schema
    assert (plan.changes, plan.discarded) == ((), ())


@pytest.mark.parametrize("mode", _MODES)
def test_columns_may_come_in_any_order_and_optional_ones_may_be_missing(
    table: Table, mode: SchemaMode
) -> None:
    assert _plan(table, mode, n=pa.int32(), id=pa.int64()) == SchemaPlan(table.schema())
    nested = pa.struct([("name", pa.string()), ("x", pa.float32())])
    assert _plan(table, mode, **_ID_AND_N, place=nested) == SchemaPlan(table.schema())


@pytest.mark.parametrize("mode", _MODES)
def test_nullability_flags_of_arrow_mean_nothing(table: Table, mode: SchemaMode) -> None:
    for nullable in (True, False):
        schema = pa.schema([pa.field(k, v, nullable=nullable) for k, v in _ID_AND_N.items()])
        plan = plan_schema(WriteTarget.of(table), schema, mode=mode)
        assert plan.schema.schema_id == table.schema().schema_id


_ANY_TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.json_()]
_ANY_BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
_NAIVE = [pa.timestamp(unit) for unit in ("s", "ms", "us")]
_AWARE = [
    pa.timestamp(unit, zone)
    for unit, zone in [("s", "UTC"), ("ms", "Europe/Berlin"), ("us", "+05:30"), ("us", "No/Where")]
]
_NANO = [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.timestamp("ns", "Asia/Tokyo")]
_UP_TO_INT = [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()]
_LONGER = [pa.int64(), pa.uint32(), pa.uint64()]
_TIMES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
_DECIMALS = [
    pa.decimal32(9, 2),
    pa.decimal64(10, 2),
    pa.decimal128(10, 2),
    pa.decimal256(10, 2),
    pa.decimal128(9, 1),
    pa.decimal128(8, 0),
    pa.decimal128(6, -2),
]
_TOO_WIDE_DECIMALS = [pa.decimal128(11, 2), pa.decimal128(10, 1), pa.decimal256(30, 2)]
_FINER_DECIMALS = [pa.decimal128(10, 3), pa.decimal32(3, 3)]
_NEVER = [
    pa.month_day_nano_interval(),
    pa.duration("us"),
    pa.dense_union([pa.field("a", pa.int32())]),
    pa.list_(pa.int32()),
    pa.struct([("a", pa.int32())]),
    pa.map_(pa.string(), pa.int32()),
]
_ALL = [
    pa.bool_(),
    pa.bool8(),
    *_UP_TO_INT,
    *_LONGER,
    pa.float16(),
    pa.float32(),
    pa.float64(),
    *_DECIMALS,
    *_TOO_WIDE_DECIMALS,
    *_FINER_DECIMALS,
    pa.date32(),
    pa.date64(),
    *_TIMES,
    *_NAIVE,
    *_AWARE,
    *_NANO,
    *_ANY_TEXT,
    *_ANY_BYTES,
    pa.binary(16),
    pa.binary(7),
    pa.uuid(),
    *_NEVER,
]
_SIXTEEN = [pa.binary(16), pa.uuid()]
_FITS: dict[IcebergType, list[pa.DataType]] = {
    BooleanType(): [pa.bool_(), pa.bool8()],
    IntegerType(): [*_UP_TO_INT, pa.bool8()],
    LongType(): [*_UP_TO_INT, *_LONGER, pa.bool8()],
    FloatType(): [pa.float16(), pa.float32()],
    DoubleType(): [pa.float16(), pa.float32(), pa.float64()],
    DecimalType(10, 2): _DECIMALS,
    DateType(): [pa.date32(), pa.date64()],
    TimeType(): _TIMES,
    TimestampType(): _NAIVE,
    TimestamptzType(): _AWARE,
    StringType(): _ANY_TEXT,
    BinaryType(): [*_ANY_BYTES, pa.binary(7), *_SIXTEEN],
    FixedType(7): [*_ANY_BYTES, pa.binary(7)],
    FixedType(16): [*_ANY_BYTES, *_SIXTEEN],
    UUIDType(): [*_ANY_BYTES, *_ANY_TEXT, *_SIXTEEN],
}
_WIDENS: dict[IcebergType, dict[pa.DataType, IcebergType]] = {
    IntegerType(): dict.fromkeys(_LONGER, LongType()),
    FloatType(): {pa.float64(): DoubleType()},
    DecimalType(10, 2): {
        pa.decimal128(11, 2): DecimalType(11, 2),
        pa.decimal128(10, 1): DecimalType(11, 2),
        pa.decimal256(30, 2): DecimalType(30, 2),
    },
}


def _one_column(catalog: SqlCatalog, kind: IcebergType) -> Table:
    return catalog.create_table("db.t", Schema(NestedField(1, "c", kind)))


@pytest.mark.parametrize("kind", _FITS, ids=str)
def test_each_type_takes_exactly_the_types_it_is_said_to(
    catalog: SqlCatalog, kind: IcebergType
) -> None:
    table = _one_column(catalog, kind)
    for given in [*_ALL, pa.null()]:
        fits = given in _FITS[kind] or given == pa.null()
        for mode in _MODES:
            wide = _WIDENS.get(kind, {}).get(given) if mode == "evolve" else None
            if fits:
                assert _plan(table, mode, c=given) == SchemaPlan(table.schema()), given
            elif wide is not None:
                plan = _plan(table, mode, c=given)
                assert plan.changes == (f"widen column 'c' from {kind} to {wide}",), given
                assert plan.schema.find_type("c") == wide
            else:
                (difference,) = _differences(table, mode, c=given)
                assert difference.startswith(
                    f"column 'c' is {_stored(given)} in the stream and {kind} in the table"
                ), given


def _stored(given: pa.DataType) -> pa.DataType:
    return given.storage_type if given == pa.json_() else given


@pytest.mark.parametrize("kind", _FITS, ids=str)
def test_dictionaries_runs_and_extensions_are_as_their_values(
    catalog: SqlCatalog, kind: IcebergType
) -> None:
    table = _one_column(catalog, kind)
    for given in _FITS[kind]:
        if isinstance(given, pa.BaseExtensionType):
            continue
        for wrapped in (
            pa.dictionary(pa.int16(), given),
            pa.run_end_encoded(pa.int32(), given),
            pa.opaque(given, "x", "y"),
            pa.run_end_encoded(pa.int32(), pa.dictionary(pa.int8(), given)),
        ):
            assert _plan(table, "freeze", c=wrapped) == SchemaPlan(table.schema()), wrapped
    with pytest.raises(SchemaMismatchError):
        _plan(table, "freeze", c=pa.dictionary(pa.int8(), pa.duration("s")))


@pytest.mark.parametrize(
    "lists",
    [
        pa.list_(pa.int32()),
        pa.large_list(pa.int32()),
        pa.list_view(pa.int32()),
        pa.large_list_view(pa.int32()),
        pa.list_(pa.int32(), 3),
        pa.fixed_shape_tensor(pa.int32(), [3]),
        pa.list_(pa.null()),
    ],
    ids=str,
)
def test_every_form_of_list_is_a_list(catalog: SqlCatalog, lists: pa.DataType) -> None:
    table = _one_column(catalog, ListType(2, LongType(), element_required=False))
    assert _plan(table, "freeze", c=lists) == SchemaPlan(table.schema())


def test_lists_of_nothing_fit_lists_of_required_elements(table: Table) -> None:
    """`[[], []]` is a list of nulls in Arrow, and holds none."""
    assert _plan(table, "freeze", **_ID_AND_N, tags=pa.list_(pa.null())).changes == ()


# Timestamps


def test_timestamps_with_and_without_zones_are_told_apart_and_how_to_change_them(
    catalog: SqlCatalog,
) -> None:
    table = catalog.create_table(
        "db.t", Schema(NestedField(1, "a", TimestampType()), NestedField(2, "b", TimestamptzType()))
    )
    a, b = _differences(table, "freeze", a=pa.timestamp("us", "UTC"), b=pa.timestamp("us"))
    assert "local_timestamp" in a
    assert "assume_timezone" in b


def test_nanoseconds_are_cut_only_where_pyiceberg_is_configured_so(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table(
        "db.t", Schema(NestedField(1, "a", TimestampType()), NestedField(2, "b", TimestamptzType()))
    )
    nano = {"a": pa.timestamp("ns"), "b": pa.timestamp("ns", "Europe/Berlin")}
    for mode in _MODES:
        for difference in _differences(table, mode, **nano):
            assert "downcast-ns-timestamp-to-us-on-write" in difference
    new = {**nano, "a": pa.timestamp("us"), "b": pa.timestamp("us", "UTC"), "c": nano["a"]}
    (difference,) = _differences(table, "evolve", **new)
    assert "downcast-ns-timestamp-to-us-on-write" in difference
    monkeypatch.setenv(_CUT, "true")
    assert _plan(table, "freeze", **nano) == SchemaPlan(table.schema())
    assert _plan(table, "evolve", **new).schema.find_type("c") == TimestampType()
    assert len(_differences(table, "freeze", a=nano["b"], b=nano["a"])) == 2
    plan = plan_schema(
        WriteTarget.of(table),
        pa.schema([("a", pa.timestamp("us"))]),
        mode="freeze",
        downcast_ns=False,
    )
    assert plan.changes == ()


# freeze and discard


def test_freeze_lists_every_difference_and_ends_with_what_to_do(table: Table) -> None:
    columns = {
        "ID": pa.int64(),
        "n": pa.string(),
        "price": pa.float64(),
        "place": pa.struct([("y", pa.int8()), ("name", pa.int32())]),
        "tags": pa.list_(pa.struct([("k", pa.int64()), ("z", pa.int8())])),
        "by_key": pa.map_(pa.string(), pa.struct([("v", pa.int64())])),
        "more": pa.duration("s"),
    }
    for mode, unknown in (("freeze", True), ("discard", False)):
        differences = _differences(table, mode, **columns)
        expected = {
            "column 'n' is string in the stream and int in the table",
            "column 'price' is double in the stream and decimal(10, 2) in the table",
            "column 'place.name' is int32 in the stream and string in the table",
            "column 'place.x' is not in the stream and is required by the table",
            "column 'tags.element.k' is int64 in the stream and int in the table",
            "column 'by_key.key' is string in the stream and struct<13: a: optional int> in "
            "the table",
            "column 'by_key.value.v' is int64 in the stream and int in the table",
            "column 'id' is not in the stream and is an identifier of the table",
        }
        if unknown:
            expected |= {
                "column 'ID' is not in the table (it has 'id': names are matched by case)",
                "column 'place.y' is not in the table",
                "column 'tags.element.z' is not in the table",
                "column 'more' is not in the table",
            }
        assert set(differences) == expected
        assert len(differences) == len(expected)


@pytest.mark.parametrize(
    ("columns", "ending"),
    [
        (
            {**_ID_AND_N, "new": pa.int8()},
            "drop these columns or load with schema_mode='discard', or load with "
            "schema_mode='evolve' to change the table",
        ),
        (
            {**_ID_AND_N, "n": pa.int64()},
            "change the stream, or load with schema_mode='evolve' to change the table",
        ),
        ({**_ID_AND_N, "n": pa.string()}, "change the stream"),
        ({"n": pa.int32()}, "change the stream"),
        (
            {**_ID_AND_N, "new": pa.duration("s")},
            "drop these columns or load with schema_mode='discard'",
        ),
    ],
    ids=str,
)
def test_the_message_ends_with_what_helps(
    table: Table, columns: dict[str, pa.DataType], ending: str
) -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        _plan(table, "freeze", **columns)
    assert str(caught.value).endswith(f": {ending}")


def test_discard_leaves_unknown_columns_out_at_every_depth_and_says_so(table: Table) -> None:
    plan = _plan(
        table,
        "discard",
        **_ID_AND_N,
        new=pa.duration("s"),
        place=pa.struct([("x", pa.float32()), ("y", pa.null())]),
        tags=pa.large_list(pa.struct([("z", pa.int8()), ("k", pa.int8())])),
        by_key=pa.map_(
            pa.struct([("a", pa.int32())]), pa.struct([("v", pa.int32()), ("w", pa.int32())])
        ),
    )
    assert plan.schema is not None
    assert plan.changes == ()
    assert plan.schema.schema_id == table.schema().schema_id
    assert set(plan.discarded) == {"new", "place.y", "tags.element.z", "by_key.value.w"}


@pytest.mark.parametrize("mode", _MODES)
def test_keys_of_maps_never_change_and_lose_no_fields(table: Table, mode: SchemaMode) -> None:
    """Keys that differ in a dropped field alone would be one key twice."""
    value = pa.struct([("v", pa.int32())])
    wider = pa.map_(pa.struct([("a", pa.int64())]), value)
    (difference,) = _differences(table, mode, **_ID_AND_N, by_key=wider)
    assert difference == "column 'by_key.key.a' is int64 in the stream and int in the table"
    more = pa.map_(pa.struct([("a", pa.int32()), ("b", pa.int32())]), value)
    (difference,) = _differences(table, mode, **_ID_AND_N, by_key=more)
    assert difference == "column 'by_key.key.b' is not in the key of the table's map"


@pytest.mark.parametrize("mode", ["freeze", "discard"])
def test_columns_of_no_type_do_not_fit_required_ones(table: Table, mode: SchemaMode) -> None:
    (difference,) = _differences(table, mode, id=pa.int64(), n=pa.null())
    assert difference == (
        "column 'n' has no type (all null) in the stream and is required by the table"
    )


@pytest.mark.parametrize("mode", _MODES)
def test_fields_of_one_name_in_a_struct_are_a_difference(table: Table, mode: SchemaMode) -> None:
    twice = pa.struct([("x", pa.string()), ("x", pa.string()), ("name", pa.string())])
    differences = _differences(table, mode, **_ID_AND_N, place=twice, tags=pa.int8())
    assert differences[0] == "column 'place.x' is in the stream 2 times"
    assert len(differences) == 2
    if mode == "evolve":
        assert _differences(table, mode, **_ID_AND_N, new=twice) == (
            "column 'new.x' is in the stream 2 times",
        )


# evolve


_EVOLVING = {
    "one column": {"new": pa.string()},
    "several columns": {"b": pa.int64(), "a": pa.float64(), "c": pa.date32()},
    "wider types": {"n": pa.int64(), "price": pa.decimal128(12, 2)},
    "nested before top-level": {
        "new": pa.struct([("p", pa.int32()), ("q", pa.list_(pa.int64()))]),
        "place": pa.struct(
            [("x", pa.float64()), ("z", pa.struct([("deep", pa.int32())])), ("name", pa.string())]
        ),
        "also": pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.int64())]))),
    },
    "elements and values": {
        "first": pa.int32(),
        "tags": pa.list_(pa.struct([("k", pa.int64()), ("l", pa.string())])),
        "by_key": pa.map_(
            pa.struct([("a", pa.int32())]),
            pa.struct([("w", pa.struct([("u", pa.int32())])), ("v", pa.int64())]),
        ),
        "last": pa.list_(pa.list_(pa.struct([("a", pa.int32()), ("b", pa.int32())]))),
    },
}


@pytest.mark.parametrize("name", _EVOLVING)
def test_evolved_schemas_are_numbered_as_pyiceberg_numbers_them(table: Table, name: str) -> None:
    with table.update_schema() as update:  # The last column id is beyond the highest in use.
        update.add_column("gone", StructType(NestedField(1, "x", LongType())))
    with table.update_schema() as update:
        update.delete_column("gone")
    before = set(_named(table.schema()))
    columns = {**_ID_AND_N, **_EVOLVING[name]}
    plan = _plan(table, "evolve", **columns)
    with table.update_schema() as update:
        required = [pa.field(k, v, nullable=k not in _ID_AND_N) for k, v in columns.items()]
        update.union_by_name(pa.schema(required))
    assert _named(plan.schema) == _named(table.schema())
    assert plan.schema.schema_id == table.schema().schema_id == 2
    assert plan.schema.identifier_field_ids == [1]
    assert plan.discarded == ()
    assert min(set(_named(plan.schema)) - before, default=17) == 17


def _named(schema: Schema) -> dict[int, tuple[str | None, str]]:
    """Names and primitive types by id."""
    return {
        number: (
            schema.find_column_name(number),
            str(kind) if (kind := schema.find_type(number)).is_primitive else type(kind).__name__,
        )
        for number in sorted(schema.field_ids)
    }


def test_changes_are_told_and_new_columns_are_optional_at_every_depth(table: Table) -> None:
    strict = pa.field("a", pa.int32(), nullable=False, metadata={"doc": "a comment"})
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("n", pa.int64()),
            pa.field("new", pa.struct([strict]), nullable=False, metadata={"doc": "more"}),
            pa.field("list", pa.list_(strict), nullable=False),
        ]
    )
    plan = plan_schema(WriteTarget.of(table), schema, mode="evolve")
    assert plan.changes == (
        "widen column 'n' from int to long",
        "add column 'new' struct",
        "add column 'list' list",
    )
    new = plan.schema.find_field("new")
    assert (new.optional, new.doc) == (True, "more")
    below = plan.schema.find_field("new.a")
    assert (below.optional, below.doc) == (True, "a comment")
    assert plan.schema.find_field("list.element").optional
    assert plan.schema.find_field("n").required


def test_comments_of_existing_columns_stay(table: Table) -> None:
    schema = pa.schema([("id", pa.int64()), pa.field("n", pa.int32(), metadata={"doc": "x"})])
    assert plan_schema(WriteTarget.of(table), schema, mode="evolve").changes == ()


def test_missing_required_columns_become_optional_but_identifiers_do_not(table: Table) -> None:
    plan = _plan(
        table,
        "evolve",
        id=pa.int64(),
        place=pa.struct([("name", pa.string())]),
        tags=pa.list_(pa.struct([("other", pa.int8())])),
    )
    assert set(plan.changes) == {
        "make column 'n' optional",
        "make column 'place.x' optional",
        "make column 'tags.element.k' optional",
        "add column 'tags.element.other' int",
    }
    for name in ("n", "place.x", "tags.element.k"):
        assert plan.schema.find_field(name).optional
    assert plan.schema.find_field("tags.element").required
    assert _differences(table, "evolve", n=pa.int32()) == (
        "column 'id' is not in the stream and is an identifier of the table",
    )
    assert _plan(table, "evolve", id=pa.int64(), n=pa.null()).changes == (
        "make column 'n' optional",
    )


def test_structs_that_hold_an_identifier_stay_required(catalog: SqlCatalog) -> None:
    inner = StructType(NestedField(3, "id", LongType(), required=True))
    table = catalog.create_table(
        "db.t",
        Schema(
            NestedField(1, "v", LongType()),
            NestedField(2, "key", inner, required=True),
            identifier_field_ids=[3],
        ),
    )
    assert _differences(table, "evolve", v=pa.int64()) == (
        "column 'key' is not in the stream and is an identifier of the table",
    )


def test_new_columns_of_no_type_are_left_out_and_told(table: Table) -> None:
    nothing = pa.null()
    plan = _plan(
        table,
        "evolve",
        **_ID_AND_N,
        a=nothing,
        b=pa.list_(nothing),
        c=pa.struct([("x", nothing), ("y", pa.int8()), ("z", pa.map_(pa.string(), nothing))]),
        d=pa.struct([("x", nothing)]),
        place=pa.struct([("x", pa.float32()), ("new", nothing)]),
    )
    assert plan.changes == ("add column 'c' struct",)
    assert set(plan.discarded) == {"a", "b", "c.x", "c.z", "d", "place.new"}
    assert [f.name for f in plan.schema.find_type("c").fields] == ["y"]


@pytest.mark.parametrize("mode", ["evolve"])
@pytest.mark.parametrize(
    ("column", "kind", "says"),
    [
        ("n", pa.string(), "column 'n' is string in the stream and int in the table"),
        ("n", pa.float32(), "column 'n' is float in the stream"),
        ("price", pa.decimal128(12, 3), "column 'price' is decimal128(12, 3) in the stream"),
        ("price", pa.decimal256(40, 2), "column 'price' is decimal256(40, 2) in the stream"),
        ("place", pa.string(), "column 'place' is string in the stream and struct<"),
        ("tags", pa.map_(pa.string(), pa.int8()), "column 'tags' is map<string, int8>"),
        ("new", pa.decimal256(39, 0), "column 'new' is decimal256(39, 0) in the stream, for which"),
        ("new", pa.month_day_nano_interval(), "column 'new' is month_day_nano_interval"),
        ("new", pa.list_(pa.duration("s")), "column 'new.element' is duration[s] in the stream"),
        ("", pa.int8(), "column '' has no name"),
    ],
)
def test_what_evolving_can_not_do_is_a_difference(
    table: Table, mode: SchemaMode, column: str, kind: pa.DataType, says: str
) -> None:
    (difference,) = _differences(table, mode, **{**_ID_AND_N, column: kind})
    assert difference.startswith(says)


_NEW_TYPES: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.bool8(): BooleanType(),
    pa.int8(): IntegerType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
    pa.uint64(): LongType(),
    pa.float16(): FloatType(),
    pa.float64(): DoubleType(),
    pa.decimal32(5, 2): DecimalType(5, 2),
    pa.decimal256(38, 3): DecimalType(38, 3),
    pa.decimal128(5, -2): DecimalType(7, 0),
    pa.decimal128(3, 5): DecimalType(5, 5),
    pa.date64(): DateType(),
    pa.time32("s"): TimeType(),
    pa.time64("ns"): TimeType(),
    pa.timestamp("s"): TimestampType(),
    pa.timestamp("ms", "Asia/Tokyo"): TimestamptzType(),
    pa.string_view(): StringType(),
    pa.json_(): StringType(),
    pa.dictionary(pa.int8(), pa.large_string()): StringType(),
    pa.run_end_encoded(pa.int32(), pa.int64()): LongType(),
    pa.binary_view(): BinaryType(),
    pa.binary(16): FixedType(16),
    pa.uuid(): UUIDType(),
}


@pytest.mark.parametrize("kind", _NEW_TYPES, ids=str)
def test_new_columns_get_the_type_they_are_said_to(table: Table, kind: pa.DataType) -> None:
    plan = _plan(table, "evolve", **_ID_AND_N, new=kind)
    assert plan.schema.find_type("new") == _NEW_TYPES[kind]
    again = WriteTarget.of(table).with_schema(plan.schema)
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("new", kind)])
    assert plan_schema(again, schema, mode="freeze").schema is plan.schema


def test_a_target_that_evolved_already_is_evolved_further(table: Table) -> None:
    """So that streams of one write may bring different columns."""
    first = _plan(table, "evolve", **_ID_AND_N, a=pa.int8())
    target = WriteTarget.of(table).with_schema(first.schema)
    columns = {**_ID_AND_N, "b": pa.int8()}
    second = plan_schema(target, pa.schema(list(columns.items())), mode="evolve")
    assert second.changes == ("add column 'b' int",)
    assert second.schema.find_field("b").field_id == first.schema.find_field("a").field_id + 1
    assert second.schema.find_field("a") == first.schema.find_field("a")


def test_a_schema_that_the_table_had_before_keeps_its_number(table: Table) -> None:
    old = table.schema()
    with table.update_schema() as update:
        update.make_column_optional("n")
    assert table.schema().schema_id == 1
    with table.update_schema() as update:
        update.update_column("price", doc="x")
    target = WriteTarget.of(table).with_schema(old)
    plan = plan_schema(target, pa.schema([("id", pa.int64())]), mode="evolve")
    assert plan.changes == ("make column 'n' optional",)
    assert plan.schema.schema_id == 1


def test_names_that_clash_once_written_with_dots_are_refused(catalog: SqlCatalog) -> None:
    a = StructType(NestedField(2, "b", LongType()))
    table = catalog.create_table("db.t", Schema(NestedField(1, "a", a)))
    nested = pa.struct([("b", pa.int64())])
    for columns in ({"a.b": pa.int8()}, {"c": nested, "c.b": pa.int8()}):
        (difference,) = _differences(table, "evolve", **columns)
        assert "can't be added" in difference


def test_a_new_column_named_like_a_partition_field_is_refused(catalog: SqlCatalog) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))
    schema = Schema(NestedField(1, "id", LongType()))
    table = catalog.create_table("db.t", schema, partition_spec=spec)
    (difference,) = _differences(table, "evolve", id=pa.int64(), id_bucket=pa.int8())
    assert "id_bucket" in difference


def test_columns_with_dots_and_spaces_are_matched_by_their_names(catalog: SqlCatalog) -> None:
    table = catalog.create_table(
        "db.t", Schema(NestedField(1, "a.b", IntegerType()), NestedField(2, "c d", LongType()))
    )
    plan = _plan(table, "evolve", **{"a.b": pa.int64(), "c d": pa.int8(), "e.f": pa.int8()})
    assert plan.changes == ("widen column 'a.b' from int to long", "add column 'e.f' int")
    assert plan.schema.find_field("a.b").field_type == LongType()


def test_what_is_no_mode_is_refused(table: Table) -> None:
    mode: Any = "merge"
    with pytest.raises(InvalidArgumentError, match="'freeze', 'evolve' or 'discard'"):
        _plan(table, mode, id=pa.int64())
