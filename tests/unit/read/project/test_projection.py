"""Files of any schema become the table's columns: matched by id, never by name or position."""

from __future__ import annotations

import datetime
import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import icestream as ice
from icestream.read.project.projection import FieldIds, compile_projection, leaf_columns
from tests.support.foreign_files import add_foreign_file
from tests.support.scans import as_text, rows_of, table_of
from tests.support.tables import (
    EVOLUTIONS,
    PARTITIONINGS,
    add_orc_file,
    add_parquet_file,
    all_types_rows,
    all_types_schema,
    commit_files,
    create_v3_table,
    set_name_mapping,
    v3_schema_updates,
    v3_table_with_defaults,
    write_parquet_file,
)

_NOT_IN_ORC = ["time", "uuid", "fixed"]
_ADD = {"parquet": add_parquet_file, "orc": add_orc_file}

formats = pytest.mark.parametrize("file_format", ["parquet", "orc"])


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


# Evolution


@formats
@pytest.mark.parametrize("evolution", EVOLUTIONS)
def test_an_evolved_table_reads_as_its_current_schema_says(
    catalog: Catalog, evolution: str, file_format: str
) -> None:
    evolved = EVOLUTIONS[evolution](catalog, file_format)
    assert _sorted(rows_of(ice.scan(evolved.table))) == evolved.expected


@formats
@pytest.mark.parametrize("evolution", EVOLUTIONS)
def test_each_column_of_an_evolved_table_can_be_read_alone(
    catalog: Catalog, evolution: str, file_format: str
) -> None:
    evolved = EVOLUTIONS[evolution](catalog, file_format)
    for field in evolved.table.schema().fields:
        rows = _sorted(rows_of(ice.scan(evolved.table, columns=["id", field.name])))
        names = [f.name for f in evolved.table.schema().fields if f.name in ("id", field.name)]
        assert rows == [{name: row[name] for name in names} for row in evolved.expected]


@formats
@pytest.mark.parametrize(
    ("column", "pick"),
    [
        ("info.size", lambda row: {"info": _only(row["info"], "size")}),
        ("info.title", lambda row: {"info": _only(row["info"], "title")}),
        (
            "items.element.size",
            lambda row: {"items": [_only(item, "size") for item in row["items"]]},
        ),
        (
            "by_key.value.title",
            lambda row: {"by_key": [(k, _only(value, "title")) for k, value in row["by_key"]]},
        ),
    ],
)
def test_a_nested_field_can_be_read_alone_before_and_after_it_was_added_or_renamed(
    catalog: Catalog, file_format: str, column: str, pick: Callable[[dict[str, Any]], Any]
) -> None:
    evolved = EVOLUTIONS["nested_changes"](catalog, file_format)
    rows = rows_of(ice.scan(evolved.table, columns=["id", column]))
    assert _sorted(rows) == [{"id": row["id"], **pick(row)} for row in evolved.expected]


def _only(struct: dict[str, Any] | None, name: str) -> dict[str, Any] | None:
    return None if struct is None else {name: struct[name]}


@formats
def test_nested_fields_can_change_places(catalog: Catalog, file_format: str) -> None:
    pair = StructType(NestedField(3, "a", IntegerType()), NestedField(4, "b", StringType()))
    table = catalog.create_table(
        "db.moved", Schema(NestedField(1, "id", LongType()), NestedField(2, "pair", pair))
    )
    add = _ADD[file_format]
    add(table, _arrow(table, [{"id": 0, "pair": {"a": 1, "b": "x"}}, {"id": 1, "pair": None}]))
    with table.update_schema() as update:
        update.move_first(("pair", "b"))
    add(table, _arrow(table, [{"id": 2, "pair": {"b": "y", "a": 2}}]))
    rows = _sorted(rows_of(ice.scan(table)))
    assert [list(row["pair"]) for row in rows if row["pair"]] == [["b", "a"], ["b", "a"]]
    assert rows == [
        {"id": 0, "pair": {"b": "x", "a": 1}},
        {"id": 1, "pair": None},
        {"id": 2, "pair": {"b": "y", "a": 2}},
    ]


