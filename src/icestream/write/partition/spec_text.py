"""Parses a new table's partitioning and sort order, such as `day(ts)` and `price desc`.

| text | transform | name of the partition field |
|---|---|---|
| `region` | identity | `region` |
| `year(ts)`, `month(ts)`, `day(ts)`, `hour(ts)`; or `days(ts)` | time | `ts_year`, ... |
| `bucket(16, id)` | bucket[16] | `id_bucket` |
| `truncate(4, name)` | truncate[4] | `name_trunc` |

The number may also come second, as in `bucket(id, 16)`. Column names with characters other than
letters, digits, `_` and `.` need backticks. A sort field is the same text, optionally followed by
`asc` or `desc` and by `nulls first` or `nulls last`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from icestream.errors import InvalidArgumentError, UnknownColumnError, UnsupportedFeatureError
from icestream.write.partition import transforms

_TIMES: dict[str, type[Transform[Any, Any]]] = {
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}
_NUMBERED: dict[str, type[Transform[Any, Any]]] = {
    "bucket": BucketTransform,
    "truncate": TruncateTransform,
}
_ENDINGS: dict[type[Any], str] = {BucketTransform: "_bucket", TruncateTransform: "_trunc"}
_COLUMN = r"`(?:[^`]|``)+`|[\w.]+"
_PLAIN = re.compile(rf"({_COLUMN})")
_CALL = re.compile(rf"(\w+)\s*\(\s*({_COLUMN})\s*(?:,\s*({_COLUMN})\s*)?\)")
_ORDER = re.compile(r"(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE)
_FORMS = "'region', 'day(ts)', 'bucket(16, id)' or 'truncate(4, name)'"


def partition_spec(texts: Sequence[str], schema: Schema) -> PartitionSpec:
    """Parse a partition spec.

    Args:
        texts: One text for each field.
        schema: The table's schema.

    Raises:
        UnknownColumnError: If the schema lacks a column.
        InvalidArgumentError: If a text can't be parsed, or two texts give the same field.
    """
    fields: list[PartitionField] = []
    for number, text in enumerate(_listed(texts, "partition_by")):
        source_id, transform = _parse(text, schema, "partition_by")
        column = schema.find_column_name(source_id)
        name = f"{column}{_ENDINGS.get(type(transform)) or _time_ending(transform)}"
        if any(field.name == name for field in fields):
            raise InvalidArgumentError(
                f"partition_by has {text!r}, which makes a second field {name!r}: leave one out"
            )
        if name != column and name in schema.column_names:
            raise InvalidArgumentError(
                f"partition_by has {text!r}, whose field {name!r} is a column's name, too: rename "
                "the column"
            )
        fields.append(PartitionField(source_id, PARTITION_FIELD_ID_START + number, transform, name))
    return PartitionSpec(*fields)


def sort_order(texts: Sequence[str], schema: Schema) -> SortOrder:
    """Parse a sort order. By default, nulls come first in ascending and last in descending order.

    Args:
        texts: One text for each field, such as `"ts desc nulls last"`.
        schema: The table's schema.

    Raises:
        UnknownColumnError: If the schema lacks a column.
        InvalidArgumentError: If a text can't be parsed.
    """
    fields = []
    for text in _listed(texts, "sort_by"):
        match = _ORDER.fullmatch(text.strip())
        assert match is not None  # The pattern matches any text.
        direction, nulls = (part and part.lower() for part in match.group(2, 3))
        source_id, transform = _parse(match.group(1), schema, "sort_by", shown=text)
        descending = direction == "desc"
        first = nulls == "first" if nulls else not descending
        fields.append(
            SortField(
                source_id=source_id,
                transform=transform,
                direction=SortDirection.DESC if descending else SortDirection.ASC,
                null_order=NullOrder.NULLS_FIRST if first else NullOrder.NULLS_LAST,
            )
        )
    return SortOrder(*fields)


def _listed(texts: Sequence[str], argument: str) -> Sequence[str]:
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
        raise InvalidArgumentError(
            f"{argument} is {texts!r}: give a list of texts such as ['day(ts)', 'region']"
        )
    return texts


def _parse(
    text: str, schema: Schema, argument: str, shown: str | None = None
) -> tuple[int, Transform[Any, Any]]:
    shown = text if shown is None else shown
    column, transform = _split(text.strip(), shown, argument)
    try:
        field = schema.find_field(column)
    except ValueError as error:
        raise UnknownColumnError(
            f"{argument} has {shown!r}, but there is no column {column!r}: there are "
            f"{', '.join(schema.column_names)}"
        ) from error
    try:
        if not field.field_type.is_primitive:
            raise UnsupportedFeatureError(f"column {column!r} is {field.field_type}")
        transforms.check(transform, field.field_type, column=column)
    except UnsupportedFeatureError as error:
        raise InvalidArgumentError(
            f"{argument} has {shown!r}, which is not for such a column: {error}"
        ) from error
    return field.field_id, transform


def _split(text: str, shown: str, argument: str) -> tuple[str, Transform[Any, Any]]:
    """The column and the transform of a text."""
    if (plain := _PLAIN.fullmatch(text)) is not None:
        return _unquoted(plain.group(1)), IdentityTransform()
    call = _CALL.fullmatch(text)
    if call is None:
        raise InvalidArgumentError(
            f"{argument} has {shown!r}, which is not understood: write {_FORMS}"
        )
    name, first, second = call.group(1).lower(), call.group(2), call.group(3)
    singular = name.removesuffix("s")
    if name == "identity" and second is None:
        return _unquoted(first), IdentityTransform()
    if singular in _TIMES and second is None:
        return _unquoted(first), _TIMES[singular]()
    if name in _NUMBERED and second is not None:
        number, column = (first, second) if first.isdecimal() else (second, first)
        if number.isdecimal() and int(number) > 0:
            return _unquoted(column), _NUMBERED[name](int(number))
    raise InvalidArgumentError(
        f"{argument} has {shown!r}, for which there is no transform: write {_FORMS}"
    )


def _unquoted(column: str) -> str:
    return column[1:-1].replace("``", "`") if column.startswith("`") else column


def _time_ending(transform: Transform[Any, Any]) -> str:
    return "" if isinstance(transform, IdentityTransform) else f"_{transform}"
