"""Columns in folder names (`year=2025/month=12/a.parquet`), with the types that Spark infers.

A column is an int, a long, a decimal, a double, a date, a timestamp or a string: the first type
that fits the values of all files. `__HIVE_DEFAULT_PARTITION__` is null. Where a file has a column
of the same name, the folder's value is used.
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
from icestream.write.sources.file_store import shown_path

NULL_NAME = "__HIVE_DEFAULT_PARTITION__"
_MOST_DIGITS = 38
_MOMENT = pa.timestamp("us", "UTC")
_WHOLE = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?")
# As Java reads doubles: with blanks around them, and with a suffix.
_DOUBLE = re.compile(rf"({_NUMBER.pattern}|[+-]?NaN|[+-]?Infinity)[fFdD]?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(rf"{_DAY.pattern} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9])?")

Values = tuple[tuple[str, str], ...]
"""Columns and values of folder names, the outermost first, with the values as written."""


def partition_values(path: str, base: str) -> Values:
    """The columns and values in the names of a file's folders.

    Args:
        path: The file.
        base: The folder that was listed, a prefix of the path. Folders above it count only if they
            follow one another directly above it.

    Raises:
        SourceError: If a folder has a column without a value or a value without a column, or if two
            folders name the same column.
    """
    values: list[tuple[str, str]] = []
    for name, raw in _folders_of(path, base):
        if any(name.casefold() == other.casefold() for other, _ in values):
            raise SourceError(
                f"two folders of {path!r} have a value for {name!r}: rename one, or ignore folder "
                "names with hive_partitions=False"
            )
        values.append((name, raw))
    return tuple(values)


def _folders_of(path: str, base: str) -> list[tuple[str, str]]:
    values: list[tuple[str, str]] = []
    inside = path[len(base) :].strip("/").split("/")[:-1] if path.startswith(base) else []
    for place, folders in (("in", inside), ("above", base.rstrip("/").split("/"))):
        for folder in reversed(folders):
            name, equals, raw = folder.partition("=")
            if equals:
                values.append((_checked(name, raw, folder, path), raw))
            elif values or place == "above":
                return values[::-1]
    return values[::-1]


def _checked(name: str, raw: str, folder: str, path: str) -> str:
    if not name or not raw:
        what = "value" if name else "name"
        raise SourceError(
            f"the folder {folder!r} of {path!r} has no {what}: rename it, or ignore folder names "
            "with hive_partitions=False"
        )
    return unescaped(name)


def unescaped(text: str) -> str:
    """Decode escapes such as `%3A`; bytes above ASCII are UTF-8, or else Latin-1."""
    if "%" not in text:
        return shown_path(text)
    try:
        return shown_path(unquote(text, errors="strict"))
    except UnicodeDecodeError:
        return unquote_to_bytes(text).decode("latin-1")


@dataclass(frozen=True, slots=True)
class PartitionColumns:
    """The columns in the names of folders: plain data, so executors can use it.

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
            values: The columns and values of each file's folders.
            known: Gives the type of a column, or None to infer it from the values.
        """
        seen: dict[str, set[str]] = {}
        for each in values:
            for name, raw in each:
                seen.setdefault(name, set()).add(raw)
        kinds = {name: known(name) or _one_type(raws) for name, raws in seen.items()}
        return cls(pa.schema(list(kinds.items())))

    def over(self, stored: pa.Schema) -> pa.Schema:
        """All columns: the files' columns, in their order, then columns that only folders have."""
        own = {each.name.casefold(): each for each in self.schema}
        fields = [own.pop(each.name.casefold(), each) for each in stored]
        return pa.schema([*fields, *own.values()])

    def put(self, values: Values, path: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        """A function that adds the columns of a file's folders to its batches.

        Raises:
            SourceError: If a value does not fit its column's type.
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
    """The type that Spark infers from one value."""
    if raw == NULL_NAME:
        return pa.null()
    if _WHOLE.fullmatch(raw):
        number = int(raw[:256])  # the maximum length of a name
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
    """The number of digits of a whole number; None for other values and for too many digits."""
    if not _NUMBER.fullmatch(raw):
        return None
    number = Decimal(raw)
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < 0 or number.adjusted() >= _MOST_DIGITS:
        return None
    return len(str(abs(int(number))))


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that Spark uses for values of both types; text holds all values."""
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
            f"a folder of {path!r} has the value {unescaped(raw)!r} for {column.name!r}, and the "
            f"column is {column.type}: give schema= another type, rename the folder, or ignore "
            "folder names with hive_partitions=False"
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
    """A date with a time of day, in UTC."""
    try:
        if not _TIME.fullmatch(text):
            return None
        return datetime.strptime(f"{text}.0"[:21], "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC)
    except ValueError:
        return None


def _midnight(text: str) -> datetime | None:
    day = _day(text)
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)