@formats
def test_nested_fields_that_swapped_names_and_places_are_told_apart_by_id(
    catalog: Catalog, file_format: str
) -> None:
    pair = StructType(NestedField(3, "a", LongType()), NestedField(4, "b", LongType()))
    table = catalog.create_table(
        "db.swapped", Schema(NestedField(1, "id", LongType()), NestedField(2, "pair", pair))
    )
    add = _ADD[file_format]
    add(table, _arrow(table, [{"id": 0, "pair": {"a": 1, "b": 2}}]))
    for old, new in [("a", "hold"), ("b", "a"), ("hold", "b")]:
        with table.update_schema() as update:
            update.rename_column(("pair", old), new)
    with table.update_schema() as update:
        update.move_first(("pair", "a"))
    # The file's struct has the table's names, types and order, and yet other fields.
    assert rows_of(ice.scan(table)) == [{"id": 0, "pair": {"a": 2, "b": 1}}]


@formats
def test_a_list_of_which_only_new_fields_are_read_keeps_its_lengths_and_nulls(
    catalog: Catalog, file_format: str
) -> None:
    item = StructType(NestedField(4, "old", IntegerType()))
    table = catalog.create_table(
        "db.lengths",
        Schema(
            NestedField(1, "id", LongType()),
            NestedField(2, "items", ListType(3, item, element_required=False)),
        ),
    )
    written = [[{"old": 1}, None, {"old": None}], None, [], [None]]
    rows = [{"id": i, "items": items} for i, items in enumerate(written)]
    _ADD[file_format](table, _arrow(table, rows))
    with table.update_schema() as update:
        update.add_column(("items", "element", "new"), StringType())
    got = rows_of(ice.scan(table, columns=["items.element.new"]))
    assert [row["items"] for row in got] == [
        [{"new": None}, None, {"new": None}],
        None,
        [],
        [None],
    ]


def _arrow(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(
        rows, schema=schema_to_pyarrow(table.schema(), include_field_ids=False)
    )


@pytest.mark.parametrize("partitioning", PARTITIONINGS)
def test_a_partitioned_table_reads_as_it_was_written(catalog: Catalog, partitioning: str) -> None:
    partitioned = PARTITIONINGS[partitioning](catalog)
    assert _sorted(rows_of(ice.scan(partitioned.table))) == partitioned.expected


# Types


@pytest.mark.parametrize("row_group_rows", [None, 7, 1])
def test_every_type_comes_back_from_parquet_as_it_was_written(
    catalog: Catalog, row_group_rows: int | None
) -> None:
    rows = all_types_rows(150, seed=2)
    table = catalog.create_table("db.types", all_types_schema())
    add_parquet_file(table, rows, row_group_rows=row_group_rows)
    assert as_text(rows_of(ice.scan(table))) == as_text(rows.to_pylist())


@pytest.mark.parametrize("stripe_rows", [None, 7, 1])
def test_every_type_that_orc_has_comes_back_from_it_as_it_was_written(
    catalog: Catalog, stripe_rows: int | None
) -> None:
    rows = all_types_rows(150, seed=3).drop_columns(_NOT_IN_ORC)
    table = catalog.create_table("db.types", all_types_schema())
    add_orc_file(table, rows, stripe_rows=stripe_rows)
    scan = ice.scan(table, columns=rows.column_names)
    assert as_text(rows_of(scan)) == as_text(rows.to_pylist())


@pytest.mark.parametrize("batch_size", [1, 2, 3, 64])
def test_batches_cut_anywhere_keep_nested_values(catalog: Catalog, batch_size: int) -> None:
    rows = all_types_rows(40, seed=4)
    table = catalog.create_table("db.types", all_types_schema())
    add_parquet_file(table, rows, row_group_rows=11)
    scan = ice.scan(table, batch_size=batch_size, where="id >= 3")
    assert as_text(rows_of(scan)) == as_text(rows.to_pylist()[3:])


def test_the_schema_is_one_whatever_the_files_spell_their_types_like(catalog: Catalog) -> None:
    item = StructType(NestedField(6, "s", StringType()))
    table = catalog.create_table(
        "db.spellings",
        Schema(
            NestedField(1, "s", StringType()),
            NestedField(2, "b", BinaryType()),
            NestedField(3, "l", ListType(4, StringType(), element_required=False)),
            NestedField(5, "t", item),
            NestedField(7, "m", MapType(8, StringType(), 9, StringType(), value_required=False)),
        ),
    )
    set_name_mapping(table)  # Files written with `cast=False` have no ids on nested fields.
    spellings: list[tuple[pa.DataType, pa.DataType, Callable[[pa.DataType], pa.DataType]]] = [
        (pa.string(), pa.binary(), pa.list_),
        (pa.large_string(), pa.large_binary(), pa.large_list),
        (pa.string_view(), pa.binary_view(), pa.list_),
        (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.binary()), pa.list_),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.binary(), pa.large_list),
        (pa.string(), pa.binary(), lambda kind: pa.list_(kind, 2)),
    ]
    for text, blob, make_list in spellings:
        columns = {
            "s": pa.array(["a", None, "ü", "a"], pa.string()).cast(text),
            "b": pa.array([b"a", None, b"\xff", b"a"], pa.binary()).cast(blob),
            "l": pa.array([["x", None], None, ["y", "z"], ["x", "y"]], pa.list_(pa.string())),
            "t": pa.array([{"s": "p"}, None, {"s": None}, {"s": "p"}]),
            "m": pa.array([[("k", "v")], None, [], [("k", None)]], pa.map_("string", "string")),
        }
        plain = text if not pa.types.is_dictionary(text) else pa.string()
        columns["l"] = columns["l"].cast(make_list(plain))
        columns["t"] = columns["t"].cast(pa.struct({"s": plain}))
        columns["m"] = columns["m"].cast(pa.map_(plain, plain))
        add_parquet_file(table, pa.table(columns), cast=False, field_ids=False)
    scan = ice.scan(table)
    assert scan.schema == schema_to_pyarrow(table.schema(), include_field_ids=False)
    got = table_of(scan)
    expected = {
        "s": ["a", None, "ü", "a"],
        "b": [b"a", None, b"\xff", b"a"],
        "l": [["x", None], None, ["y", "z"], ["x", "y"]],
        "t": [{"s": "p"}, None, {"s": None}, {"s": "p"}],
        "m": [[("k", "v")], None, [], [("k", None)]],
    }
    for name, values in expected.items():
        assert got[name].to_pylist() == values * len(spellings)


