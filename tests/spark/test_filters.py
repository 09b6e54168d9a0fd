"""Spark's filters become PyIceberg expressions that let the same rows pass, or stay with Spark."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import functions as sf
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.format.filters import pushed
from tests.support.spark_filters import SCHEMA, UUIDS
from tests.support.spark_format import format_reader


def _rows() -> list[dict[str, Any]]:
    rows = []
    for n in range(6):
        row: dict[str, Any] = {
            "n": n,
            "d": [0.0, -0.0, math.nan, 1.5, math.inf, 2.5][n],
            "f": [0.1, -0.0, math.nan, 1.5, 3.0, 2.5][n],
            "s": ["", "a", "ab", "b", "abc", "ä"][n],
            "flag": n % 2 == 0,
            "money": Decimal(n * 5) / 10,
            "day": date(2024, 1, 1 + n),
            "at": datetime(2024, 1, 1, n),
            "at_tz": datetime(2024, 1, 1, n, tzinfo=UTC),
            "raw": bytes([n, 200]),
            "key": UUIDS[n].bytes,
            "code": bytes([n, 255]),
            "in": {"n": n, "s": f"s{n}"} if n % 3 else {"n": None, "s": None},
            "items": [n],
            "a.b": n,
        }
        rows.append({"id": n, **row})
    rows.append({"id": 6})  # nulls
    return rows


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """One file to a row, so that filters meet statistics, and one file with all of them."""
    table = catalog.create_table("db.t", SCHEMA)
    arrow = table.schema().as_arrow()
    for row in _rows():
        ice.append(table, pa.Table.from_pylist([row], schema=arrow))
    more = [{**row, "id": row["id"] + 100} for row in _rows()]
    ice.append(table, pa.Table.from_pylist(more, schema=arrow))
    return table


NAN, INFINITY = math.nan, math.inf
# What Spark makes of a condition, `is not null` left out, which it adds.
PUSHED: list[tuple[str, Any]] = [
    ("n = 3", EqualTo(("n",), 3)),
    ("n <> 3", Not(EqualTo(("n",), 3))),
    ("n in (1, 2, 9)", In(("n",), (1, 2, 9))),
    ("n in (1, null)", In(("n",), (1, None))),
    ("n not in (1, 2)", Not(In(("n",), (1, 2)))),
    ("n not in (1, null)", Not(In(("n",), (1, None)))),
    ("n <=> 3", EqualNullSafe(("n",), 3)),
    ("not (n <=> 3)", Not(EqualNullSafe(("n",), 3))),
    ("n <=> null", EqualNullSafe(("n",), None)),
    ("not (n <=> null)", Not(EqualNullSafe(("n",), None))),
    ("n > 2", GreaterThan(("n",), 2)),
    ("n >= 2", GreaterThanOrEqual(("n",), 2)),
    ("n < 2", LessThan(("n",), 2)),
    ("n <= 2", LessThanOrEqual(("n",), 2)),
    ("not (n > 2)", Not(GreaterThan(("n",), 2))),
    ("n is null", IsNull(("n",))),
    ("n is not null", IsNotNull(("n",))),
    ("not (n is null)", Not(IsNull(("n",)))),
    ("d = double('NaN')", EqualTo(("d",), NAN)),
    ("d <> double('NaN')", Not(EqualTo(("d",), NAN))),
    ("not (d <=> double('NaN'))", Not(EqualNullSafe(("d",), NAN))),
    ("d > 1.5D", GreaterThan(("d",), 1.5)),
    ("d >= 1.5D", GreaterThanOrEqual(("d",), 1.5)),
    ("d < 1.5D", LessThan(("d",), 1.5)),
    ("d <= 1.5D", LessThanOrEqual(("d",), 1.5)),
    ("not (d > 1.5D)", Not(GreaterThan(("d",), 1.5))),
    ("not (d <= 1.5D)", Not(LessThanOrEqual(("d",), 1.5))),
    ("d > double('NaN')", GreaterThan(("d",), NAN)),
    ("d >= double('NaN')", GreaterThanOrEqual(("d",), NAN)),
    ("d < double('NaN')", LessThan(("d",), NAN)),
    ("d <= double('NaN')", LessThanOrEqual(("d",), NAN)),
    ("not (d < double('NaN'))", Not(LessThan(("d",), NAN))),
    ("d in (1.5D, double('NaN'))", In(("d",), (1.5, NAN))),
    ("d not in (1.5D, double('NaN'))", Not(In(("d",), (1.5, NAN)))),
    ("d = 0D", EqualTo(("d",), 0.0)),
    ("d in (0D, 2.5D)", In(("d",), (0.0, 2.5))),
    ("d = double('Infinity')", EqualTo(("d",), INFINITY)),
    ("d > double('-Infinity')", GreaterThan(("d",), -INFINITY)),
    ("f = float('0.1')", EqualTo(("f",), 0.10000000149011612)),
    ("f > float('1.5')", GreaterThan(("f",), 1.5)),
    ("f in (float('1.5'), float('NaN'))", In(("f",), (1.5, NAN))),
    ("s = 'ab'", EqualTo(("s",), "ab")),
    ("s <> ''", Not(EqualTo(("s",), ""))),
    ("s > 'ab'", GreaterThan(("s",), "ab")),
    ("s >= 'ä'", GreaterThanOrEqual(("s",), "ä")),
    ("s like 'ab%'", StringStartsWith(("s",), "ab")),
    ("s like '%'", StringStartsWith(("s",), "")),
    ("not (s like 'a%')", Not(StringStartsWith(("s",), "a"))),
    ("s in ('a', 'ä')", In(("s",), ("a", "ä"))),
    ("flag", EqualTo(("flag",), True)),
    ("not flag", Not(EqualTo(("flag",), True))),
    ("money = 1.5", EqualTo(("money",), Decimal("1.50"))),
    ("money = 1.50", EqualTo(("money",), Decimal("1.5"))),
    ("money > 1.0", GreaterThan(("money",), Decimal("1.00"))),
    ("money in (0.5, 2.00)", In(("money",), (Decimal("0.5"), Decimal("2.00")))),
    ("day = date'2024-01-03'", EqualTo(("day",), date(2024, 1, 3))),
    ("day > date'2024-01-03'", GreaterThan(("day",), date(2024, 1, 3))),
    ("day < date'1969-12-31'", LessThan(("day",), date(1969, 12, 31))),
    ("at = timestamp_ntz'2024-01-01 03:00:00'", EqualTo(("at",), datetime(2024, 1, 1, 3))),
    (
        "at >= timestamp_ntz'2024-01-01 02:59:59.999999'",
        GreaterThanOrEqual(("at",), datetime(2024, 1, 1, 2, 59, 59, 999999)),
    ),
    (
        "at_tz < timestamp'2024-01-01 04:00:00+02:00'",
        LessThan(("at_tz",), datetime(2024, 1, 1, 4, tzinfo=timezone(timedelta(hours=2)))),
    ),
    ("raw = X'03C8'", EqualTo(("raw",), b"\x03\xc8")),
    ("raw <> X'03C8'", Not(EqualTo(("raw",), b"\x03\xc8"))),
    (f"key = '{UUIDS[3]}'", EqualTo(("key",), str(UUIDS[3]))),
    (f"key <> '{UUIDS[3]}'", Not(EqualTo(("key",), str(UUIDS[3])))),
    ("code = X'03FF'", EqualTo(("code",), b"\x03\xff")),
    ("code not in (X'03FF', X'04FF')", Not(In(("code",), (b"\x03\xff", b"\x04\xff")))),
    ("in.n = 4", EqualTo(("in", "n"), 4)),
    ("in.n <> 4", Not(EqualTo(("in", "n"), 4))),
    ("in.n is null", IsNull(("in", "n"))),
    ("in.n is not null", IsNotNull(("in", "n"))),
    ("in.s like 's%'", StringStartsWith(("in", "s"), "s")),
    ("in.n not in (4, 5)", Not(In(("in", "n"), (4, 5)))),
    ("`a.b` = 3", EqualTo(("a.b",), 3)),
]


@pytest.mark.slow
def test_an_expression_lets_those_rows_pass_that_spark_would(spark: Any, table: Table) -> None:
    conditions = [sf.expr(condition).alias(str(n)) for n, (condition, _) in enumerate(PUSHED)]
    answers = ice_spark.read(spark, table).select("id", *conditions).collect()
    wrong = {}
    for n, (condition, spark_filter) in enumerate(PUSHED):
        expected = sorted(row["id"] for row in answers if row[str(n)])
        expression = pushed(spark_filter, SCHEMA)
        assert expression is not None, condition
        scan = ice.scan(table, where=expression, columns=["id"])
        found = sorted(scan.to_reader().read_all()["id"].to_pylist())
        if found != expected:
            wrong[condition] = (found, expected)
    assert wrong == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "files"),
    [
        ("n > 3 and s like 'ab%' and n % 2 = 0", 2),
        ("n not in (1, 2, 3) and n > 4 and in.n = 5", 2),
        (f"key = '{UUIDS[2]}' and at_tz > timestamp'2024-01-01T01:00:00Z' and d > 5", 2),
        ("day in (date'2024-01-02', date'2024-01-05') and money >= 0.5", 3),
    ],
)
def test_spark_gets_the_rows_that_it_would_have_left_itself(
    spark: Any, table: Table, catalog: SqlCatalog, condition: str, files: int
) -> None:
    reader = format_reader(spark, catalog)
    expected = ice_spark.read(spark, table).filter(condition).collect()
    pushing = reader.option("push-filters", "true").option("split-size", "1")
    frame = pushing.load("db.t").filter(condition)
    assert expected
    assert sorted(map(repr, frame.collect())) == sorted(map(repr, expected))
    # With splits of a byte each file is a task of its own.
    assert frame.rdd.getNumPartitions() == files
