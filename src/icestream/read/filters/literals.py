"""Constants of a filter, converted to values that a column can store.

PyIceberg does most conversions. Those of this module are exact where PyIceberg rounds, accept dates
and timestamps as people write them, and say what a column needs.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from math import isinf
from struct import pack, unpack
from typing import Any

from pyiceberg.expressions.literals import (
    AboveMax,
    BelowMin,
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimestampLiteral,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from icestream.read.distant_years import distant_literal
from icestream.read.filters.times import days_of, micros_of

BEYOND = (AboveMax, BelowMin)

_NEEDS: tuple[tuple[tuple[type[IcebergType], ...], str], ...] = (
    ((IntegerType, LongType), "write a whole number"),
    ((FloatType, DoubleType, DecimalType), "write a number such as 1.5"),
    ((BooleanType,), "write true or false"),
    ((StringType,), "write text in single quotes"),
    ((DateType,), "write a date such as '2024-01-31'"),
    ((TimeType,), "write a time such as '10:30:00'"),
    ((TimestampType,), "write a timestamp such as '2024-01-31 10:30:00'"),
    ((TimestamptzType,), "write a timestamp such as '2024-01-31 10:30:00+02:00'"),
    ((UUIDType,), "write a UUID such as 'f79c3e09-677c-4bbd-a479-3f349cb785e7'"),
)


def fitted(literal: Literal[Any], kind: IcebergType, column: str) -> Literal[Any]:
    """Convert a constant for the column that it is compared with.

    Rows are compared with the float that is nearest to 0.1. PyIceberg compares statistics with the
    double 0.1, which is smaller, and so skips files that contain the value. PyIceberg also treats
    infinity as out of range for a float.

    Args:
        literal: The constant.
        kind: The type of the column.
        column: The name of the column, for messages.

    Raises:
        ValueError: If the column can't store such a value. The message says what to write.
    """
    if isinstance(kind, (StructType, ListType, MapType)):
        raise ValueError(_nested(kind, column))
    distant = distant_literal(literal, kind)
    if distant is not None:
        return distant
    try:
        converted = _converted(literal, kind)
        if isinstance(converted.to(kind), BEYOND) or kind.is_primitive:
            return converted
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ValueError(_unfit(literal, kind, column, error)) from error
    return converted


class _ExactError(ValueError):
    """An error whose message says what to write."""


def _converted(literal: Literal[Any], kind: IcebergType) -> Literal[Any]:
    if isinstance(kind, FloatType):
        return _nearest_float(literal)
    if isinstance(kind, (IntegerType, LongType)):
        return _whole(literal)
    if isinstance(kind, DecimalType):
        return _decimal(literal, kind)
    if isinstance(literal, StringLiteral):
        return _time(literal, kind)
    return literal


def _nearest_float(literal: Literal[Any]) -> Literal[Any]:
    if isinstance(literal.value, float) and isinf(literal.value):
        return FloatLiteral(literal.value)
    converted = literal.to(FloatType())
    if isinstance(converted, BEYOND):
        return literal
    rounded: float = unpack("<f", pack("<f", converted.value))[0]
    return FloatLiteral(rounded)


def _whole(literal: Literal[Any]) -> Literal[Any]:
    """A whole number. PyIceberg would round 1.5 to 2, and `price > 1.5` would lose the 2."""
    if not isinstance(literal, (DecimalLiteral, StringLiteral)):
        return literal
    number = _number(literal)
    if number != number.to_integral_value():
        raise ValueError(f"{number} is not a whole number")
    return LongLiteral(int(number))


def _decimal(literal: Literal[Any], kind: DecimalType) -> Literal[Any]:
    """A decimal with the scale of the column, if that keeps its value."""
    if not isinstance(literal, (LongLiteral, DecimalLiteral, StringLiteral)):
        return literal
    number = _number(literal)
    sign, figures, exponent = number.as_tuple()  # Arithmetic would round to 28 digits.
    assert isinstance(exponent, int)
    unscaled = "".join(map(str, figures)).rstrip("0")
    exponent += len(figures) - len(unscaled)
    if not unscaled:
        return DecimalLiteral(Decimal((0, (0,), -kind.scale)))
    if -exponent > kind.scale:
        raise _ExactError(f"the column stores {kind.scale} digits after the point: write no more")
    whole = kind.precision - kind.scale
    if len(unscaled.lstrip("0")) + exponent > whole:
        raise _ExactError(f"the column stores {whole} digits before the point: write no more")
    digits = tuple(map(int, unscaled)) + (0,) * (exponent + kind.scale)
    return DecimalLiteral(Decimal((sign, digits, -kind.scale)))


def _number(literal: Literal[Any]) -> Decimal:
    try:
        number = Decimal(literal.value)
    except InvalidOperation as error:
        raise ValueError(f"{literal.value!r} is not a number") from error
    if not number.is_finite():
        raise ValueError(f"{literal.value!r} is not a number that the column stores")
    return number


def _time(literal: StringLiteral, kind: IcebergType) -> Literal[Any]:
    try:
        if isinstance(kind, DateType):
            days = days_of(literal.value)
            return literal if days is None else DateLiteral(days)
        if isinstance(kind, (TimestampType, TimestamptzType)):
            zoned = isinstance(kind, TimestamptzType)
            micros = micros_of(literal.value, with_zone=zoned)
            return literal if micros is None else TimestampLiteral(micros)
    except ValueError as error:
        known = str(error)
        raise (_ExactError(known) if ":" in known or "write" in known else error) from error
    return literal


def _unfit(literal: Literal[Any], kind: IcebergType, column: str, error: Exception) -> str:
    value = f"{column!r} is {_article(kind)} and is compared with {_shown(literal)}"
    if isinstance(error, _ExactError):
        return f"{value}: {error}"
    needs = next((text for kinds, text in _NEEDS if isinstance(kind, kinds)), None)
    if needs is None:
        return f"{value}: a filter can only test whether it is null"
    return f"{value}: {needs}"


def _nested(kind: IcebergType, column: str) -> str:
    if isinstance(kind, StructType) and kind.fields:
        field = f"{column}.{kind.fields[0].name}"
        return f"{column!r} is a struct: compare one of its fields, such as {field}"
    return f"{column!r} is {_article(kind)}: a filter can only test whether it is null"


def _article(kind: IcebergType) -> str:
    if isinstance(kind, (StructType, ListType, MapType)):
        name = type(kind).__name__.removesuffix("Type").lower()
    else:
        name = str(kind)
    return f"an {name}" if name[0] in "aeio" else f"a {name}"


def _shown(literal: Literal[Any]) -> str:
    if isinstance(literal, BooleanLiteral):
        return str(literal.value).lower()
    if isinstance(literal, DoubleLiteral):
        return repr(literal.value)
    return repr(literal.value) if isinstance(literal, StringLiteral) else str(literal.value)
