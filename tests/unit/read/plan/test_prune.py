"""Row groups are skipped by their statistics, and never one that holds a wanted row."""

from __future__ import annotations

import datetime
import io
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import (
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
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.schema import Schema
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
    TimestamptzType,
    TimeType,
    UUIDType,
)

import icestream as ice
from icestream.read.plan.prune import row_group_test
from icestream.read.project.projection import FieldIds
from icestream.read.split import ReadContext
from tests.support.filters import matches
from tests.support.foreign_files import add_foreign_file
from tests.support.scans import ids_of, rows_of
from tests.support.tables import (
    EVOLUTIONS,
    PARTITIONINGS,
    add_parquet_file,
    create_v3_table,
    set_name_mapping,
    v3_schema_updates,
)

_IO: FileIO = PyArrowFileIO()
_COMPARISONS = [
    EqualTo,
    NotEqualTo,
    LessThan,
    LessThanOrEqual,
    GreaterThan,
    GreaterThanOrEqual,
]


def _context(schema: Schema, where: BooleanExpression) -> ReadContext:
    return ReadContext("db.t", 1, _IO, schema, schema, where, True, None, True)


def _kept(
    contents: pa.Table, schema: Schema, where: BooleanExpression, **options: Any
) -> list[int]:
    """The row groups that a Parquet file of these contents keeps."""
    sink = io.BytesIO()
    pq.write_table(contents, sink, **options)
    file = pq.ParquetFile(sink)
    ids = FieldIds(file.schema_arrow, None)
    test = row_group_test(_context(schema, where), file.schema_arrow, ids)
    groups = range(file.num_row_groups)
    return [group for group in groups if test(file.metadata.row_group(group))]


# Real skips, of every type


_SORTED: list[tuple[PrimitiveType, list[Any]]] = [
    (IntegerType(), list(range(-5, 5))),
    (LongType(), [n * 2**40 for n in range(-5, 5)]),
    (FloatType(), [n / 4 for n in range(-5, 5)]),
    (DoubleType(), [n / 10 for n in range(-5, 5)]),
    (DecimalType(9, 2), [Decimal(n * 25).scaleb(-2) for n in range(-5, 5)]),
    (
        DecimalType(38, 2),
        [Decimal(f"{n}{10**30}.25") for n in range(1, 10)] + [Decimal(f"{10**32}.00")],
    ),
    (DateType(), [datetime.date(1969, 12, 25) + datetime.timedelta(n) for n in range(10)]),
    (TimeType(), [datetime.time(n, 59, 59, n) for n in range(10)]),
    (
        TimestampType(),
        [datetime.datetime(1969, 12, 31, 19) + datetime.timedelta(hours=n) for n in range(10)],
    ),
    (
        TimestamptzType(),
        [
            datetime.datetime(1969, 12, 31, 19, tzinfo=datetime.UTC) + datetime.timedelta(hours=n)
            for n in range(10)
        ],
    ),
    (StringType(), ["", "a", "ab", "b", "ba", "c", "z", "ü", "☃", "\U0001f9ca"]),
    (BinaryType(), [bytes([n * 28]) for n in range(10)]),
    (FixedType(2), [bytes([n * 28, n]) for n in range(10)]),
    (UUIDType(), [UUID(int=n << 124) for n in range(10)]),
]


def _array(values: list[Any], kind: PrimitiveType) -> pa.Array:
    arrow = schema_to_pyarrow(kind)
    if arrow == pa.uuid():
        return arrow.wrap_array(pa.array([v and v.bytes for v in values], pa.binary(16)))
    return pa.array(values, arrow)


@pytest.mark.parametrize(("kind", "values"), _SORTED, ids=lambda v: str(v)[:20])
def test_one_row_group_of_ten_is_read_for_one_value(
    catalog: Catalog, kind: PrimitiveType, values: list[Any]
) -> None:
    table = catalog.create_table(
        "db.sorted", Schema(NestedField(1, "id", LongType()), NestedField(2, "v", kind))
    )
    rows = pa.table({"id": list(range(10)), "v": _array(values, kind)})
    add_parquet_file(table, rows, row_group_rows=1)
    for number, value in enumerate(values):
        scan = ice.scan(table, where=EqualTo("v", value))
        assert ids_of(scan) == [number]
        assert scan.report.row_groups_skipped == 9
    scan = ice.scan(table, where=GreaterThanOrEqual("v", values[7]))
    assert ids_of(scan) == [7, 8, 9]
    assert scan.report.row_groups_skipped == 7
    scan = ice.scan(table, where=In("v", [values[2], values[3]]))
    assert ids_of(scan) == [2, 3]
    assert scan.report.row_groups_skipped == 8


