"""A row filter as text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

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
from pyiceberg.expressions.literals import DateLiteral, Literal, TimestampLiteral
from pyiceberg.utils.datetime import days_to_date, micros_to_timestamp

_SHAPES: dict[type[Any], str] = {
    EqualTo: "{} = ?",
    NotEqualTo: "{} != ?",
    LessThan: "{} < ?",
    LessThanOrEqual: "{} <= ?",
    GreaterThan: "{} > ?",
    GreaterThanOrEqual: "{} >= ?",
    In: "{} in (?)",
    NotIn: "{} not in (?)",
    IsNull: "{} is null",
    NotNull: "{} is not null",
    IsNaN: "{} is nan",
    NotNaN: "{} is not nan",
    StartsWith: "{} like ?",
    NotStartsWith: "{} not like ?",
}


def filter_shape(
    expression: BooleanExpression, value_text: Callable[[Any], str] = lambda _: "?"
) -> str:
    """A filter with `?` in place of each value: `price > ? and country in (?)`.

    Args:
        expression: The filter.
        value_text: What to write instead of `?` for the values of a comparison.
    """
    if isinstance(expression, (And, Or)):
        word = "and" if isinstance(expression, And) else "or"
        sides = [filter_shape(side, value_text) for side in (expression.left, expression.right)]
        return f"({sides[0]} {word} {sides[1]})"
    if isinstance(expression, Not):
        return f"not {filter_shape(expression.child, value_text)}"
    shape = _SHAPES.get(type(expression))
    name = getattr(getattr(expression, "term", None), "name", None)
    if shape is None or name is None:
        return type(expression).__name__  # AlwaysTrue, AlwaysFalse or an unknown expression.
    before, mark, after = shape.partition("?")
    return f"{before.format(name)}{value_text(expression) if mark else ''}{after}"


def filter_text(expression: BooleanExpression) -> str:
    """A filter as people write it. `in` shows up to ten values."""
    if isinstance(expression, (AlwaysTrue, AlwaysFalse)):
        return "true" if isinstance(expression, AlwaysTrue) else "false"
    text = filter_shape(expression, _values)
    return text[1:-1] if isinstance(expression, (And, Or)) else text


def _values(expression: Any) -> str:
    if isinstance(expression, (In, NotIn)):
        shown = sorted(_value(literal) for literal in expression.literals)
        return ", ".join(shown[:10]) + (", ..." if len(shown) > 10 else "")
    text = _value(expression.literal)
    return f"{text[:-1]}%'" if isinstance(expression, (StartsWith, NotStartsWith)) else text


def _value(literal: Literal[Any]) -> str:
    value: object = literal.value
    with suppress(OverflowError):  # a year that Python's dates do not have
        if isinstance(literal, DateLiteral):
            value = days_to_date(literal.value).isoformat()
        elif isinstance(literal, TimestampLiteral):
            value = micros_to_timestamp(literal.value).isoformat(" ")
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)
