"""Translates Spark's filters to PyIceberg expressions that select exactly the same rows.

A filter without an exact translation is left to Spark. The translation handles these differences:

- In Spark, NaN is equal to itself and larger than all numbers.
- In Spark, a negated filter drops nulls. PyIceberg's `not in` keeps them.
- In Spark, UUIDs are text and fixed-size bytes are binary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from math import isnan
from typing import Any
from uuid import UUID

from pyiceberg.expressions import (
    AlwaysFalse,
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
    NotNaN,
    NotNull,
    Or,
    Reference,
    StartsWith,
)
from pyiceberg.expressions.literals import DateLiteral, Literal, TimestampLiteral, literal
from pyiceberg.schema import Schema
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
    LongType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=38)  # maximum number of digits of a column
_ORDERED = (
    IntegerType, LongType, FloatType, DoubleType, DecimalType, DateType, TimestampType,
    TimestamptzType, StringType,
)  # fmt: skip


class _NotExact(Exception):  # noqa: N818 - internal: the filter is left to Spark
    """The filter has no exact counterpart."""


def pushed(spark_filter: Any, schema: Schema) -> BooleanExpression | None:
    """The expression that selects the same rows, or None if there is no such expression.

    Args:
        spark_filter: A filter from `pyspark.sql.datasource`.
        schema: The columns of the table.
    """
    try:
        return _translated(spark_filter, schema)
    except _NotExact:
        return None


def _translated(spark_filter: Any, schema: Schema) -> BooleanExpression:
    name = type(spark_filter).__name__
    if name == "Not":
        return _negated(spark_filter.child, schema)
    column = _column(spark_filter.attribute, schema)
    if name == "IsNull":
        return _make(IsNull, column.term)
    if name == "IsNotNull":
        return _make(NotNull, column.term)
    if name == "EqualNullSafe" and spark_filter.value is None:
        return _make(IsNull, column.term)
    translate = _FILTERS.get(name)
    if translate is None:
        raise _NotExact(name)
    return translate(column, spark_filter.value)


def _negated(child: Any, schema: Schema) -> BooleanExpression:
    name = type(child).__name__
    if name in ("IsNull", "IsNotNull", "EqualNullSafe"):
        inside = _translated(child, schema)
        if name == "EqualNullSafe" and child.value is not None:
            term = _column(child.attribute, schema).term
            return Or(_make(IsNull, term), And(_make(NotNull, term), Not(inside)))
        return Not(inside)
    if name == "In" and None in child.value:
        return AlwaysFalse()  # never true: the null could be the value
    if (opposite := _OPPOSITES.get(name)) is not None:  # PyIceberg's negations never match NaN
        return opposite(_column(child.attribute, schema), child.value)
    if name not in _FILTERS:
        raise _NotExact(name)
    inside = _translated(child, schema)
    return And(_make(NotNull, _column(child.attribute, schema).term), Not(inside))


def _make(kind: Callable[..., BooleanExpression], *arguments: Any) -> BooleanExpression:
    return kind(*arguments)


class _Column:
    def __init__(self, name: str, kind: IcebergType) -> None:
        self.term = Reference(name)
        self.kind = kind

    @property
    def floating(self) -> bool:
        return isinstance(self.kind, (FloatType, DoubleType))


def _column(path: Sequence[str], schema: Schema) -> _Column:
    """The column at a path that leads only through structs."""
    fields, kind = schema.as_struct().fields, None
    for name in path:
        kind = next((field.field_type for field in fields if field.name == name), None)
        if kind is None:
            raise _NotExact(name)
        fields = kind.fields if isinstance(kind, StructType) else ()
    if not isinstance(kind, PrimitiveType) or (len(path) > 1 and any("." in p for p in path)):
        raise _NotExact(".".join(path))
    return _Column(".".join(path), kind)


def _equal(column: _Column, value: Any) -> BooleanExpression:
    if _is_nan(value):
        return _make(IsNaN, column.term)
    return _make(EqualTo, column.term, _literal(value, column.kind))


def _in(column: _Column, values: Sequence[Any]) -> BooleanExpression:
    plain = [v for v in values if v is not None and not _is_nan(v)]
    result: BooleanExpression = _make(In, column.term, [_literal(v, column.kind) for v in plain])
    return Or(result, _make(IsNaN, column.term)) if any(map(_is_nan, values)) else result


def _greater(column: _Column, value: Any) -> BooleanExpression:
    if _is_nan(value):
        return AlwaysFalse()
    return _or_nan(column, _make(GreaterThan, column.term, _ordered(value, column.kind)))


def _greater_or_equal(column: _Column, value: Any) -> BooleanExpression:
    if _is_nan(value):
        return _make(IsNaN, column.term)
    return _or_nan(column, _make(GreaterThanOrEqual, column.term, _ordered(value, column.kind)))


def _or_nan(column: _Column, expression: BooleanExpression) -> BooleanExpression:
    return Or(expression, _make(IsNaN, column.term)) if column.floating else expression


def _less(column: _Column, value: Any) -> BooleanExpression:
    if _is_nan(value):
        return And(_make(NotNull, column.term), _make(NotNaN, column.term))
    return _make(LessThan, column.term, _ordered(value, column.kind))


def _less_or_equal(column: _Column, value: Any) -> BooleanExpression:
    if _is_nan(value):
        return _make(NotNull, column.term)
    return _make(LessThanOrEqual, column.term, _ordered(value, column.kind))


def _starts_with(column: _Column, value: Any) -> BooleanExpression:
    if not isinstance(column.kind, StringType) or not isinstance(value, str):
        raise _NotExact(value)
    return _make(StartsWith, column.term, value) if value else _make(NotNull, column.term)


_FILTERS: dict[str, Callable[[_Column, Any], BooleanExpression]] = {
    "EqualTo": _equal,
    "EqualNullSafe": _equal,
    "In": _in,
    "GreaterThan": _greater,
    "GreaterThanOrEqual": _greater_or_equal,
    "LessThan": _less,
    "LessThanOrEqual": _less_or_equal,
    "StringStartsWith": _starts_with,
}

_OPPOSITES = {
    "GreaterThan": _less_or_equal,
    "GreaterThanOrEqual": _less,
    "LessThan": _greater_or_equal,
    "LessThanOrEqual": _greater,
}


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and isnan(value)


def _ordered(value: Any, kind: IcebergType) -> Literal[Any]:
    """A literal of a type that Spark, Iceberg and Arrow sort in the same way."""
    if not isinstance(kind, _ORDERED):
        raise _NotExact(value)
    return _literal(value, kind)


def _literal(value: Any, kind: IcebergType) -> Literal[Any]:
    convert = _LITERALS.get(type(kind))
    result = convert(value, kind) if convert is not None else None
    if result is None:
        raise _NotExact(value)
    return result


def _of_type(*types: type) -> Callable[[Any, Any], Literal[Any] | None]:
    return lambda value, _: literal(value) if type(value) in types else None


def _decimal(value: Any, kind: DecimalType) -> Literal[Any] | None:
    if not isinstance(value, Decimal) or not value.is_finite():
        return None
    try:
        scaled = value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    except InvalidOperation:  # more digits than any column has
        return None
    fits = scaled == value and len(scaled.as_tuple().digits) <= kind.precision
    return literal(scaled) if fits else None


def _date(value: Any, _: Any) -> Literal[Any] | None:
    if type(value) is not date:
        return None
    return DateLiteral((value - _EPOCH.date()).days)


def _timestamp(value: Any, _: Any) -> Literal[Any] | None:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        return None
    return TimestampLiteral((value - _EPOCH) // _MICROSECOND)


def _timestamptz(value: Any, kind: Any) -> Literal[Any] | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return _timestamp(value.astimezone(UTC).replace(tzinfo=None), kind)


def _bytes(value: Any, kind: Any) -> Literal[Any] | None:
    if not isinstance(value, (bytes, bytearray)):
        return None
    if isinstance(kind, FixedType) and len(value) != len(kind):
        return None
    return literal(bytes(value))


def _uuid(value: Any, _: Any) -> Literal[Any] | None:
    # In Spark, a text equals a UUID only in the canonical form.
    try:
        parsed = UUID(value)
    except (ValueError, TypeError, AttributeError):
        return None
    return literal(parsed) if str(parsed) == value else None


_LITERALS: dict[type, Callable[[Any, Any], Literal[Any] | None]] = {
    BooleanType: _of_type(bool),
    IntegerType: _of_type(int),
    LongType: _of_type(int),
    FloatType: _of_type(float),
    DoubleType: _of_type(float),
    StringType: _of_type(str),
    DecimalType: _decimal,
    DateType: _date,
    TimestampType: _timestamp,
    TimestamptzType: _timestamptz,
    BinaryType: _bytes,
    FixedType: _bytes,
    UUIDType: _uuid,
}