def test_an_empty_table_has_a_schema_and_no_batches(catalog: Catalog) -> None:
    table = catalog.create_table("db.empty", all_types_schema())
    scan = ice.scan(table)
    assert scan.schema.names == [field.name for field in table.schema().fields]
    assert list(scan) == []


def test_docs_of_columns_are_kept_in_the_schema(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType(), doc="the key"))
    table = catalog.create_table("db.documented", schema)
    add_parquet_file(table, pa.table({"id": [1]}))
    (batch,) = ice.scan(table)
    assert batch.schema.field("id").metadata == {b"doc": b"the key"}


# Sliced arrays, which decoders hand out


_OLD = Schema(
    NestedField(1, "n", IntegerType()),
    NestedField(
        2,
        "t",
        StructType(NestedField(3, "a", IntegerType()), NestedField(4, "b", StringType())),
    ),
    NestedField(
        5,
        "l",
        ListType(6, StructType(NestedField(7, "x", IntegerType())), element_required=False),
    ),
    NestedField(
        8,
        "m",
        MapType(9, StringType(), 10, StructType(NestedField(11, "y", FloatType())), False),
    ),
    NestedField(12, "ll", ListType(13, ListType(14, IntegerType(), False), False)),
)
_NEW = Schema(
    NestedField(
        8,
        "m2",
        MapType(
            9,
            StringType(),
            10,
            StructType(NestedField(20, "z", LongType()), NestedField(11, "y", DoubleType())),
            False,
        ),
    ),
    NestedField(
        2,
        "t",
        StructType(NestedField(4, "bb", StringType()), NestedField(3, "a", LongType())),
    ),
    NestedField(1, "n", LongType()),
    NestedField(
        5,
        "l",
        ListType(
            6,
            StructType(NestedField(21, "w", StringType()), NestedField(7, "x", LongType())),
            element_required=False,
        ),
    ),
    NestedField(12, "ll", ListType(13, ListType(14, LongType(), False), False)),
    NestedField(22, "more", StringType()),
)
_OLD_ROWS = [
    {
        "n": 1,
        "t": {"a": 1, "b": "x"},
        "l": [{"x": 1}, None, {"x": None}],
        "m": [("k", {"y": 0.5}), ("none", None)],
        "ll": [[1, None], None],
    },
    {"n": None, "t": None, "l": None, "m": None, "ll": None},
    {"n": 3, "t": {"a": None, "b": None}, "l": [], "m": [], "ll": []},
    {"n": 4, "t": {"a": 4, "b": "y"}, "l": [None], "m": [("k", {"y": None})], "ll": [[]]},
    {"n": None, "t": None, "l": None, "m": None, "ll": None},
    {"n": 6, "t": {"a": 6, "b": "z"}, "l": [{"x": 6}], "m": [("k", {"y": 6.0})], "ll": [[6]]},
]