def test_row_groups_are_skipped_by_null_counts(catalog: Catalog) -> None:
    table = catalog.create_table(
        "db.nulls", Schema(NestedField(1, "id", LongType()), NestedField(2, "v", LongType()))
    )
    rows = pa.table({"id": list(range(6)), "v": [1, 2, None, None, 3, None]})
    add_parquet_file(table, rows, row_group_rows=2)
    scan = ice.scan(table, where=IsNull("v"))
    assert ids_of(scan) == [2, 3, 5]
    assert scan.report.row_groups_skipped == 1
    scan = ice.scan(table, where=NotNull("v"))
    assert ids_of(scan) == [0, 1, 4]
    assert scan.report.row_groups_skipped == 1


def test_row_groups_are_skipped_by_a_field_of_a_struct(catalog: Catalog) -> None:
    pair = StructType(NestedField(9, "a", LongType()), NestedField(10, "b", LongType()))
    struct = StructType(
        NestedField(3, "before", MapType(6, StringType(), 7, LongType(), value_required=False)),
        NestedField(4, "also", ListType(8, pair, element_required=False)),
        NestedField(5, "v", LongType()),
    )
    table = catalog.create_table(
        "db.struct", Schema(NestedField(1, "t", struct), NestedField(2, "id", LongType()))
    )
    before = {"before": [("k", 9)], "also": [{"a": 9, "b": 9}]}
    rows: list[dict[str, Any]] = [{"t": {**before, "v": n}, "id": n} for n in range(10)]
    rows[4]["t"] = None
    arrow = pa.Table.from_pylist(rows, schema=schema_to_pyarrow(table.schema()))
    add_parquet_file(table, arrow, row_group_rows=1)
    scan = ice.scan(table, where="t.v = 7", columns=["id"])
    assert ids_of(scan) == [7]
    assert scan.report.row_groups_skipped == 9
    scan = ice.scan(table, where="t.v is null")
    assert ids_of(scan) == [4]
    assert scan.report.row_groups_skipped == 9


def test_row_groups_of_an_evolved_file_are_skipped_by_the_old_column(catalog: Catalog) -> None:
    table = catalog.create_table(
        "db.evolved", Schema(NestedField(1, "id", LongType()), NestedField(2, "v", IntegerType()))
    )
    rows = pa.table({"id": list(range(10)), "v": pa.array(range(10), pa.int32())})
    add_parquet_file(table, rows, row_group_rows=1)
    with table.update_schema() as update:
        update.update_column("v", LongType())
        update.rename_column("v", "w")
    with table.update_schema() as update:
        update.add_column("v", LongType())
    scan = ice.scan(table, where="w = 3")
    assert ids_of(scan) == [3]
    assert scan.report.row_groups_skipped == 9
    scan = ice.scan(table, where="v is null and w >= 8")
    assert ids_of(scan) == [8, 9]
    assert scan.report.row_groups_skipped == 8


def test_row_groups_are_skipped_by_the_name_mapping_too(catalog: Catalog) -> None:
    struct = StructType(NestedField(3, "v", LongType()))
    table = catalog.create_table(
        "db.mapped", Schema(NestedField(1, "id", LongType()), NestedField(2, "t", struct))
    )
    set_name_mapping(table)
    rows = pa.table({"id": list(range(10)), "t": [{"v": n} for n in range(10)]})
    add_parquet_file(table, rows, row_group_rows=1, field_ids=False)
    scan = ice.scan(table, where="t.v = 7")
    assert ids_of(scan) == [7]
    assert scan.report.row_groups_skipped == 9


def test_a_split_of_row_groups_is_pruned_too(catalog: Catalog) -> None:
    table = catalog.create_table("db.split", Schema(NestedField(1, "id", LongType())))
    add_parquet_file(table, pa.table({"id": list(range(10))}), row_group_rows=1)
    splits = ice.scan(table, where="id = 7").splits(target_bytes=1)
    assert len(splits) == 10
    read = ice.read_splits(splits)
    assert ids_of(read) == [7]
    assert read.report.row_groups_skipped == 9


