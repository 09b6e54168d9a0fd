"""A filter without the values in it, for telemetry: `price > ? and country in (?)`."""

from __future__ import annotations

from typing import Any

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


def filter_shape(expression: BooleanExpression) -> str:
    """The columns and operators of a filter; `?` for each value."""
    if isinstance(expression, (And, Or)):
        word = "and" if isinstance(expression, And) else "or"
        return f"({filter_shape(expression.left)} {word} {filter_shape(expression.right)})"
    if isinstance(expression, Not):
        return f"not {filter_shape(expression.child)}"
    shape = _SHAPES.get(type(expression))
    name = getattr(getattr(expression, "term", None), "name", None)
    if shape is None or name is None:
        return type(expression).__name__  # Always true or false, or something new.
    return shape.format(name)