def _as_new(row: dict[str, Any]) -> dict[str, Any]:
    def struct(value: dict[str, Any] | None, **names: str) -> dict[str, Any] | None:
        return None if value is None else {new: value.get(old) for new, old in names.items()}

    return {
        "m2": row["m"] and [(key, struct(v, z="-", y="y")) for key, v in row["m"]],
        "t": struct(row["t"], bb="b", a="a"),
        "n": row["n"],
        "l": row["l"] and [struct(item, w="-", x="x") for item in row["l"]],
        "ll": row["ll"],
        "more": None,
    }


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("start", range(len(_OLD_ROWS)))
@pytest.mark.parametrize("length", [1, 2, 10])
def test_a_slice_of_a_batch_is_projected_like_its_rows(
    start: int, length: int, large: bool
) -> None:
    schema = schema_to_pyarrow(_OLD, include_field_ids=True)
    batch = pa.RecordBatch.from_pylist(_OLD_ROWS, schema=schema)
    if not large:
        batch = pa.RecordBatch.from_arrays(
            [_with_small_lists(column) for column in batch.columns],
            schema=pa.schema([_with_small_list_type(field) for field in schema]),
        )
    projection = compile_projection(
        batch.schema, _NEW, FieldIds(batch.schema, None), constants={}, downcast_ns=False
    )
    got = projection(batch.slice(start, length))
    got.validate(full=True)
    assert got.schema == schema_to_pyarrow(_NEW, include_field_ids=False)
    assert got.to_pylist() == [_as_new(row) for row in _OLD_ROWS[start : start + length]]


def _with_small_list_type(field: pa.Field) -> pa.Field:
    if not isinstance(field.type, pa.LargeListType):
        return field
    return field.with_type(pa.list_(_with_small_list_type(field.type.value_field)))


def _with_small_lists(array: pa.Array) -> pa.Array:
    return array.cast(_with_small_list_type(pa.field("", array.type)).type)


def test_only_wanted_leaves_are_decoded() -> None:
    schema = schema_to_pyarrow(_OLD, include_field_ids=True)
    ids = FieldIds(schema, None)
    # Leaves: n, t.a, t.b, l.x, m.key, m.y, ll
    assert leaf_columns(schema, _OLD, ids) == [0, 1, 2, 3, 4, 5, 6]
    assert leaf_columns(schema, _OLD.select("t.b", "m"), ids) == [2, 4, 5]
    assert leaf_columns(schema, _OLD.select("ll"), ids) == [6]
    only_new = Schema(NestedField(2, "t", StructType(NestedField(30, "new", LongType()))))
    assert leaf_columns(schema, only_new, ids) == [1]


