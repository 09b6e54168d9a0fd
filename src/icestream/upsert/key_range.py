"""The lowest and the highest key of a stream: which files and rows a merge has to do with."""

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

from icestream.upsert.key_columns import KeyColumns

# Of floats, NaN is outside of every range; of the others PyIceberg has no literals, or no bounds.
_ORDERED = (
    IntegerType,
    LongType,
    DateType,
    DecimalType,
    StringType,
    TimestampType,
    TimestamptzType,
)


class KeyRange:
    """Lowest and highest values, column by column.

    Args:
        key: The columns.
    """

    def __init__(self, key: KeyColumns) -> None:
        self._key = key
        self._bounds: list[tuple[Any, Any] | None] = [None] * len(key.fields)
        self._ordered = [_is_ordered(field.field_type) for field in key.fields]

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Widen the range by more keys."""
        for number, column in enumerate(columns):
            if not self._ordered[number]:
                continue
            found = pc.min_max(column)
            try:
                low, high = found["min"].as_py(), found["max"].as_py()
            except (ValueError, OverflowError):  # Moments before the year 1, or after 9999.
                self._ordered[number], self._bounds[number] = False, None
                continue
            if low is None:
                continue
            self._widen(number, low, high)

    def bounds(self) -> list[tuple[Any, Any] | bool]:
        """What `add_bounds` adds, as plain values: True for no keys, False for no order."""
        return [
            (bounds or True) if ordered else False
            for bounds, ordered in zip(self._bounds, self._ordered, strict=True)
        ]

    def add_bounds(self, bounds: Sequence[tuple[Any, Any] | bool]) -> None:
        """Widen the range by that of other keys of the same columns."""
        for number, each in zip(range(len(self._bounds)), bounds, strict=True):
            if each is False:
                self._ordered[number], self._bounds[number] = False, None
            elif isinstance(each, tuple) and self._ordered[number]:
                self._widen(number, *each)

    def filter(self) -> BooleanExpression:
        """True for every key in the range; for others too, where a column has no order."""
        result: BooleanExpression = AlwaysTrue()
        at_least: Callable[..., BooleanExpression] = GreaterThanOrEqual
        at_most: Callable[..., BooleanExpression] = LessThanOrEqual
        for name, bounds in zip(self._key.names, self._bounds, strict=True):
            if bounds is not None:
                within = And(at_least(name, bounds[0]), at_most(name, bounds[1]))
                result = And(result, within)
        return result

    def _widen(self, number: int, low: Any, high: Any) -> None:
        before = self._bounds[number]
        if before is not None:
            low, high = min(low, before[0]), max(high, before[1])
        self._bounds[number] = (low, high)


def _is_ordered(kind: IcebergType) -> bool:
    return isinstance(kind, _ORDERED)
