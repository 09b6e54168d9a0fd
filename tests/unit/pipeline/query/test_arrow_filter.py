"""Filters of Arrow become filters of Iceberg that select the same rows or more."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from icestream.pipeline.query.arrow_filter import iceberg_filter

_KINDS = {
    "id": LongType(),
    "price": DoubleType(),
    "name": StringType(),
    "day": DateType(),
    "at": TimestampType(),
    "zoned": TimestamptzType(),
    "cost": DecimalType(10, 2),
}
_SCHEMA = Schema(
    *(NestedField(n, name, kind, required=False) for n, (name, kind) in enumerate(_KINDS.items()))
)
_ID, _NAME = pc.field("id"), pc.field("name")
_ZONED = pa.scalar(datetime(2026, 1, 2, 3), pa.timestamp("us", "UTC"))


def _of(expression: Any) -> BooleanExpression:
    return iceberg_filter(str(expression), _SCHEMA)


@pytest.mark.parametrize(
    ("arrow", "iceberg"),
    [
        (_ID > 5, "id > 5"),
        (_ID == -5, "id = -5"),
        ((_ID >= 5) & (_ID < 9) & _NAME.is_valid(), "id >= 5 and id < 9 and name is not null"),
        (_NAME == "a (b) and c", "name = 'a (b) and c'"),
        ((_NAME == ") or (") & (_ID > 5), "name = ') or (' and id > 5"),
        (_NAME.is_null() & (_ID <= 1), "name is null and id <= 1"),
        (pc.field("day") >= pc.scalar(date(2026, 1, 2)), "day >= '2026-01-02'"),
        (pc.field("cost") > pc.scalar(Decimal("1.20")), "cost > 1.20"),
        (pc.field("at") < pc.scalar(datetime(2026, 1, 2, 3, 4)), "at < '2026-01-02T03:04:00'"),
        (pc.field("zoned") < pc.scalar(_ZONED), "zoned < '2026-01-02T03:00:00+00:00'"),
    ],
)
def test_what_iceberg_can_use_is_translated(arrow: Any, iceberg: str) -> None:
    from pyiceberg.expressions.visitors import bind

    assert bind(_SCHEMA, _of(arrow), True) == bind(_SCHEMA, parse(iceberg), True)


@pytest.mark.parametrize(
    "arrow",
    [
        (_ID > 5) | (_NAME == "a"),
        (_NAME == '" and (id > 5) and "') | (_ID > 5),
        pc.field("price") > 5.0,  # NaN
        _ID.isin([1, 2]),
        _NAME == 'say "x"',
        _NAME == "back\\slash",
        pc.field("other") > 5,
        pc.field("s", "x") == 1,
        ~(_ID > 5),
        pc.starts_with(_NAME, "a"),
    ],
)
def test_what_is_not_certain_counts_as_true(arrow: Any) -> None:
    assert _of(arrow) == AlwaysTrue()


def test_the_certain_part_of_a_conjunction_is_used() -> None:
    uncertain = (_ID > 5) | _NAME.is_null()
    assert _of(uncertain & (_ID < 9)) == parse("id < 9")
    assert _of((_ID < 9) & _ID.isin(list(range(50)))) == parse("id < 9")