@pytest.mark.parametrize("make", [pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
def test_a_column_after_a_list_of_structs_is_found(make: Callable[..., pa.DataType]) -> None:
    def field(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})

    struct = pa.struct([field("a", pa.int64(), 10), field("b", pa.int64(), 11)])
    schema = pa.schema([field("before", make(struct), 1), field("n", pa.int64(), 2)])
    wanted = Schema(NestedField(2, "n", LongType()))
    assert leaf_columns(schema, wanted, FieldIds(schema, None)) == [2]


# Names


@formats
@pytest.mark.parametrize("row_limit", [None, 2])
def test_odd_column_names_are_read_filtered_and_selected(
    catalog: Catalog, file_format: str, row_limit: int | None
) -> None:
    names = ["a.b", ".x", "a[0]", "with space", "ü-☃", "$", "UPPER", 'quote"s', "a/b", "%20", "x'y"]
    struct = StructType(NestedField(101, "in.ner", LongType()), NestedField(102, "$", LongType()))
    schema = Schema(
        NestedField(1, "id", LongType()),
        *(NestedField(i + 2, name, LongType()) for i, name in enumerate(names)),
        NestedField(100, "t", struct),
    )
    table = catalog.create_table("db.odd", schema)
    rows = [
        {"id": i, **{name: i * 100 + k for k, name in enumerate(names)}, "t": {"in.ner": i, "$": i}}
        for i in range(4)
    ]
    _ADD[file_format](table, _arrow(table, rows))
    assert rows_of(ice.scan(table, limit=row_limit)) == rows[:row_limit]
    for name in names:
        got = rows_of(ice.scan(table, columns=[name], limit=row_limit))
        assert got == [{name: row[name]} for row in rows[:row_limit]]


@formats
def test_a_flat_column_named_like_a_nested_path_is_told_from_it(
    catalog: Catalog, file_format: str
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "t", StructType(NestedField(3, "b", StringType()))),
        NestedField(4, "t_b", StringType()),
    )
    table = catalog.create_table("db.alike", schema)
    rows = [{"id": i, "t": {"b": "nested"}, "t_b": "flat"} for i in range(50)]
    file = _ADD[file_format](table, _arrow(table, rows))
    if file_format == "parquet":
        # The file's own names, of which the flat one is also the path of the nested one.
        fields = list(schema_to_pyarrow(table.schema(), include_field_ids=True))
        fields[2] = fields[2].with_name("t.b")
        contents = pa.Table.from_arrays(_arrow(table, rows).columns, schema=pa.schema(fields))
        pq.write_table(contents, file.file_path.removeprefix("file://"))
    assert rows_of(ice.scan(table)) == rows


def test_names_are_matched_without_case_when_asked(catalog: Catalog) -> None:
    evolved = EVOLUTIONS["nested_changes"](catalog)
    scan = ice.scan(
        evolved.table,
        columns=["ID", "Info.TITLE"],
        where="INFO.Title == 'n'",
        case_sensitive=False,
    )
    assert scan.schema.names == ["id", "info"]
    assert rows_of(scan) == [{"id": 0, "info": {"title": "n"}}]


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
@pytest.mark.parametrize("where", [None, "c > 10", "a.y != 'none'"])
def test_columns_come_in_the_order_of_their_names(
    catalog: Catalog, file_format: str, where: str | None
) -> None:
    kind = StructType(NestedField(4, "x", LongType()), NestedField(5, "y", StringType()))
    schema = Schema(
        NestedField(1, "a", kind),
        NestedField(2, "b", StringType()),
        NestedField(3, "c", LongType()),
    )
    table = catalog.create_table("db.ordered", schema)
    rows = [{"a": {"x": n, "y": f"y{n}"}, "b": f"b{n}", "c": 100 + n} for n in range(5)]
    add = add_orc_file if file_format == "orc" else add_parquet_file
    add(table, pa.Table.from_pylist(rows, schema_to_pyarrow(schema, include_field_ids=False)))

    def check(columns: list[str], expected: list[list[Any]]) -> None:
        scan = ice.scan(table, columns=columns, where=where)
        again = ice.read_splits(pickle.loads(pickle.dumps(scan.splits())))
        for read in (table_of(scan), table_of(again)):
            assert [list(row.values()) for row in read.to_pylist()] == expected
            assert read.column_names == list(dict.fromkeys(name[0] for name in columns))

    check(["c", "a", "b"], [[row["c"], row["a"], row["b"]] for row in rows])
    check(["b", "a.y"], [[row["b"], {"y": row["a"]["y"]}] for row in rows])
    # A struct is where its first field is named, and its fields keep the table's order.
    check(["a.y", "c", "a.x"], [[row["a"], row["c"]] for row in rows])
    check(["c", "b", "c"], [[row["c"], row["b"]] for row in rows])  # a repeated name counts once


def test_columns_of_a_data_scan_come_in_the_tables_order(catalog: Catalog) -> None:
    evolved = EVOLUTIONS["reordered_columns"](catalog)
    selected = evolved.table.scan(selected_fields=("id", "b"))
    assert ice.scan(selected).schema.names == ["b", "id"]
    assert ice.scan(evolved.table, columns=["id", "b"]).schema.names == ["id", "b"]


# Name mappings, for files without ids


