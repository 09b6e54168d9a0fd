"""Filters of Arrow as filters of Iceberg, to skip files and row groups.

DuckDB passes the filters of a query to a table as an Arrow expression. Arrow has no way to take an
expression apart, so its text is read. Parts that are not understood count as true. The result may
therefore select too many rows, but never too few: the caller applies the expression as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
)
from pyiceberg.schema import Schema
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

_COMPARISONS: dict[str, Any] = {
    "==": EqualTo,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
    "<": LessThan,
    "<=": LessThanOrEqual,
}
_TESTS: dict[str, Any] = {"is_valid": NotNull, "is_null": IsNull}
_COMPARED = re.compile(r'\(?(\w+) (==|>=|<=|>|<) ("[^"]*"|[^()]+?)\)?')
_PRESENCE = re.compile(r"(is_valid|is_null)\((\w+)(?:, \{nan_is_null=false\})?\)")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,6})?)0*(Z?)")
_TEXT = re.compile(r'"([^"\\]*)"')


def iceberg_filter(text: str, schema: Schema) -> BooleanExpression:
    """The part of an Arrow expression that Iceberg can use.

    Args:
        text: The expression, as Arrow prints it.
        schema: The table's schema.
    """
    if "\\" in text:  # an escape in a literal
        return AlwaysTrue()
    parts = [_filter(part, schema) for part in _conjuncts(text)]
    certain = [part for part in parts if part != AlwaysTrue()]
    if len(certain) < 2:
        return certain[0] if certain else AlwaysTrue()
    return And(*certain)


def _conjuncts(text: str) -> Iterator[str]:
    """The parts that are joined by `and`."""
    text = text.strip()
    if not _is_wrapped(text):
        yield text
        return
    inner, depth, quoted, start = text[1:-1], 0, False, 0
    parts = []
    for at, character in enumerate(inner):
        if character == '"':
            quoted = not quoted
        elif not quoted:
            depth += (character in "([{") - (character in ")]}")
            if depth == 0 and inner.startswith(" or ", at):
                return  # one of the two suffices, so that nothing is certain
            if depth == 0 and inner.startswith(" and ", at):
                parts.append(inner[start:at])
                start = at + len(" and ")
    if not parts:
        yield text
        return
    for part in (*parts, inner[start:]):
        yield from _conjuncts(part)


def _is_wrapped(text: str) -> bool:
    """Whether the first parenthesis ends at the end."""
    if not text.startswith("("):
        return False
    depth, quoted = 0, False
    for at, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif not quoted:
            depth += (character in "([{") - (character in ")]}")
            if depth == 0:
                return at == len(text) - 1
    return False


def _filter(text: str, schema: Schema) -> BooleanExpression:
    if match := _PRESENCE.fullmatch(text):
        if _type_of(match[2], schema) is None:
            return AlwaysTrue()
        present: BooleanExpression = _TESTS[match[1]](match[2])
        return present
    if match := _COMPARED.fullmatch(text):
        kind = _type_of(match[1], schema)
        literal = None if kind is None else _literal(match[3], kind)
        if literal is not None:
            compared: BooleanExpression = _COMPARISONS[match[2]](match[1], literal)
            return compared
    return AlwaysTrue()


def _type_of(name: str, schema: Schema) -> IcebergType | None:
    return next((field.field_type for field in schema.fields if field.name == name), None)


def _literal(text: str, kind: IcebergType) -> str | int | None:
    """The value for Iceberg. None if its text is not certain, as that of floats."""
    if isinstance(kind, (IntegerType, LongType)):
        return int(text) if _NUMBER.fullmatch(text) and "." not in text else None
    if isinstance(kind, DecimalType):
        return text if _NUMBER.fullmatch(text) else None
    if isinstance(kind, DateType):
        return text if _DATE.fullmatch(text) else None
    if isinstance(kind, (TimestampType, TimestamptzType)):
        match = _MOMENT.fullmatch(text)
        if match is None or bool(match[3]) != isinstance(kind, TimestamptzType):
            return None
        return f"{match[1]}T{match[2]}" + ("+00:00" if match[3] else "")
    if isinstance(kind, StringType):
        match = _TEXT.fullmatch(text)
        return match[1] if match else None
    return None
