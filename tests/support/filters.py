"""Row filters, evaluated on plain Python rows: what a scan must deliver, told without any reader.

Null follows the rules that icestream states: a comparison with null is unknown, and so drops the
row unless an `or` saves it; `in` is false and `not in`, with several literals, true.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID

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

_COMPARISONS: dict[type[BooleanExpression], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    NotEqualTo: operator.ne,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    StartsWith: lambda value, prefix: value.startswith(prefix),
    NotStartsWith: lambda value, prefix: not value.startswith(prefix),
}
_OPPOSITES = {
    EqualTo: NotEqualTo,
    NotEqualTo: EqualTo,
    LessThan: GreaterThanOrEqual,
    GreaterThanOrEqual: LessThan,
    GreaterThan: LessThanOrEqual,
    LessThanOrEqual: GreaterThan,
    In: NotIn,
    NotIn: In,
    StartsWith: NotStartsWith,
    NotStartsWith: StartsWith,
    IsNull: NotNull,
    NotNull: IsNull,
    IsNaN: NotNaN,
    NotNaN: IsNaN,
    AlwaysTrue: AlwaysFalse,
    AlwaysFalse: AlwaysTrue,
}


def matches(expression: BooleanExpression, row: Mapping[str, Any]) -> bool:
    """Return whether a filter lets a row pass.

    A dotted name is a path into structs.
    """
    return _truth(expression, row, negated=False) is True


def _truth(expression: Any, row: Mapping[str, Any], *, negated: bool) -> bool | None:
    if isinstance(expression, Not):
        return _truth(expression.child, row, negated=not negated)
    if isinstance(expression, (And, Or)):
        parts = [_truth(e, row, negated=negated) for e in (expression.left, expression.right)]
        deciding = isinstance(expression, Or) != negated
        if deciding in parts:
            return deciding
        return None if None in parts else not deciding
    kind = _OPPOSITES[type(expression)] if negated else type(expression)
    if kind in (AlwaysTrue, AlwaysFalse):
        return kind is AlwaysTrue
    return _predicate(kind, expression, internal_value(_value(row, expression.term.name)))


def _predicate(kind: type[BooleanExpression], expression: Any, value: Any) -> bool | None:
    if kind in (IsNull, NotNull):
        return (value is None) == (kind is IsNull)
    if kind in (In, NotIn):
        inside = value is not None and value in {literal.value for literal in expression.literals}
        return inside == (kind is In)
    if value is None:
        return None
    if kind in (IsNaN, NotNaN):
        is_nan = isinstance(value, float) and value != value
        return is_nan == (kind is IsNaN)
    return _COMPARISONS[kind](value, expression.literal.value)


def internal_value(value: Any) -> Any:
    """Return a date, time or uuid as Iceberg's literals and partitions hold it."""
    if isinstance(value, datetime):
        since = value - datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return since // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if isinstance(value, time):
        moment = datetime.combine(date(1970, 1, 1), value)
        return (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return value.bytes if isinstance(value, UUID) else value


def _value(row: Mapping[str, Any], name: str) -> Any:
    value: Any = row
    for part in [name] if name in row else name.split("."):
        value = None if value is None else value[part]
    return value