@formats
def test_files_without_ids_are_read_by_the_name_mapping(catalog: Catalog, file_format: str) -> None:
    rows = all_types_rows(60, seed=5)
    if file_format == "orc":
        rows = rows.drop_columns(_NOT_IN_ORC)
    table = catalog.create_table("db.mapped", all_types_schema())
    set_name_mapping(table)
    _ADD[file_format](table, rows, field_ids=False)
    scan = ice.scan(table, columns=rows.column_names)
    assert as_text(rows_of(scan)) == as_text(rows.to_pylist())


@formats
def test_a_name_mapping_survives_renames_of_columns_and_nested_fields(
    catalog: Catalog, file_format: str
) -> None:
    point = StructType(NestedField(4, "x", LongType()), NestedField(5, "y", LongType()))
    table = catalog.create_table(
        "db.renamed",
        Schema(
            NestedField(1, "id", LongType()),
            NestedField(2, "points", ListType(3, point, element_required=False)),
            NestedField(6, "by", MapType(7, StringType(), 8, point_of(9), value_required=False)),
            NestedField(11, "at", point_of(12)),
        ),
    )
    set_name_mapping(table)
    rows = [
        {
            "id": 1,
            "points": [{"x": 1, "y": 2}],
            "by": [("k", {"x": 3, "y": 4})],
            "at": {"x": 5, "y": 6},
        }
    ]
    _ADD[file_format](table, _arrow(table, rows), field_ids=False)
    for old, new in [
        (("points", "element", "y"), "why"),
        (("by", "value", "x"), "ex"),
        (("at", "x"), "first"),
        ("at", "place"),
    ]:
        with table.update_schema() as update:
            update.rename_column(old, new)
    assert rows_of(ice.scan(table)) == [
        {
            "id": 1,
            "points": [{"x": 1, "why": 2}],
            "by": [("k", {"ex": 3, "y": 4})],
            "place": {"first": 5, "y": 6},
        }
    ]
    assert rows_of(ice.scan(table, columns=["place.y"])) == [{"place": {"y": 6}}]


def point_of(first_id: int) -> StructType:
    return StructType(
        NestedField(first_id, "x", LongType()), NestedField(first_id + 1, "y", LongType())
    )


def test_a_mapping_may_have_several_names_and_leave_columns_out(catalog: Catalog) -> None:
    table = catalog.create_table(
        "db.aliases", Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    )
    mapping = [{"field-id": 1, "names": ["id", "ID", "key"]}]
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": json.dumps(mapping)})
    named = Schema(NestedField(1, "key", LongType()), NestedField(2, "name", StringType()))
    rows = pa.table({"key": pa.array([7]), "name": ["not mapped"]})
    commit_files(table, [write_parquet_file(table, rows, field_ids=False, schema=named)])
    assert rows_of(ice.scan(table)) == [{"id": 7, "name": None}]


def test_a_file_without_ids_needs_a_name_mapping(catalog: Catalog) -> None:
    table = catalog.create_table("db.unmapped", Schema(NestedField(1, "id", LongType())))
    file = add_parquet_file(table, pa.table({"id": [1]}), field_ids=False)
    with pytest.raises(ice.ProjectionError, match=r"schema\.name-mapping\.default") as caught:
        list(ice.scan(table))
    assert caught.value.path == file.file_path
    assert caught.value.split == ice.scan(table).splits()[0].id


# Columns that a file does not hold


_VALUES: list[tuple[PrimitiveType, Any]] = [
    (BooleanType(), True),
    (IntegerType(), -7),
    (LongType(), 2**40),
    (FloatType(), 0.5),
    (DoubleType(), -2.25),
    (DecimalType(9, 2), Decimal("12.34")),
    (DecimalType(38, 10), Decimal("1234567890123456789.0123456789")),
    (DateType(), datetime.date(1969, 12, 31)),
    (TimeType(), datetime.time(23, 59, 59, 999999)),
    (TimestampType(), datetime.datetime(1969, 7, 20, 20, 17, 40, 1)),
    (TimestamptzType(), datetime.datetime(2024, 2, 29, 1, tzinfo=datetime.UTC)),
    (StringType(), "a/b=ü"),
    (UUIDType(), UUID(int=2**127 + 5)),
    (FixedType(3), b"\x00\xff\x01"),
    (BinaryType(), b"\x00\xff"),
]
each_type = pytest.mark.parametrize(("kind", "value"), _VALUES, ids=lambda v: str(v))


