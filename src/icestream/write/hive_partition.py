"""Columns that folder names hold (`year=2025/month=12/a.parquet`), with the types that Spark gives.

A column is an int, a long, a decimal, a double, a date, a timestamp or a string, whichever fits the
values of all files. `__HIVE_DEFAULT_PARTITION__` is null. Where a file has a column of the same
name, the folder's counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import pyarrow as pa

from icestream.errors import SourceError

NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
_MOST_DIGITS = 38
_MOMENT = pa.timestamp("us", "UTC")
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?")
# Java's: blanks around it, and a suffix, are a part of a number.
_DOUBLE = re.compile(rf"({_NUMBER.pattern}|[+-]?NaN|[+-]?Infinity)[fFdD]?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(rf"{_DAY.pattern} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9])?")

Values = tuple[tuple[str, str], ...]
"""Names and values of folders, the outermost first, the values as they are written."""


def partition_values(path: str, base: str) -> Values:
    """What the folders of a file say of its rows.

    Args:
        path: The file.
        base: The folder that was listed, which is a part of the path: folders above it count only
            if they are next to it, one above the other.

    Raises:
        SourceError: If a folder has a name without a value, or the other way round.
    """
    found: list[tuple[str, str]] = []
    for name, raw in _folders_of(path, base):
        if any(name.casefold() == other.casefold() for other, _ in found):
            raise SourceError(
                f"folders of {path!r} say twice what {name!r} is: rename one, or leave columns of "
                "folders out with hive_partitions=False"
            )
        found.append((name, raw))
    return tuple(found)


def _folders_of(path: str, base: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    inside = path[len(base) :].strip("/").split("/")[:-1] if path.startswith(base) else []
    for place, folders in (("in", inside), ("above", base.rstrip("/").split("/"))):
        for folder in reversed(folders):
            name, equals, raw = folder.partition("=")
            if equals:
                found.append((_checked(name, raw, folder, path), raw))
            elif found or place == "above":
                return found[::-1]
    return found[::-1]


def _checked(name: str, raw: str, folder: str, path: str) -> str:
    if not name or not raw:
        what = "value" if name else "name"
        raise SourceError(
            f"the folder {folder!r} of {path!r} has no {what}: rename it, or leave columns of "
            "folders out with hive_partitions=False"
        )
    return unescaped(name)


def unescaped(text: str) -> str:
    """The text with `%3A` as a colon; bytes above ASCII are UTF-8, or else Latin-1."""
    if "%" not in text:
        return _plain(text)
    try:
        return _plain(unquote(text, errors="strict"))
    except UnicodeDecodeError:
        return unquote_to_bytes(text).decode("latin-1")


def _plain(text: str) -> str:
    """Text of a name that need not be valid UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """The columns that folders of some files hold: plain data, which may travel to executors.

    Attributes:
        schema: Their names and types.
    """

    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))

    @classmethod
    def of(
        cls, values: Iterable[Values], known: Callable[[str], pa.DataType | None]
    ) -> PartitionColumns:
        """The columns of files.

        Args:
            values: What the folders of each file say.
            known: The type that a column is to have; None: what its values look like.
        """
        seen: dict[str, set[str]] = {}
        for each in values:
            for name, raw in each:
                seen.setdefault(name, set()).add(raw)
        kinds = {name: known(name) or _one_type(raws) for name, raws in seen.items()}
        return cls(pa.schema(list(kinds.items())))

    def over(self, stored: pa.Schema) -> pa.Schema:
        """All columns: those of files, in their order, and those that only folders have."""
        own = {each.name.casefold(): each for each in self.schema}
        fields = [own.pop(each.name.casefold(), each) for each in stored]
        return pa.schema([*fields, *own.values()])

    def put(self, values: Values, path: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """A function that gives the batches of a file the columns of its folders.

        Raises:
            SourceError: If a value is not of its column's type.
        """
        if not self.schema.names:
            return _unchanged
        raws = dict(values)
        constants = {
            each.name.casefold(): _scalar(raws.get(each.name), each, path) for each in self.schema
        }

        def put(batch: pa.RecordBatch) -> pa.RecordBatch:
            schema = self.over(batch.schema)
            own = {name.casefold(): index for index, name in enumerate(batch.schema.names)}
            columns = [
                batch.column(own[each.name.casefold()])
                if (value := constants.get(each.name.casefold())) is None
                else pa.repeat(value, batch.num_rows)
                for each in schema
            ]
            return pa.RecordBatch.from_arrays(columns, schema=schema)

        return put


def _unchanged(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _one_type(raws: Iterable[str]) -> pa.DataType:
    """The type that fits all values."""
    kind = reduce(_wider, (_type_of(raw) for raw in sorted(raws)))
    return pa.string() if pa.types.is_null(kind) else kind


def _type_of(raw: str) -> pa.DataType:
    """The type of one value, as Spark guesses it."""
    if raw == NULL_NAME:
        return pa.null()
    if _WHOLE.fullmatch(raw):
        number = int(raw[:256])  # as long as a name can be
        for bits, kind in ((31, pa.int32()), (63, pa.int64())):
            if -(1 << bits) <= number < 1 << bits:
                return kind
    if (precision := _whole_digits(raw)) is not None:
        return pa.decimal128(precision, 0)
    if _DOUBLE.fullmatch(raw.strip()):
        return pa.float64()
    if _moment(unescaped(raw)) is not None:
        return _MOMENT
    if _day(raw) is not None:
        return pa.date32()
    return pa.string()


def _whole_digits(raw: str) -> int | None:
    """How many digits a whole number has, if it is written as one and there are not too many."""
    if not _NUMBER.fullmatch(raw):
        return None
    number = Decimal(raw)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < 0 or number.adjusted() >= _MOST_DIGITS:
        return None
    return len(str(abs(int(number))))


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that takes the values of both, as Spark decides it; text takes all."""
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    kinds = (one, other)
    if all(types.is_integer(each) for each in kinds):
        return pa.int64()
    if all(types.is_integer(each) or types.is_decimal(each) for each in kinds):
        return pa.decimal128(max(_precision(each) for each in kinds), 0)
    if pa.int32() in kinds and pa.float64() in kinds:
        return pa.float64()
    if pa.date32() in kinds and _MOMENT in kinds:
        return _MOMENT
    return pa.string()


def _precision(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind):
        return int(kind.precision)
    return 10 if kind == pa.int32() else 20


def _scalar(raw: str | None, column: pa.Field, path: str) -> pa.Scalar:
    """A value in the type of its column."""
    if raw is None or raw == NULL_NAME:
        return pa.scalar(None, column.type)
    try:
        return _convert(raw, column.type)
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        raise SourceError(
            f"the folders of {path!r} say that {column.name!r} is {unescaped(raw)!r}, and the "
            f"column is {column.type}: give schema= another type, rename the folder, or leave "
            "columns of folders out with hive_partitions=False"
        ) from error


def _convert(raw: str, kind: pa.DataType) -> pa.Scalar:
    types, text = pa.types, unescaped(raw)
    if types.is_integer(kind) and _WHOLE.fullmatch(text):
        return pa.scalar(int(text), kind)
    if types.is_decimal(kind) and _NUMBER.fullmatch(text):
        return pa.scalar(Decimal(text)).cast(kind)
    if types.is_floating(kind) and _DOUBLE.fullmatch(text.strip()):
        plain = text.strip()
        is_word = plain.endswith(("NaN", "Infinity"))
        return pa.scalar(float(plain if is_word else plain.rstrip("fFdD")), kind)
    if types.is_timestamp(kind) and (moment := _moment(text) or _midnight(text)) is not None:
        value: Any = moment if kind.tz is not None else moment.replace(tzinfo=None)
        return pa.scalar(value, kind)
    return pa.array([text], pa.string()).cast(kind)[0]


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def _moment(text: str) -> datetime | None:
    """A time of day on a day, which is taken for UTC."""
    try:
        if not _TIME.fullmatch(text):
            return None
        return datetime.strptime(f"{text}.0"[:21], "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    except ValueError:
        return None


def _midnight(text: str) -> datetime | None:
    day = _day(text)
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)