def test_nothing_is_skipped_without_a_filter_or_without_statistics(catalog: Catalog) -> None:
    table = catalog.create_table("db.plain", Schema(NestedField(1, "id", LongType())))
    add_parquet_file(
        table, pa.table({"id": list(range(10))}), row_group_rows=1, write_statistics=False
    )
    for where, ids in [(None, list(range(10))), ("id = 7", [7])]:
        scan = ice.scan(table, where=where)
        assert ids_of(scan) == ids
        assert scan.report.row_groups_skipped == 0


# Nanoseconds, which Python's datetime can't hold


def test_row_groups_of_nanoseconds_are_skipped_without_losing_any(catalog: Catalog) -> None:
    nanos = [-1_001, -1_000, -999, -1, 0, 1, 999, 1_000, 1_001, 1_700_000_000_123_456_789]
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()))
    table = catalog.create_table("db.nanos", schema)
    rows = pa.table({"id": list(range(10)), "at": pa.array(nanos, pa.timestamp("ns"))})
    add_foreign_file(table, rows, row_group_size=1)
    # The table's values are whole microseconds, cut off towards zero.
    values = [abs(n) // 1_000 * (1 if n >= 0 else -1) for n in nanos]
    epoch = datetime.datetime(1970, 1, 1)
    for offset in (-2, -1, 0, 1, 2):
        literal = epoch + datetime.timedelta(microseconds=offset)
        scan = ice.scan(table, where=GreaterThanOrEqual("at", literal))
        assert ids_of(scan) == [n for n, value in enumerate(values) if value >= offset]
        scan = ice.scan(table, where=LessThanOrEqual("at", literal))
        assert ids_of(scan) == [n for n, value in enumerate(values) if value <= offset]
        assert scan.report.row_groups_skipped == sum(value > offset for value in values)


def test_a_nanosecond_column_can_be_asked_for_nulls_and_compared_with_nothing(
    catalog: Catalog,
) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampNanoType()))
    table = create_v3_table(catalog, "db.nanos", schema)
    nanos = pa.array([1_001, None], pa.timestamp("ns"))
    add_parquet_file(table, pa.table({"id": [0, 1], "at": nanos}), row_group_rows=1)
    scan = ice.scan(table, where=IsNull("at"))
    assert ids_of(scan) == [1]
    assert scan.report.row_groups_skipped == 1
    with pytest.raises(ice.InvalidArgumentError, match="timestamp_ns"):
        ice.scan(table, where=GreaterThan("at", datetime.datetime(1970, 1, 1)))


# Statistics of other writers


def test_truncated_string_statistics_lose_no_row(catalog: Catalog) -> None:
    polars = pytest.importorskip("polars")
    table = catalog.create_table(
        "db.long", Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()))
    )
    values = ["a" * 200 + letter for letter in "bcd"] + ["ü" * 100 + "x", "z" * 300]
    file = add_foreign_file(table, pa.table({"id": list(range(5)), "s": values}))
    # The same rows by a writer that keeps the first 64 bytes of minima and maxima.
    frame = polars.DataFrame({"id": range(5), "s": values})
    path = file.file_path.removeprefix("file://")
    frame.write_parquet(path, statistics=True, row_group_size=1)
    bounds = pq.ParquetFile(path).metadata.row_group(0).column(1).statistics
    assert len(bounds.min) < 200
    set_name_mapping(table)
    for number, value in enumerate(values):
        for where, ids in [
            (EqualTo("s", value), [number]),
            (LessThanOrEqual("s", value), [n for n in range(5) if values[n] <= value]),
            (GreaterThan("s", value), [n for n in range(5) if values[n] > value]),
            (StartsWith("s", value[:150]), [n for n in range(5) if values[n][:150] == value[:150]]),
            (NotStartsWith("s", value), [n for n in range(5) if n != number]),
        ]:
            assert ids_of(ice.scan(table, where=where)) == ids
    scan = ice.scan(table, where=StartsWith("s", "z"))
    assert ids_of(scan) == [4]
    assert scan.report.row_groups_skipped == 4