@each_type
@pytest.mark.parametrize("is_null", [False, True])
def test_an_identity_partition_column_comes_from_the_metadata_where_the_file_lacks_it(
    catalog: Catalog, kind: PrimitiveType, value: Any, is_null: bool
) -> None:
    value = None if is_null else value
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", kind))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog.create_table("db.migrated", schema, partition_spec=spec)
    add_parquet_file(table, pa.table({"id": [0, 1, 2]}), partition={"p": value})
    assert rows_of(ice.scan(table)) == [{"id": i, "p": value} for i in range(3)]
    where = "p is null" if is_null else "p is not null"
    assert len(rows_of(ice.scan(table, where=where, columns=["id"]))) == 3
    other = "p is not null" if is_null else "p is null"
    assert rows_of(ice.scan(table, where=other)) == []


@formats
def test_a_column_in_the_file_wins_over_the_partition_value(
    catalog: Catalog, file_format: str
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "p", LongType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog.create_table("db.both", schema, partition_spec=spec)
    rows = pa.table({"id": [0, 1], "p": [5, 5]})
    _ADD[file_format](table, rows, partition={"p": 6})
    assert [row["p"] for row in rows_of(ice.scan(table))] == [5, 5]


def test_only_an_identity_partition_stands_in_for_a_column(catalog: Catalog) -> None:
    partitioned = PARTITIONINGS["bucket"](catalog)
    assert all(split.constants == () for split in ice.scan(partitioned.table).splits())


def test_initial_defaults_fill_old_files_and_leave_later_nulls_alone(tmp_path: Path) -> None:
    evolved = v3_table_with_defaults(tmp_path)
    table = table_of(ice.scan(evolved.table))
    for name in ("at_ns", "at_ns_tz"):
        position = table.schema.get_field_index(name)
        table = table.set_column(position, name, table[name].cast(pa.int64()))
    assert _sorted(table.to_pylist()) == evolved.expected
    evolved.table.catalog.close()


@each_type
def test_a_default_of_every_type_is_read(catalog: Catalog, kind: PrimitiveType, value: Any) -> None:
    table = create_v3_table(catalog, "db.defaults", Schema(NestedField(1, "id", LongType())))
    add_parquet_file(table, pa.table({"id": [0, 1]}))
    with v3_schema_updates(table), table.update_schema() as update:
        update.add_column("p", kind, default_value=value)
    loaded = catalog.load_table("db.defaults")  # as JSON brings the default back
    for fresh in (table, loaded):
        assert rows_of(ice.scan(fresh)) == [{"id": i, "p": value} for i in range(2)]
        assert len(rows_of(ice.scan(fresh, where="p is not null"))) == 2


@each_type
def test_a_default_of_every_type_is_read_inside_a_struct(
    catalog: Catalog, kind: PrimitiveType, value: Any
) -> None:
    struct = StructType(NestedField(3, "a", LongType()))
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "t", struct))
    table = create_v3_table(catalog, "db.nested_default", schema)
    add_parquet_file(table, pa.table({"id": [0, 1], "t": [{"a": 5}, None]}))
    with v3_schema_updates(table), table.update_schema() as update:
        update.add_column(("t", "p"), kind, default_value=value)
    assert [row["t"] for row in rows_of(ice.scan(table))] == [{"a": 5, "p": value}, None]


def test_a_null_partition_value_wins_over_a_default(catalog: Catalog) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "p", LongType(), initial_default=42, write_default=42),
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = create_v3_table(catalog, "db.null_part", schema, partition_spec=spec)
    add_parquet_file(table, pa.table({"id": [0]}), partition={"p": None})
    add_parquet_file(table, pa.table({"id": [1]}), partition={"p": 7})
    assert _sorted(rows_of(ice.scan(table))) == [{"id": 0, "p": None}, {"id": 1, "p": 7}]


@formats
def test_a_required_column_without_default_that_a_file_lacks_is_refused(
    catalog: Catalog, file_format: str
) -> None:
    table = catalog.create_table(
        "db.required",
        Schema(NestedField(1, "id", LongType()), NestedField(2, "must", LongType(), required=True)),
    )
    file = _ADD[file_format](table, pa.table({"id": [1]}))
    with pytest.raises(ice.ProjectionError, match="'must'") as caught:
        list(ice.scan(table))
    assert caught.value.path == file.file_path
    assert rows_of(ice.scan(table, columns=["id"])) == [{"id": 1}]


