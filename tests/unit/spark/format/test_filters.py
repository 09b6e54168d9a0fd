"""Spark's filters become PyIceberg expressions that let the same rows pass, or stay with Spark."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, NestedField
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from icestream.spark.format.filters import pushed
from tests.support.spark_filters import SCHEMA, UUIDS

_LONG_DECIMALS = Schema(NestedField(1, "d", DecimalType(38, 10), required=False))


@pytest.mark.parametrize(
    "spark_filter",
    [
        StringEndsWith(("s",), "b"),
        StringContains(("s",), "b"),
        Not(StringContains(("s",), "b")),
        EqualTo(("missing",), 1),
        EqualTo(("_pos",), 1),
        EqualTo(("items",), [1]),
        EqualTo(("in",), {"n": 1}),
        EqualTo(("key",), str(UUIDS[1]).upper()),
        GreaterThan(("key",), str(UUIDS[1])),
        StringStartsWith(("key",), "0"),
        EqualTo(("code",), b"1"),
        GreaterThan(("raw",), b"1"),
        GreaterThan(("flag",), False),
        EqualTo(("money",), Decimal("1.005")),
        EqualTo(("at",), datetime(2024, 1, 1, tzinfo=UTC)),
        EqualTo(("at_tz",), datetime(2024, 1, 1)),
        EqualTo(("n",), True),
        EqualTo(("n",), None),
        IsNull(("items",)),
    ],
)
def test_a_filter_without_an_exact_counterpart_is_left_to_spark(spark_filter: Any) -> None:
    assert pushed(spark_filter, SCHEMA) is None


@pytest.mark.parametrize(
    ("value", "is_exact"),
    [("123456789012345678901234567.0000000001", True), ("1" * 29, False), ("1E+40", False)],
)
def test_a_decimal_may_have_as_many_digits_as_its_column(value: str, is_exact: bool) -> None:
    found = pushed(EqualTo(("d",), Decimal(value)), _LONG_DECIMALS)
    assert (found is not None) == is_exact


@pytest.mark.parametrize(
    "spark_filter",
    [
        EqualTo(("n",), 1),
        Not(EqualTo(("n",), 1)),
        EqualNullSafe(("n",), None),
        In(("s",), ("a", None)),
        Not(In(("s",), ("a", None))),
        GreaterThanOrEqual(("d",), math.nan),
        LessThan(("money",), Decimal("1.5")),
        EqualTo(("key",), str(UUIDS[1])),
        EqualTo(("in", "n"), 1),
        StringStartsWith(("s",), "a"),
    ],
)
def test_a_filter_with_an_exact_counterpart_is_taken_over(spark_filter: Any) -> None:
    assert pushed(spark_filter, SCHEMA) is not None
