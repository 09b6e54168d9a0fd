"""The row filter: every predicate on every kind of value, beside a plain Python evaluation."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
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
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import icestream as ice
from icestream.read.filters.fitting import fit_filter
from icestream.read.project.row_filter import compile_filter
from tests.support.filters import matches
from tests.support.scans import ids_of, rows_of
from tests.support.tables import (
    EVOLUTIONS,
    PARTITIONINGS,
    EvolvedTable,
    PartitionedTable,
    add_orc_file,
    add_parquet_file,
    all_types_rows,
    all_types_schema,
    make_catalog,
)

_NAN = float("nan")


@pytest.fixture(scope="module")
def shared_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    catalog = make_catalog(tmp_path_factory.mktemp("rows"))
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def of_all_types(shared_catalog: Catalog) -> tuple[Table, pa.Table]:
    rows = all_types_rows(100, seed=8)
    table = shared_catalog.create_table("db.types", all_types_schema())
    add_parquet_file(table, rows, row_group_rows=13)
    return table, rows


_COMPARISONS = [
    EqualTo,
    NotEqualTo,
    LessThan,
    LessThanOrEqual,
    GreaterThan,
    GreaterThanOrEqual,
]
_COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "boolean": (BooleanType(), [False, True]),
    "int": (IntegerType(), [-(2**31), -1, 0, 5, 2**31 - 1]),
    "long": (LongType(), [-(2**63), -1, 0, 5, 2**63 - 1]),
    "float": (FloatType(), [float("-inf"), -0.0, 0.0, 0.5, _NAN]),
    "double": (DoubleType(), [float("-inf"), -0.0, 0.0, 0.1, float("inf"), _NAN]),
    "decimal": (DecimalType(9, 2), [Decimal("-1.00"), Decimal("0.00"), Decimal("9.99")]),
    "date": (DateType(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)]),
    "time": (TimeType(), [datetime.time(0), datetime.time(23, 59, 59, 999999)]),
    "timestamp": (
        TimestampType(),
        [datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), datetime.datetime(2024, 2, 29)],
    ),
    "timestamptz": (
        TimestamptzType(),
        [
            datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC),
            datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC),
        ],
    ),
    "string": (StringType(), ["", "a", "ab", "b", "ü", "\U0001f9ca"]),
    "uuid": (UUIDType(), [UUID(int=1), UUID(int=2**127)]),
    "fixed": (FixedType(2), [b"\x00\x01", b"\x80\x00", b"\xff\xff"]),
    "binary": (BinaryType(), [b"", b"\x00", b"\x80", b"\x80\x01"]),
}
_SCHEMA = Schema(
    *(NestedField(i + 1, name, kind) for i, (name, (kind, _)) in enumerate(_COLUMNS.items()))
)
_ROWS = [
    dict(zip(_COLUMNS, values, strict=True))
    for values in itertools.zip_longest(*(values for _, values in _COLUMNS.values()))
] + [dict.fromkeys(_COLUMNS)]


def _batch(schema: Schema, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    def array(field: pa.Field) -> pa.Array:
        values = [row[field.name] for row in rows]
        if field.type == pa.uuid():
            storage = [value and value.bytes for value in values]
            return field.type.wrap_array(pa.array(storage, pa.binary(16)))
        return pa.array(values, field.type)

    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.RecordBatch.from_arrays([array(field) for field in arrow], schema=arrow)


def _chosen(where: BooleanExpression, schema: Schema, rows: list[dict[str, Any]]) -> list[int]:
    where = fit_filter(where, schema)
    mask = compile_filter(where, schema, case_sensitive=True)(_batch(schema, rows))
    assert mask.type == pa.bool_()
    assert len(mask) == len(rows)
    return [row for row, wanted in enumerate(mask.to_pylist()) if wanted]


def _expected(where: BooleanExpression, rows: list[dict[str, Any]]) -> list[int]:
    return [number for number, row in enumerate(rows) if matches(where, row)]


@pytest.mark.parametrize("name", _COLUMNS)
@pytest.mark.parametrize("predicate", _COMPARISONS)
def test_comparisons_follow_the_order_of_values(
    name: str, predicate: type[BooleanExpression]
) -> None:
    _, values = _COLUMNS[name]
    for literal in (value for value in values if value == value):
        where = predicate(name, literal)
        assert _chosen(where, _SCHEMA, _ROWS) == _expected(where, _ROWS), literal
        assert _chosen(Not(where), _SCHEMA, _ROWS) == _expected(Not(where), _ROWS), literal


@pytest.mark.parametrize("name", _COLUMNS)
def test_sets_take_values_and_not_in_keeps_nulls(name: str) -> None:
    _, values = _COLUMNS[name]
    literals = [value for value in values if value == value][:2]
    inside = _chosen(In(name, literals), _SCHEMA, _ROWS)
    assert inside == _expected(In(name, literals), _ROWS)
    outside = _chosen(NotIn(name, literals), _SCHEMA, _ROWS)
    assert outside == _expected(NotIn(name, literals), _ROWS)
    assert sorted(inside + outside) == list(range(len(_ROWS)))
    assert _chosen(Not(In(name, literals)), _SCHEMA, _ROWS) == outside
    assert _chosen(Not(NotIn(name, literals)), _SCHEMA, _ROWS) == inside


@pytest.mark.parametrize("name", _COLUMNS)
def test_a_set_of_one_is_a_comparison_and_drops_nulls(name: str) -> None:
    _, values = _COLUMNS[name]
    assert _chosen(NotIn(name, values[:1]), _SCHEMA, _ROWS) == _expected(
        NotEqualTo(name, values[0]), _ROWS
    )


@pytest.mark.parametrize("name", _COLUMNS)
@pytest.mark.parametrize("predicate", [IsNull, NotNull])
def test_nulls_are_found_and_nan_is_none(name: str, predicate: type[BooleanExpression]) -> None:
    assert _chosen(predicate(name), _SCHEMA, _ROWS) == _expected(predicate(name), _ROWS)


@pytest.mark.parametrize("name", ["float", "double"])
@pytest.mark.parametrize(
    "where", [IsNaN, NotNaN, lambda n: Not(IsNaN(n)), lambda n: Not(NotNaN(n))]
)
def test_nan_is_found_and_null_is_neither_nan_nor_not(name: str, where: Any) -> None:
    assert _chosen(where(name), _SCHEMA, _ROWS) == _expected(where(name), _ROWS)


@pytest.mark.parametrize("name", ["int", "string"])
def test_what_is_no_float_is_never_nan(name: str) -> None:
    assert _chosen(IsNaN(name), _SCHEMA, _ROWS) == []
    assert _chosen(NotNaN(name), _SCHEMA, _ROWS) == list(range(len(_ROWS)))


@pytest.mark.parametrize("prefix", ["", "a", "ab", "abc", "ü", "\U0001f9ca"])
@pytest.mark.parametrize("predicate", [StartsWith, NotStartsWith])
def test_prefixes_are_matched_and_null_has_none(
    prefix: str, predicate: type[BooleanExpression]
) -> None:
    where = predicate("string", prefix)
    assert _chosen(where, _SCHEMA, _ROWS) == _expected(where, _ROWS)
    assert _chosen(Not(where), _SCHEMA, _ROWS) == _expected(Not(where), _ROWS)


def test_unknown_is_neither_true_nor_false_in_and_or_not() -> None:
    schema = Schema(NestedField(1, "a", BooleanType()), NestedField(2, "b", BooleanType()))
    rows = [{"a": a, "b": b} for a in (True, False, None) for b in (True, False, None)]
    a, b = EqualTo("a", True), EqualTo("b", True)
    for where in (And(a, b), Or(a, b)):
        assert _chosen(where, schema, rows) == _expected(where, rows)
        assert _chosen(Not(where), schema, rows) == _expected(Not(where), rows)
    assert len(_chosen(Or(a, b), schema, rows)) == 5
    assert len(_chosen(Not(And(a, b)), schema, rows)) == 5


@pytest.mark.parametrize(("where", "rows"), [(AlwaysTrue(), 3), (AlwaysFalse(), 0)])
def test_constant_filters_take_all_or_nothing(where: BooleanExpression, rows: int) -> None:
    assert len(_chosen(where, _SCHEMA, _ROWS[:3])) == rows


# Nested values


_NESTED = Schema(
    NestedField(1, "other", LongType()),
    NestedField(
        2,
        "t",
        StructType(
            NestedField(3, "a", LongType()),
            NestedField(4, "deep", StructType(NestedField(5, "b", StringType()))),
        ),
    ),
    NestedField(6, "l", ListType(7, LongType(), element_required=False)),
    NestedField(8, "m", MapType(9, StringType(), 10, LongType(), value_required=False)),
)
_NESTED_ROWS = [
    {"other": 0, "t": {"a": 1, "deep": {"b": "x"}}, "l": [1], "m": [("k", 1)]},
    {"other": 1, "t": {"a": None, "deep": {"b": None}}, "l": [], "m": []},
    {"other": 2, "t": {"a": 2, "deep": None}, "l": [None], "m": [("k", None)]},
    {"other": 3, "t": None, "l": None, "m": None},
]


@pytest.mark.parametrize(
    "where",
    [
        EqualTo("t.a", 1),
        NotEqualTo("t.a", 1),
        IsNull("t.a"),
        IsNull("t"),
        NotNull("t"),
        IsNull("t.deep"),
        IsNull("t.deep.b"),
        EqualTo("t.deep.b", "x"),
        StartsWith("t.deep.b", "x"),
        IsNull("l"),
        NotNull("l"),
        IsNull("m"),
        NotNull("m"),
        And(NotNull("l"), Or(EqualTo("t.a", 2), IsNull("t.a"))),
    ],
    ids=str,
)
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_nested_values_are_null_where_what_holds_them_is(
    where: BooleanExpression, offset: int
) -> None:
    batch = _batch(_NESTED, _NESTED_ROWS).slice(offset)
    mask = compile_filter(where, _NESTED, case_sensitive=True)(batch)
    rows = _NESTED_ROWS[offset:]
    assert [n for n, wanted in enumerate(mask.to_pylist()) if wanted] == _expected(where, rows)


@pytest.mark.parametrize("columns", [["id"], ["*"], ["id", "longs"], ["id", "person.born"]])
@pytest.mark.parametrize(
    "where",
    [
        IsNull("longs"),
        NotNull("tags"),
        IsNull("points"),
        IsNull("by_name"),
        IsNull("person"),
        IsNull("person.address"),
        IsNull("history.years"),
        IsNull("matrix"),
        StartsWith("person.address.zip", "text"),
        And(StartsWith("person.name", "text"), NotNull("person.address.zip")),
    ],
    ids=str,
)
def test_a_filter_may_use_nested_columns_that_are_not_selected(
    of_all_types: tuple[Table, pa.Table], where: BooleanExpression, columns: list[str]
) -> None:
    table, rows = of_all_types
    scan = ice.scan(table, where=where, columns=columns)
    expected = [row for row in rows.to_pylist() if matches(where, row)]
    assert 0 < len(expected) < rows.num_rows
    got = rows_of(scan)
    assert [row["id"] for row in got] == [row["id"] for row in expected]
    names = {name.split(".")[0] for name in columns}
    assert scan.schema.names == [n for n in rows.column_names if n in names or "*" in names]
    if "person.born" in columns:
        assert [row["person"] for row in got] == [
            row["person"] and {"born": row["person"]["born"]} for row in expected
        ]


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_a_struct_can_be_asked_for_nulls_where_there_are_none(
    catalog: Catalog, file_format: str
) -> None:
    struct = StructType(NestedField(3, "a", LongType()))
    table = catalog.create_table(
        "db.structs", Schema(NestedField(1, "id", LongType()), NestedField(2, "t", struct))
    )
    add = add_orc_file if file_format == "orc" else add_parquet_file
    add(table, pa.table({"id": [0, 1], "t": [{"a": 1}, {"a": None}]}))
    assert ids_of(ice.scan(table, where=NotNull("t"), columns=["id"])) == [0, 1]
    assert ids_of(ice.scan(table, where=IsNull("t"), columns=["id"])) == []
    either = Or(IsNull("t"), EqualTo("id", 1))
    assert ids_of(ice.scan(table, where=either, columns=["id"])) == [1]


@pytest.mark.parametrize(
    "where", [EqualTo("points.element.x", 1), EqualTo("tags.key", "a"), IsNull("longs.element")]
)
def test_a_filter_inside_lists_and_maps_is_refused(
    of_all_types: tuple[Table, pa.Table], where: BooleanExpression
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="does not fit"):
        ice.scan(of_all_types[0], where=where)


def test_a_filter_column_that_is_not_selected_is_not_delivered(
    of_all_types: tuple[Table, pa.Table],
) -> None:
    table, rows = of_all_types
    where = Or(GreaterThan("double", 0.0), IsNull("string"))
    got = rows_of(ice.scan(table, where=where, columns=["id"]))
    assert got == [{"id": row["id"]} for row in rows.to_pylist() if matches(where, row)]


# A column that a file lacks is null in all its rows, and is filtered like it


_ON_NAME = [
    EqualTo("name", "two"),
    NotEqualTo("name", "two"),
    Not(EqualTo("name", "two")),
    In("name", ["two", "four"]),
    NotIn("name", ["two", "four"]),
    NotIn("name", ["two"]),
    LessThan("name", "z"),
    Not(LessThan("name", "z")),
    StartsWith("name", "t"),
    NotStartsWith("name", "t"),
    IsNull("name"),
    NotNull("name"),
    Or(NotEqualTo("name", "two"), EqualTo("id", 0)),
    And(NotIn("name", ["two", "four"]), GreaterThan("id", 0)),
]


@pytest.fixture(scope="module", params=["parquet", "orc"])
def with_added_columns(
    shared_catalog: Catalog, request: pytest.FixtureRequest
) -> Iterator[EvolvedTable]:
    yield EVOLUTIONS["added_columns"](shared_catalog, request.param)
    shared_catalog.drop_table("evolved.added")


@pytest.mark.parametrize("where", _ON_NAME, ids=str)
def test_a_column_missing_from_a_file_is_filtered_like_nulls_in_it(
    with_added_columns: EvolvedTable, where: BooleanExpression
) -> None:
    evolved = with_added_columns
    expected = [row["id"] for row in evolved.expected if matches(where, row)]
    assert sorted(ids_of(ice.scan(evolved.table, where=where))) == expected
    assert sorted(ids_of(ice.scan(evolved.table, where=where, columns=["id"]))) == expected


@pytest.fixture(scope="module", params=PARTITIONINGS)
def partitioned(shared_catalog: Catalog, request: pytest.FixtureRequest) -> PartitionedTable:
    return PARTITIONINGS[request.param](shared_catalog)


@pytest.mark.parametrize(
    "where",
    [
        NotEqualTo("category", "red"),
        Not(EqualTo("category", "red")),
        NotIn("category", ["red", "green"]),
        NotIn("category", ["red"]),
        NotStartsWith("category", "r"),
        Not(StartsWith("category", "r")),
        Or(LessThan("category", "red"), GreaterThan("id", 50)),
        Not(And(LessThan("amount", 5), NotNull("category"))),
        Or(GreaterThanOrEqual("day", "2024-02-29"), EqualTo("id", 3)),
        Or(LessThan("at", "1970-01-01T00:00:00"), IsNull("amount")),
        NotEqualTo("amount", 4),
        NotEqualTo("day", "2024-02-28"),
        EqualTo("category", ""),
        IsNull("category"),
    ],
    ids=str,
)
def test_null_partition_values_are_filtered_like_nulls_in_rows(
    partitioned: PartitionedTable, where: BooleanExpression
) -> None:
    # The Python evaluation needs literals of the columns' own types.
    typed = _with_dates(where)
    expected = [row["id"] for row in partitioned.expected if matches(typed, row)]
    assert 0 < len(expected) < len(partitioned.expected)
    assert sorted(ids_of(ice.scan(partitioned.table, where=where))) == expected


def _with_dates(where: Any) -> BooleanExpression:
    if isinstance(where, (And, Or)):
        return type(where)(_with_dates(where.left), _with_dates(where.right))
    if isinstance(where, Not):
        return Not(_with_dates(where.child))
    name = where.term.name
    if name == "day" and hasattr(where, "literal"):
        return type(where)(name, datetime.date.fromisoformat(where.literal.value))
    if name == "at" and hasattr(where, "literal"):
        return type(where)(name, datetime.datetime.fromisoformat(where.literal.value))
    return where


# Literals


def test_a_float_is_found_by_the_literal_it_was_written_with(catalog: Catalog) -> None:
    table = catalog.create_table(
        "db.floats", Schema(NestedField(1, "id", LongType()), NestedField(2, "f", FloatType()))
    )
    for number, values in enumerate([[0.1, 0.1], [0.1, 0.5], [0.05, 0.1]]):
        ids = [2 * number, 2 * number + 1]
        rows = pa.table({"id": ids, "f": pa.array(values, pa.float32())})
        add_parquet_file(table, rows)
    for where, ids in [
        (EqualTo("f", 0.1), [0, 1, 2, 5]),
        (In("f", [0.1, 7.0]), [0, 1, 2, 5]),
        (LessThanOrEqual("f", 0.1), [0, 1, 2, 4, 5]),
        (LessThan("f", 0.1), [4]),
        (GreaterThan("f", 0.1), [3]),
        (NotEqualTo("f", 0.1), [3, 4]),
        (NotIn("f", [0.1, 7.0]), [3, 4]),
    ]:
        assert sorted(ids_of(ice.scan(table, where=where))) == ids, where


def test_a_literal_beyond_the_column_in_a_set_matches_nothing(catalog: Catalog) -> None:
    table = catalog.create_table(
        "db.ints", Schema(NestedField(1, "id", LongType()), NestedField(2, "i", IntegerType()))
    )
    values = pa.array([2**31 - 1, -(2**31), 5], pa.int32())
    add_parquet_file(table, pa.table({"id": [0, 1, 2], "i": values}))
    assert ids_of(ice.scan(table, where=In("i", [5, 2**40]))) == [2]
    assert ids_of(ice.scan(table, where=In("i", [5, -(2**40), 7]))) == [2]
    assert ids_of(ice.scan(table, where=NotIn("i", [5, 2**40]))) == [0, 1]
    assert ids_of(ice.scan(table, where=In("i", [2**40, 2**41]))) == []
    assert ids_of(ice.scan(table, where=NotIn("i", [2**40, -(2**40)]))) == [0, 1, 2]


def test_infinity_is_within_a_float_column_and_larger_doubles_are_not(catalog: Catalog) -> None:
    table = catalog.create_table(
        "db.floats", Schema(NestedField(1, "id", LongType()), NestedField(2, "f", FloatType()))
    )
    largest = 3.4028234663852886e38
    values = [float("inf"), largest, 0.0, float("-inf"), _NAN, None]
    rows = pa.table({"id": list(range(6)), "f": pa.array(values, pa.float32())})
    add_parquet_file(table, rows)
    inf = float("inf")
    for where, ids in [
        (EqualTo("f", inf), [0]),
        (EqualTo("f", -inf), [3]),
        (LessThan("f", inf), [1, 2, 3]),
        (GreaterThanOrEqual("f", -inf), [0, 1, 2, 3]),
        (In("f", [inf, 0.0]), [0, 2]),
        (In("f", [1e300, 0.0]), [2]),
        (In("f", [1e300, 1e301]), []),
        (EqualTo("f", 1e300), []),
    ]:
        assert ids_of(ice.scan(table, where=where)) == ids, where


def test_fitting_literals_leaves_other_filters_as_they_are() -> None:
    for where in [
        EqualTo("double", 0.1),
        In("int", [1, 2]),
        Or(NotNull("float"), And(AlwaysTrue(), StartsWith("string", "a"))),
        IsNaN("float"),
        AlwaysTrue(),
        AlwaysFalse(),
    ]:
        assert fit_filter(where, _SCHEMA) == where


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("id > 3 and string is not null", And(GreaterThan("id", 3), NotNull("string"))),
        ("not (id <= 3 or string is null)", And(GreaterThan("id", 3), NotNull("string"))),
        ("id in (1, 2, 99999)", In("id", [1, 2, 99999])),
        ("id not in (1, 2)", NotIn("id", [1, 2])),
        ("string like 'text%'", StartsWith("string", "text")),
        ("string not like 'text%'", NotStartsWith("string", "text")),
        ("double is nan or double is null", Or(IsNaN("double"), IsNull("double"))),
        ("boolean = true", EqualTo("boolean", True)),
        ("person.name = 'NULL'", EqualTo("person.name", "NULL")),
    ],
)
def test_a_filter_string_means_what_it_says(
    of_all_types: tuple[Table, pa.Table], text: str, where: BooleanExpression
) -> None:
    table, rows = of_all_types
    expected = [row["id"] for row in rows.to_pylist() if matches(where, row)]
    assert expected
    assert ids_of(ice.scan(table, where=text)) == expected


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_a_filter_sees_promoted_and_renamed_columns_as_the_table_has_them(
    catalog: Catalog, file_format: str
) -> None:
    promoted = EVOLUTIONS["promoted_types"](catalog, file_format).table
    assert ids_of(ice.scan(promoted, where=GreaterThan("count", 2**31 - 2), columns=["id"])) == [
        2,
        0,
    ]
    assert ids_of(ice.scan(promoted, where="ratio = 0.5")) == [0]
    assert ids_of(ice.scan(promoted, where=EqualTo("price", Decimal("9999999.99")))) == [0]
    swapped = EVOLUTIONS["swapped_names"](catalog, file_format).table
    assert ids_of(ice.scan(swapped, where="right = 'L0'", columns=["id"])) == [0]
    assert ids_of(ice.scan(swapped, where="left = 'L0'", columns=["id"])) == []


def test_orc_rows_are_filtered_like_parquet_rows(catalog: Catalog) -> None:
    rows = all_types_rows(200, seed=9).drop_columns(["time", "uuid", "fixed"])
    table = catalog.create_table("db.types", all_types_schema())
    add_orc_file(table, rows, stripe_rows=17)
    for where in [
        Or(GreaterThan("double", 0.0), IsNaN("float")),
        And(NotNull("person"), NotEqualTo("person.name", "NULL")),
        LessThan("timestamp", datetime.datetime(1970, 1, 1)),
        In("string", ["NULL", "ü", ""]),
        GreaterThanOrEqual("decimal38", Decimal("0E-10")),
    ]:
        expected = [row["id"] for row in rows.to_pylist() if matches(where, row)]
        assert ids_of(ice.scan(table, where=where, columns=["id"])) == expected