@formats
def test_rows_are_counted_where_the_file_holds_no_wanted_column(
    catalog: Catalog, file_format: str
) -> None:
    table = catalog.create_table("db.counted", Schema(NestedField(1, "id", LongType())))
    _ADD[file_format](table, pa.table({"id": list(range(1000))}))
    with table.update_schema() as update:
        update.add_column("new", StringType())
    got = table_of(ice.scan(table, columns=["new"], batch_size=64))
    assert got["new"].null_count == got.num_rows == 1000
    assert ice.scan(table, columns=["new"], where="new is not null").splits() is not None
    assert rows_of(ice.scan(table, columns=["new"], where="new is not null")) == []
    assert len(rows_of(ice.scan(table, columns=["new"], limit=17))) == 17


@pytest.mark.parametrize(
    "kind",
    [
        StringType(),
        DecimalType(9, 2),
        TimestampType(),
        UUIDType(),
        StructType(NestedField(3, "a", LongType())),
        ListType(3, LongType(), element_required=False),
        MapType(3, StringType(), 4, LongType(), value_required=False),
    ],
    ids=str,
)
def test_a_column_that_a_writer_saw_only_nulls_of_is_null(catalog: Catalog, kind: Any) -> None:
    table = catalog.create_table(
        "db.untyped", Schema(NestedField(1, "id", LongType()), NestedField(2, "v", kind))
    )
    add_foreign_file(table, pa.table({"id": [0, 1], "v": pa.nulls(2)}))
    assert rows_of(ice.scan(table)) == [{"id": 0, "v": None}, {"id": 1, "v": None}]
    assert len(rows_of(ice.scan(table, where="v is null", columns=["id"]))) == 2


# What does not fit


@formats
@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (LongType(), pa.array(["7"])),
        (LongType(), pa.array([1.5])),
        (IntegerType(), pa.array([1], pa.int64())),
        (FloatType(), pa.array([1.5], pa.float64())),
        (StringType(), pa.array([1])),
        (BooleanType(), pa.array([1])),
        (DateType(), pa.array([1])),
        (DecimalType(9, 2), pa.array([Decimal("1.500")], pa.decimal128(9, 3))),
        (DecimalType(5, 2), pa.array([Decimal("1.50")], pa.decimal128(9, 2))),
        (TimestampType(), pa.array(["2024-01-01"])),
        (StructType(NestedField(3, "a", LongType())), pa.array([1])),
        (ListType(3, LongType(), False), pa.array([1])),
        (MapType(3, StringType(), 4, LongType(), False), pa.array([1])),
        (LongType(), pa.array([{"a": 1}])),
        (LongType(), pa.array([[1]])),
    ],
    ids=str,
)
def test_a_type_that_is_no_promotion_is_refused_with_the_path(
    catalog: Catalog, kind: Any, column: pa.Array, file_format: str
) -> None:
    table = catalog.create_table("db.misfit", Schema(NestedField(1, "value", kind)))
    file = add_foreign_file(table, pa.table({"value": column}), file_format=file_format)
    with pytest.raises(ice.ProjectionError, match="value") as caught:
        list(ice.scan(table))
    assert caught.value.path == file.file_path
    assert caught.value.split == ice.scan(table).splits()[0].id


@pytest.mark.parametrize(
    ("kind", "tz"),
    [(TimestampNanoType(), None), (TimestamptzNanoType(), "UTC")],
    ids=str,
)
def test_nanoseconds_keep_every_digit_in_a_version_3_table(
    catalog: Catalog, kind: Any, tz: str | None
) -> None:
    table = create_v3_table(catalog, "db.nanos", Schema(NestedField(1, "at", kind)))
    nanos = [1_700_000_000_123_456_789, None, -1, 0]
    add_parquet_file(table, pa.table({"at": pa.array(nanos, pa.timestamp("ns", tz))}))
    got = table_of(ice.scan(table))["at"]
    assert got.type == pa.timestamp("ns", tz)
    assert got.cast(pa.int64()).to_pylist() == nanos
