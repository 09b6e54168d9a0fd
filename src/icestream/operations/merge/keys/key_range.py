"""The lowest and the highest key of a stream, which limit the files that a merge reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    LessThanOrEqual,
)
from pyiceberg.expressions.literals import DateLiteral, TimestampLiteral
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from icestream.operations.merge.keys.key_columns import KeyColumns

# Floats are missing because NaN is outside every range. For the other types, PyIceberg has no
# literals or no bounds.
_TIMESTAMPS = (TimestampType, TimestamptzType)
_ORDERED = (IntegerType, LongType, DateType, DecimalType, StringType, *_TIMESTAMPS)


class KeyRange:
    """The lowest and the highest value of each key column.

    Args:
        key: The key columns.
    """

    def __init__(self, key: KeyColumns) -> None:
        self._key = key
        self._bounds: list[tuple[Any, Any] | None] = [None] * len(key.fields)
        self._ordered = [isinstance(field.field_type, _ORDERED) for field in key.fields]

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Extend the range to more keys."""
        for number, column in enumerate(columns):
            if not self._ordered[number]:
                continue
            bounds = pc.min_max(_numbers(column))
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            if low is not None:
                self._widen(number, low, high)

    def bounds(self) -> list[tuple[Any, Any] | bool]:
        """The bounds of each column: True if it has no keys yet, False if it has no order."""
        return [
            (bounds or True) if ordered else False
            for bounds, ordered in zip(self._bounds, self._ordered, strict=True)
        ]

    def add_bounds(self, bounds: Sequence[tuple[Any, Any] | bool]) -> None:
        """Extend the range by the `bounds` of other keys."""
        for number, each in zip(range(len(self._bounds)), bounds, strict=True):
            if each is False:
                self._ordered[number], self._bounds[number] = False, None
            elif isinstance(each, tuple) and self._ordered[number]:
                self._widen(number, *each)

    def filter(self) -> BooleanExpression:
        """A filter that is true for every key in the range. It ignores columns without order."""
        result: BooleanExpression = AlwaysTrue()
        at_least: Callable[..., BooleanExpression] = GreaterThanOrEqual
        at_most: Callable[..., BooleanExpression] = LessThanOrEqual
        for field, name, bounds in zip(
            self._key.fields, self._key.names, self._bounds, strict=True
        ):
            if bounds is not None:
                low, high = (_literal(field.field_type, bound) for bound in bounds)
                result = And(result, And(at_least(name, low), at_most(name, high)))
        return result

    def _widen(self, number: int, low: Any, high: Any) -> None:
        before = self._bounds[number]
        if before is not None:
            low, high = min(low, before[0]), max(high, before[1])
        self._bounds[number] = (low, high)


def _numbers(column: pa.Array) -> pa.Array:
    """Dates and timestamps as integers: Python's own end with the year 9999."""
    if pa.types.is_date32(column.type):
        return column.view(pa.int32())
    return column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column


def _literal(kind: IcebergType, value: Any) -> Any:
    if isinstance(kind, DateType):
        return DateLiteral(value)
    return TimestampLiteral(value) if isinstance(kind, _TIMESTAMPS) else value