@pytest.mark.parametrize(
    ("kind", "arrow", "literal"),
    [
        (BinaryType(), pa.string(), b"b"),
        (StringType(), pa.binary(), "b"),
    ],
    ids=str,
)
def test_text_under_bytes_and_bytes_under_text_are_filtered(
    catalog: Catalog, kind: PrimitiveType, arrow: pa.DataType, literal: Any
) -> None:
    table = catalog.create_table(
        "db.mixed", Schema(NestedField(1, "id", LongType()), NestedField(2, "v", kind))
    )
    values = pa.array(["a", "b", "c"]).cast(arrow)
    add_foreign_file(table, pa.table({"id": [0, 1, 2], "v": values}), row_group_size=1)
    assert ids_of(ice.scan(table, where=EqualTo("v", literal))) == [1]
    assert ids_of(ice.scan(table, where=GreaterThan("v", literal))) == [2]


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [(pa.uint32(), LongType()), (pa.uint8(), IntegerType()), (pa.float16(), FloatType())],
    ids=str,
)
def test_narrow_and_unsigned_numbers_are_skipped_rightly(
    catalog: Catalog, arrow: pa.DataType, kind: PrimitiveType
) -> None:
    table = catalog.create_table(
        "db.narrow", Schema(NestedField(1, "id", LongType()), NestedField(2, "v", kind))
    )
    values = [0, 1, 127, 128, 200] if arrow != pa.uint32() else [0, 1, 2**31 - 1, 2**31, 2**32 - 1]
    column = pa.array([float(v) for v in values] if arrow == pa.float16() else values, arrow)
    add_foreign_file(table, pa.table({"id": list(range(5)), "v": column}), row_group_size=1)
    for number, value in enumerate(values):
        assert ids_of(ice.scan(table, where=EqualTo("v", value))) == [number]
        assert ids_of(ice.scan(table, where=GreaterThan("v", value))) == list(range(number + 1, 5))


def test_a_column_with_a_default_is_not_ruled_out_by_a_file_without_it(catalog: Catalog) -> None:
    table = create_v3_table(catalog, "db.defaults", Schema(NestedField(1, "id", LongType())))
    add_parquet_file(table, pa.table({"id": [0, 1]}), row_group_rows=1)
    with v3_schema_updates(table), table.update_schema() as update:
        update.add_column("d", LongType(), default_value=7)
    assert ids_of(ice.scan(table, where="d = 7")) == [0, 1]
    assert ids_of(ice.scan(table, where="d = 8")) == []
    assert ids_of(ice.scan(table, where="d is null")) == []


def test_a_partition_value_is_not_ruled_out_by_a_file_without_the_column(catalog: Catalog) -> None:
    migrated = PARTITIONINGS["hive_migrated"](catalog)
    expected = [row["id"] for row in migrated.expected if row["amount"] == 15]
    assert expected
    assert sorted(ids_of(ice.scan(migrated.table, where="amount = 15"))) == expected


def test_required_columns_are_never_null_to_a_filter(catalog: Catalog) -> None:
    evolved = EVOLUTIONS["loosened_requirement"](catalog)
    assert rows_of(ice.scan(evolved.table, where="id is null")) == []
    assert ids_of(ice.scan(evolved.table, where="value is null")) == [1]


# Never a wanted row


_floats = st.one_of(
    st.floats(width=32, allow_nan=True), st.sampled_from([0.0, -0.0, 1.0, -1.0, math.nan, math.inf])
)
_texts = st.one_of(
    st.text(max_size=4), st.sampled_from(["", "a", "ab", "abc", "b", "\U0010ffff", "a\U0010ffff"])
)
_kinds: dict[str, tuple[PrimitiveType, st.SearchStrategy[Any]]] = {
    "int": (IntegerType(), st.integers(-3, 3)),
    "long": (LongType(), st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))),
    "float": (FloatType(), _floats),
    "double": (DoubleType(), _floats),
    "decimal": (DecimalType(9, 2), st.integers(-5, 5).map(lambda n: Decimal(n).scaleb(-2))),
    "string": (StringType(), _texts),
    "binary": (BinaryType(), st.binary(max_size=3)),
    "boolean": (BooleanType(), st.booleans()),
}


