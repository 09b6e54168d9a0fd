from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.expressions import literal
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    UUIDType,
)

from icestream.read.filters.literals import fitted

_MONEY = DecimalType(9, 2)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (Decimal("2.0"), LongType(), 2),
        ("2", IntegerType(), 2),
        (2**40, IntegerType(), 2**40),  # out of range: PyIceberg knows that no row is larger
        (1, _MONEY, Decimal("1.00")),
        (Decimal("1.5"), _MONEY, Decimal("1.50")),
        (Decimal("-1.500"), _MONEY, Decimal("-1.50")),
        ("100", _MONEY, Decimal("100.00")),
        (Decimal("-0.0"), _MONEY, Decimal("0.00")),
        (Decimal("1" * 35 + ".5"), DecimalType(38, 2), Decimal("1" * 35 + ".50")),
        (0.1, FloatType(), 0.10000000149011612),
        (float("inf"), FloatType(), float("inf")),
        (Decimal("0.1"), DoubleType(), Decimal("0.1")),
        ("2024-1-31", DateType(), 19753),
        ("1970-01-01 00:01", TimestampType(), 60_000_000),
        ("x", StringType(), "x"),
        ("true", BooleanType(), "true"),
    ],
)
def test_a_constant_becomes_a_value_of_its_column(
    value: Any, kind: IcebergType, expected: Any
) -> None:
    converted = fitted(literal(value), kind, "c").value
    assert converted == expected
    assert str(converted) == str(expected)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (
            Decimal("1.5"),
            LongType(),
            "'c' is a long and is compared with 1.5: write a whole number",
        ),
        ("1.5", IntegerType(), "'c' is an int and is compared with '1.5': write a whole number"),
        ("x", _MONEY, "write a number such as 1.5"),
        ("nan", _MONEY, "write a number such as 1.5"),
        (Decimal("1.505"), _MONEY, "stores 2 digits after the point"),
        (10**7, _MONEY, "stores 7 digits before the point"),
        (5, StringType(), "write text in single quotes"),
        (1, BooleanType(), "write true or false"),
        ("soon", DateType(), "write a date such as '2024-01-31'"),
        ("2024-01-31 10:00", DateType(), "write a date without a time"),
        ("10", TimestampType(), "write a timestamp such as"),
        ("2024-01-31 10:00Z", TimestampType(), "leave 'Z' out"),
        ("25:00", TimeType(), "write a time such as"),
        ("x", UUIDType(), "write a UUID such as"),
        ("x", BinaryType(), "can only test whether it is null"),
        (1, ListType(1, LongType()), "'c' is a list: a filter can only test whether it is null"),
        (1, StructType(), "'c' is a struct"),
        (1, StructType(NestedField(1, "x", LongType())), "compare one of its fields, such as c.x"),
    ],
)
def test_a_constant_that_does_not_fit_is_refused_with_what_does(
    value: Any, kind: IcebergType, message: str
) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        fitted(literal(value), kind, "c")
