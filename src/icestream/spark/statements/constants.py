"""Constants of SQL as Python values, if comparing them with a column has exactly one meaning.

Spark casts both sides of a comparison to one type. A constant is used only if casting it to the
column's type gives the same result as Spark's comparison.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from icestream.spark.setup.registration import setting
from icestream.spark.statements.words import sqlglot_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"\d+")
_DECIMAL = re.compile(r"\d*\.?\d+|\d+\.")
_EXACT_DIGITS = 15  # any decimal number with so many digits survives the conversion to a double
_YEARS = range(1970, 2100)  # time zones had unusual offsets before
_BITS = {IntegerType: 31, LongType: 63}
_CAST_BITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_UTC = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00")


class NotConstantError(Exception):
    """The expression is not a constant that can be compared with the column."""


@dataclass(frozen=True, slots=True)
class Constants:
    """Reads constants as a session does.

    Attributes:
        has_escapes: Whether texts may contain escape sequences, so that they are not used.
        zone: The session's time zone; None if Python does not know it.
    """

    has_escapes: bool
    zone: tzinfo | None

    @classmethod
    def of(cls, spark: SparkSession, text: str) -> Constants:
        """The constants of a statement."""
        plain = setting(spark, "spark.sql.timestampType") in (None, "TIMESTAMP_LTZ")
        name = setting(spark, "spark.sql.session.timeZone") or ""
        return cls("\\" in text, _zone(name) if plain else None)

    def value(self, node: Any, kind: IcebergType) -> Any:
        """The value of an expression, to be compared with a column.

        Raises:
            NotConstantError: If it is not a constant, or comparing it needs Spark.
        """
        exp = sqlglot_module("sqlglot.expressions")
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Boolean) and isinstance(kind, BooleanType):
            return bool(node.this)
        number = _number_text(node)
        if number is not None:
            return _number(number, kind)
        if isinstance(node, exp.Literal) and node.is_string and not self.has_escapes:
            return self._text(node.name, kind, typed=None)
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            literal, to = node.this, node.to.this.name
            if isinstance(literal, exp.Literal) and literal.is_string and not self.has_escapes:
                return self._text(literal.name, kind, typed=to)
        raise NotConstantError

    def _text(self, text: str, kind: IcebergType, typed: str | None) -> Any:
        if isinstance(kind, (StringType, UUIDType)) and typed is None:
            return text
        if isinstance(kind, DateType) and typed in (None, "DATE") and _DATE.fullmatch(text):
            return _valid(date, text)
        if not _MOMENT.fullmatch(text) or (typed == "DATE" and not _DATE.fullmatch(text)):
            raise NotConstantError
        moment = _valid(datetime, text)
        if isinstance(kind, TimestampType) and (typed in _PLAIN_TYPES or self.zone is UTC):
            return moment
        has_zone = isinstance(kind, TimestamptzType) and self.zone is not None
        if has_zone and typed in _MOMENT_TYPES and moment.year in _YEARS:
            return moment.replace(tzinfo=self.zone)
        raise NotConstantError


_PLAIN_TYPES = (None, "DATE", "TIMESTAMPNTZ")
_MOMENT_TYPES = (None, "DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ")


def _zone(name: str) -> tzinfo | None:
    if name in _UTC:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _valid(kind: Any, text: str) -> Any:
    try:
        return kind.fromisoformat(text)
    except ValueError:
        raise NotConstantError from None


def _number_text(node: Any) -> str | None:
    """The digits of `5`, `-5`, `5L` or `CAST(5 AS BIGINT)`; None for anything else."""
    exp = sqlglot_module("sqlglot.expressions")
    if isinstance(node, exp.Literal) and not node.is_string:
        return str(node.name)
    if not isinstance(node, (exp.Neg, exp.Cast)):
        return None
    text = _number_text(node.this)
    if text is None:
        return None
    if isinstance(node, exp.Neg):
        return None if text.startswith("-") else f"-{text}"
    bits = _CAST_BITS.get(node.to.this.name)
    is_integer = bits is not None and _NUMBER.fullmatch(text.removeprefix("-"))
    return text if bits and is_integer and abs(int(text)) < 1 << bits else None


def _number(text: str, kind: IcebergType) -> Any:
    digits = text.removeprefix("-")
    if isinstance(kind, (IntegerType, LongType)) and _NUMBER.fullmatch(digits):
        if abs(int(text)) < 1 << _BITS[type(kind)]:
            return int(text)
    elif isinstance(kind, DecimalType) and _DECIMAL.fullmatch(digits):
        return Decimal(text)
    elif isinstance(kind, (FloatType, DoubleType)):
        significant = digits.lower().partition("e")[0].replace(".", "").strip("0")
        value = _float(text)
        is_exact = len(significant) <= _EXACT_DIGITS and math.isfinite(value)
        if is_exact and _fits(value, kind):
            return value
    raise NotConstantError


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise NotConstantError from None


def _fits(value: float, kind: IcebergType) -> bool:
    """Whether a column of the type can hold exactly this value."""
    if isinstance(kind, DoubleType):
        return True
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False