@st.composite
def _cases(draw: st.DrawFn) -> tuple[PrimitiveType, list[Any], BooleanExpression]:
    """A column, its values, and a filter on it with literals that are among them or near."""
    name = draw(st.sampled_from(sorted(_kinds)))
    kind, values = _kinds[name]
    rows = draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=12))
    literals = values.filter(lambda v: v == v and not (isinstance(v, float) and math.isinf(v)))
    leaves = [
        st.builds(lambda make, v: make("v", v), st.sampled_from(_COMPARISONS), literals),
        st.builds(
            lambda make, vs: make("v", vs),
            st.sampled_from([In, NotIn]),
            st.lists(literals, min_size=2, max_size=4),
        ),
        st.sampled_from([IsNull("v"), NotNull("v")]),
    ]
    if name in ("float", "double"):
        leaves.append(st.sampled_from([IsNaN("v"), NotNaN("v")]))
    if name == "string":
        leaves.append(
            st.builds(
                lambda make, v: make("v", v), st.sampled_from([StartsWith, NotStartsWith]), literals
            )
        )
    where = st.recursive(
        st.one_of(leaves),
        lambda inner: st.one_of(
            st.builds(And, inner, inner), st.builds(Or, inner, inner), st.builds(Not, inner)
        ),
        max_leaves=3,
    )
    return kind, rows, draw(where)


def _schema(kind: PrimitiveType) -> Schema:
    return Schema(NestedField(1, "v", kind))


def _wanted_groups(rows: list[Any], where: BooleanExpression, size: int) -> set[int]:
    return {n // size for n, value in enumerate(rows) if matches(where, {"v": value})}


@settings(max_examples=80, deadline=None)
@given(_cases(), st.integers(1, 4))
def test_no_row_group_with_a_wanted_row_is_skipped(
    case: tuple[PrimitiveType, list[Any], BooleanExpression], size: int
) -> None:
    kind, rows, where = case
    contents = pa.Table.from_arrays(
        [pa.array(rows, schema_to_pyarrow(kind))],
        schema=schema_to_pyarrow(_schema(kind), include_field_ids=True),
    )
    kept = _kept(contents, _schema(kind), where, row_group_size=size)
    assert _wanted_groups(rows, where, size) <= set(kept)


@dataclass
class _Statistics:
    """Statistics that hold for the values, though not the ones that PyArrow would write."""

    min: Any
    max: Any
    has_min_max: bool
    null_count: int | None
    has_null_count: bool


@dataclass
class _Column:
    statistics: _Statistics | None
    num_values: int

    @property
    def is_stats_set(self) -> bool:
        return self.statistics is not None


@dataclass
class _Group:
    num_rows: int
    only: _Column

    def column(self, position: int) -> _Column:
        assert position == 0
        return self.only


@st.composite
def _loose(draw: st.DrawFn, rows: list[Any]) -> _Group:
    """Bounds may be wider than the values, missing, NaN, of a zero with the other sign, or cut."""
    values = [v for v in rows if v is not None and v == v]
    nulls = rows.count(None)
    statistics: _Statistics | None = None
    if draw(st.integers(0, 9)):
        low, high = (min(values), max(values)) if values else (None, None)
        has_bounds = bool(values) and draw(st.integers(0, 4)) > 0
        if has_bounds and isinstance(low, float):
            if draw(st.booleans()):
                low = -low if low == 0 else low
            if draw(st.booleans()):
                high = -high if high == 0 else high
            if not draw(st.integers(0, 5)):
                low = high = math.nan
            elif draw(st.booleans()):
                low, high = -math.inf, math.inf
        elif has_bounds and isinstance(low, str):
            cut = draw(st.integers(0, 3))
            low = low[:cut]
            if len(high) > cut and all(ord(c) < 0xD000 for c in high[:cut]) and cut:
                high = high[: cut - 1] + chr(ord(high[cut - 1]) + 1)
        elif has_bounds and isinstance(low, int) and not isinstance(low, bool):
            low = max(low - draw(st.integers(0, 3)), -(2**31))
            high = min(high + draw(st.integers(0, 3)), 2**31 - 1) if high < 2**31 else high
        has_nulls = draw(st.booleans())
        statistics = _Statistics(low, high, has_bounds, nulls if has_nulls else None, has_nulls)
    return _Group(len(rows), _Column(statistics, len(rows)))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_no_statistics_that_hold_for_the_values_rule_a_wanted_row_out(data: st.DataObject) -> None:
    kind, rows, where = data.draw(_cases())
    group = data.draw(_loose(rows))
    file_schema = schema_to_pyarrow(_schema(kind), include_field_ids=True)
    test = row_group_test(_context(_schema(kind), where), file_schema, FieldIds(file_schema, None))
    if any(matches(where, {"v": value}) for value in rows):
        assert test(group)  # type: ignore[arg-type]
