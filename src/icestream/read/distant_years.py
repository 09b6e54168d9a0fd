"""Dates and timestamps before the year 1 and after 9999.

Iceberg, Arrow and Spark store them as days or microseconds since 1970. Python's `datetime` can't
represent them, and PyIceberg converts most values to it. This module replaces those conversions.
Inside the years 1 to 9999, everything stays as PyIceberg does it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions.literals import DateLiteral, Literal, StringLiteral, TimestampLiteral
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import DateType, IcebergType, TimestampType, TimestamptzType

_MICROS_PER_DAY = 86_400 * 10**6
# 0001-01-01 and 9999-12-31, the first and the last day of Python's `datetime`.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_TEXT = re.compile(
    r"(?P<day>[-+]?\d{4,9}-\d{2}-\d{2})"
    r"(?:[T ](?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,6}))?)?"
    r"(?P<zone>Z|[-+]\d{2}:\d{2})?)?"
)


def distant_literal(literal: Literal[Any], kind: IcebergType) -> Literal[Any] | None:
    """The literal of a text such as `10000-01-01` or `-0044-03-15T10:00:00`.

    Args:
        literal: A literal of a filter.
        kind: The type of the column that it is compared with.

    Returns:
        The literal, or None if the text is not a date or timestamp outside the years 1 to 9999. In
        that case PyIceberg decides what it means.

    Raises:
        ValueError: If the column's type can't hold the value.
    """
    if not isinstance(kind, (DateType, TimestampType, TimestamptzType)):
        return None
    match = _TEXT.fullmatch(literal.value) if isinstance(literal, StringLiteral) else None
    if match is None:
        return None
    days = _days(match["day"])
    if days is None or _FIRST_DAY <= days <= _LAST_DAY:
        return None
    if isinstance(kind, DateType):
        return None if match["hour"] else DateLiteral(_within(days, _INT_MAX, literal, kind))
    if match["zone"] is not None and not isinstance(kind, TimestamptzType):
        return None
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    seconds = (hour * 60 + minute) * 60 + second
    micros = days * _MICROS_PER_DAY + seconds * 10**6 + int((match["fraction"] or "").ljust(6, "0"))
    micros -= _offset_minutes(match["zone"]) * 60 * 10**6
    return TimestampLiteral(_within(micros, _LONG_MAX, literal, kind))


def _days(text: str) -> int | None:
    try:
        return int(np.datetime64(text, "D").astype(np.int64))
    except ValueError:
        return None


def _offset_minutes(zone: str | None) -> int:
    if zone is None or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[4:6])
    return -minutes if zone[0] == "-" else minutes


def _within(number: int, limit: int, literal: Literal[Any], kind: IcebergType) -> int:
    if not -limit - 1 <= number <= limit:
        raise ValueError(f"{literal.value} is out of range for a {kind}")
    return number


def any_year(spec: PartitionSpec) -> PartitionSpec:
    """The same spec with transforms that work for dates of all years."""
    if not any(type(field.transform) in _ANY_YEAR for field in spec.fields):
        return spec
    fields = [
        PartitionField(field.source_id, field.field_id, any_year_transform(field), field.name)
        for field in spec.fields
    ]
    return PartitionSpec(*fields, spec_id=spec.spec_id)


def any_year_transform(field: PartitionField) -> Transform[Any, Any]:
    """The transform of a partition field, in a form that works for dates of all years."""
    replacement = _ANY_YEAR.get(type(field.transform))
    return field.transform if replacement is None else replacement()


def _calendar(unit: str, per_day: int) -> Callable[[int], int]:
    """A function from days or microseconds to months ("M") or years ("Y") since 1970."""

    def convert(value: int) -> int:
        day = np.datetime64(value // per_day, "D")
        return int(day.astype(f"datetime64[{unit}]").astype(np.int64))

    return convert


def _fallback(
    transform: Callable[[Any], int | None], source: IcebergType, unit: str
) -> Callable[[Any], int | None]:
    convert = _calendar(unit, 1 if isinstance(source, DateType) else _MICROS_PER_DAY)

    def run(value: Any) -> int | None:
        try:
            return transform(value)
        except OverflowError:
            return convert(value)

    return run


class _Year(YearTransform[Any]):
    def transform(self, source: IcebergType) -> Callable[[Any], int | None]:
        return _fallback(super().transform(source), source, "Y")


class _Month(MonthTransform[Any]):
    def transform(self, source: IcebergType) -> Callable[[Any], int | None]:
        return _fallback(super().transform(source), source, "M")


class _Day(DayTransform[Any]):
    def to_human_string(self, kind: IcebergType, value: Any) -> str:
        return _day_text(value) if _is_distant(value, 1) else super().to_human_string(kind, value)


class _Hour(HourTransform[Any]):
    def to_human_string(self, kind: IcebergType, value: Any) -> str:
        if not _is_distant(value, 24):
            return super().to_human_string(kind, value)
        return f"{_day_text(value // 24)}-{value % 24:02d}"


class _Identity(IdentityTransform[Any]):
    def to_human_string(self, source_type: IcebergType, value: Any) -> str:
        if isinstance(source_type, DateType) and _is_distant(value, 1):
            return _day_text(value)
        if isinstance(source_type, (TimestampType, TimestamptzType)) and _is_distant(
            value, _MICROS_PER_DAY
        ):
            zone = "+00:00" if isinstance(source_type, TimestamptzType) else ""
            return f"{_moment_text(value)}{zone}"
        return super().to_human_string(source_type, value)


_ANY_YEAR: dict[type, type[Transform[Any, Any]]] = {
    YearTransform: _Year,
    MonthTransform: _Month,
    DayTransform: _Day,
    HourTransform: _Hour,
    IdentityTransform: _Identity,
}


def _is_distant(value: Any, per_day: int) -> bool:
    return isinstance(value, int) and not _FIRST_DAY <= value // per_day <= _LAST_DAY


def _day_text(days: int) -> str:
    """A day as in paths that Iceberg's Java library writes, such as `10000-01-01`."""
    month = np.datetime64(days, "D").astype("datetime64[M]")
    years, months = divmod(int(month.astype(np.int64)), 12)
    day = days - int(month.astype("datetime64[D]").astype(np.int64)) + 1
    return f"{1970 + years:04d}-{months + 1:02d}-{day:02d}"


def _moment_text(micros: int) -> str:
    days, rest = divmod(micros, _MICROS_PER_DAY)
    seconds, fraction = divmod(rest, 10**6)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{_day_text(days)}T{text}" + (f".{fraction:06d}" if fraction else "")


def shown_values(array: pa.Array) -> list[Any]:
    """The values of an array as Python objects, and as text if Python has no object for them.

    Args:
        array: A column, for messages and output. Its values may be nested.
    """
    try:
        values: list[Any] = array.to_pylist()
        return values
    except (ValueError, OverflowError):
        return [_shown(value) for value in array]


def _shown(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        pass
    kind = value.type
    if pa.types.is_date32(kind):
        return _day_text(value.value)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _moment_text(value.value) + ("+00:00" if kind.tz else "")
    if pa.types.is_struct(kind):
        return {name: _shown(child) for name, child in value.items()}
    if pa.types.is_map(kind):
        return [(_shown(item["key"]), _shown(item["value"])) for item in value.values]
    if hasattr(value, "values") and value.values is not None:
        return [_shown(child) for child in value.values]
    return str(value)
