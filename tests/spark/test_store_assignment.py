"""Frames whose types differ from the table's: what Spark's ANSI policy assigns, and what not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
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
)

import icestream as ice
import icestream.spark as ice_spark
from tests.support.spark_format import format_reader

_NOON = dt.time(12, 34, 56, 123456)
# A Spark expression, the type of the table's column, and the value that is stored.
_ASSIGNED: list[tuple[str, IcebergType, object]] = [
    ("7", DecimalType(9, 2), Decimal("7.00")),
    ("7", StringType(), "7"),
    ("7", DoubleType(), 7.0),
    ("7L", IntegerType(), 7),
    ("1.5D", FloatType(), 1.5),
    ("1.5BD", DoubleType(), 1.5),
    ("1.25BD", DecimalType(5, 1), Decimal("1.3")),
    ("1.9D", IntegerType(), 1),
    ("true", StringType(), "true"),
    ("date'2024-02-29'", TimestampType(), dt.datetime(2024, 2, 29)),
    ("date'2024-02-29'", StringType(), "2024-02-29"),
    ("timestamp_ntz'2024-02-29 10:00:00'", DateType(), dt.date(2024, 2, 29)),
    ("array(1, null)", ListType(2, StringType(), element_required=False), ["1", None]),
    ("map('a', 1)", MapType(2, StringType(), 3, LongType(), value_required=False), [("a", 1)]),
    ("named_struct('x', 1)", StructType(NestedField(2, "x", StringType())), {"x": "1"}),
    ("array()", ListType(2, LongType(), element_required=False), []),
    ("map()", MapType(2, StringType(), 3, LongType(), value_required=False), []),
    ("cast(null as int)", StringType(), None),
]
_REFUSED = [
    ("'7'", IntegerType()),
    ("true", IntegerType()),
    ("7", DateType()),
    ("'2024-02-29'", DateType()),
    ("array('1')", ListType(2, LongType(), element_required=False)),
    ("named_struct('y', 1)", StructType(NestedField(2, "x", StringType()))),
]
_OVERFLOWS = [
    ("3000000000L", IntegerType()),
    ("12345", DecimalType(4, 2)),
    ("double('nan')", LongType()),
]


def _table(catalog: SqlCatalog, kind: IcebergType) -> Table:
    return catalog.create_table("db.t", Schema(NestedField(1, "a.b", kind)))


def _frame(spark: Any, expression: str) -> Any:
    return spark.range(1).selectExpr(f"{expression} as `a.b`")


def _values(table: Table) -> list[Any]:
    rows = ice.scan(table.refresh()).to_reader().read_all()
    values: list[Any] = rows.column(0).to_pylist()
    return values


def test_values_are_cast_as_spark_assigns_them(spark: Any, catalog: SqlCatalog) -> None:
    fields = [NestedField(n * 10, f"c{n}", kind) for n, (_, kind, _) in enumerate(_ASSIGNED, 1)]
    table = catalog.create_table("db.t", Schema(*fields))
    frame = spark.range(1).selectExpr(
        *[f"{expression} as c{n}" for n, (expression, _, _) in enumerate(_ASSIGNED, 1)]
    )
    ice_spark.append(frame, table)
    (row,) = ice.scan(table.refresh()).to_reader().read_all().to_pylist()
    assert row == {f"c{n}": value for n, (_, _, value) in enumerate(_ASSIGNED, 1)}


@pytest.mark.parametrize(("expression", "kind"), _REFUSED)
def test_what_spark_does_not_assign_is_refused(
    spark: Any, catalog: SqlCatalog, expression: str, kind: IcebergType
) -> None:
    table = _table(catalog, kind)
    with pytest.raises(ice.errors.SchemaMismatchError, match=r"a\.b"):
        ice_spark.append(_frame(spark, expression), table)
    assert not table.refresh().metadata.snapshots


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_value_that_does_not_fit_is_refused_with_its_column(
    spark: Any, catalog: SqlCatalog, ansi: str
) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    for number, (expression, kind) in enumerate(_OVERFLOWS):
        table = catalog.create_table(f"db.t{number}", Schema(NestedField(1, "a.b", kind)))
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        try:
            with pytest.raises(ice.errors.InvalidDataError, match="does not fit") as error:
                ice_spark.append(_frame(spark, expression), table)
        finally:
            spark.conf.set("spark.sql.ansi.enabled", before)
        assert error.value.column == "a.b"
        assert not table.refresh().metadata.snapshots


def test_elements_without_a_type_let_no_other_value_overflow(
    spark: Any, catalog: SqlCatalog
) -> None:
    longs = ListType(4, LongType(), element_required=False)
    pair = StructType(NestedField(2, "a", longs), NestedField(3, "b", IntegerType()))
    table = _table(catalog, pair)
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(ice.errors.SchemaMismatchError, match=r"a\.b"):
            ice_spark.append(_frame(spark, "struct(array() as a, 3000000000L as b)"), table)
        assert not table.refresh().metadata.snapshots
        ice_spark.append(_frame(spark, "struct(array() as a, 7 as b)"), table)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    assert _values(table) == [{"a": [], "b": 7}]


def test_keys_and_values_of_a_merge_are_cast_too(spark: Any, catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "v", StringType()))
    table = catalog.create_table("db.t", schema)
    ice_spark.append(spark.sql("select 1 as id, 'a' as v"), table)
    report = ice_spark.merge(spark.sql("select 1L as id, 2.5D as v"), table, on="id")
    assert report.rows_updated == 1
    assert ice.scan(table.refresh()).to_reader().read_all().to_pylist() == [{"id": 1, "v": "2.5"}]


def test_evolving_widens_the_table_and_casts_nothing(spark: Any, catalog: SqlCatalog) -> None:
    table = _table(catalog, IntegerType())
    ice_spark.append(_frame(spark, "3000000000L"), table, schema_mode="evolve")
    assert table.refresh().schema().find_type("a.b") == LongType()
    assert _values(table) == [3_000_000_000]


@pytest.mark.parametrize("expression", ["array()", "map()", "named_struct('x', array())"])
def test_elements_without_a_type_are_refused_if_the_table_has_none(
    spark: Any, catalog: SqlCatalog, expression: str
) -> None:
    frame = spark.range(1).selectExpr("id", f"{expression} as empty")
    with pytest.raises(ice.errors.SchemaMismatchError, match=r"'empty\.\S+' has no type"):
        ice_spark.append(frame, "db.new", catalog=catalog, create=True)
    assert not catalog.table_exists("db.new")


def test_times_are_written_and_read(spark: Any, catalog: SqlCatalog) -> None:
    kinds = {"t": TimeType(), "ts": ListType(3, TimeType(), element_required=False)}
    schema = Schema(NestedField(1, "t", kinds["t"]), NestedField(2, "ts", kinds["ts"]))
    table = catalog.create_table("db.times", schema)
    frame = spark.sql("select time'12:34:56.123456' as t, array(time'00:00:01', null) as ts")
    ice_spark.append(frame, table)
    writer = frame.write.format("icestream").mode("append").option("catalog", catalog.name)
    for name, value in catalog.properties.items():
        writer = writer.option(f"catalog.{name}", value)
    writer.save("db.times")
    expected = [(_NOON, [dt.time(0, 0, 1), None])] * 2
    rows = ice.scan(table.refresh()).to_reader().read_all().to_pylist()
    assert [(row["t"], row["ts"]) for row in rows] == expected
    assert [tuple(row) for row in ice_spark.read(spark, table).collect()] == expected
    by_format = format_reader(spark, catalog).load("db.times")
    assert [tuple(row) for row in by_format.collect()] == expected


def test_times_make_a_new_table(spark: Any, catalog: SqlCatalog) -> None:
    frame = spark.sql("select time'12:34:56.123456' as t")
    ice_spark.append(frame, "db.new", catalog=catalog, create=True)
    table = catalog.load_table("db.new")
    assert table.schema().find_type("t") == TimeType()
    assert _values(table) == [_NOON]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_a_date_becomes_midnight_in_the_time_zone_of_the_session(
    spark: Any, catalog: SqlCatalog, zone: str
) -> None:
    table = _table(catalog, TimestamptzType())
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        ice_spark.append(_frame(spark, "date'2024-02-29'"), table)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    hours = 0 if zone == "UTC" else 9
    midnight = dt.datetime(2024, 2, 29, tzinfo=dt.UTC) - dt.timedelta(hours=hours)
    assert _values(table) == [midnight]
