"""Casts that keep every value, or name the one that does not fit."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import icestream as ice
from icestream.write.rules.exact_cast import ExactCast

_MONEY = pa.decimal128(10, 2)
_MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5)
_DAY = dt.datetime(2026, 1, 2)


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        (pa.array([1, None]), pa.int32(), [1, None]),
        (pa.array([1, None]), pa.string(), ["1", None]),
        (pa.array([7, -7]), _MONEY, [Decimal(7), Decimal(-7)]),
        (pa.array([7]), pa.decimal128(38, 30), [Decimal(7)]),
        (pa.array([7]), pa.float64(), [7.0]),
        (pa.array([0, 1]), pa.bool_(), [False, True]),
        (pa.array([19.99, 0.1, None]), _MONEY, [Decimal("19.99"), Decimal("0.1"), None]),
        (pa.array([2.0, None]), pa.int64(), [2, None]),
        (pa.array([0.5, math.inf]), pa.float32(), [0.5, math.inf]),
        (pa.array([Decimal("19.99")]), pa.float64(), [19.99]),
        (pa.array([Decimal("1.50")]), pa.decimal128(4, 1), [Decimal("1.5")]),
        (pa.array([Decimal("2.00")]), pa.int32(), [2]),
        (pa.array(["007", None]), pa.int32(), [7, None]),
        (pa.array(["1.5"]), _MONEY, [Decimal("1.5")]),
        (pa.array(["2026-01-02"]), pa.date32(), [dt.date(2026, 1, 2)]),
        (pa.array(["03:04:05"]), pa.time64("us"), [dt.time(3, 4, 5)]),
        (pa.array(["true"]), pa.bool_(), [True]),
        (pa.array([_DAY]), pa.date32(), [dt.date(2026, 1, 2)]),
        (pa.array([dt.date(2026, 1, 2)]), pa.timestamp("us"), [_DAY]),
        (pa.array([_MOMENT]), pa.timestamp("us", "UTC"), [_MOMENT.replace(tzinfo=dt.UTC)]),
        (pa.array([b"ab"]), pa.string(), ["ab"]),
        (pa.array([b"ab"]), pa.binary(2), [b"ab"]),
        (pa.nulls(2), pa.int32(), [None, None]),
        (pa.array([[1, 2], None]), pa.list_(pa.int32()), [[1, 2], None]),
        (pa.array([{"a": 1}]), pa.struct([("a", pa.int32())]), [{"a": 1}]),
    ],
)
def test_values_that_fit_are_cast(values: pa.Array, target: pa.DataType, expected: Any) -> None:
    cast = ExactCast("a", values.type, target)(values)
    assert cast.type == target
    assert cast.to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "target", "shown"),
    [
        (pa.array([1, 2**31]), pa.int32(), "2147483648"),
        (pa.array([1, 2]), pa.bool_(), "2"),
        (pa.array([1, 10**9]), _MONEY, "1000000000"),
        (pa.array([1.5]), pa.int64(), "1.5"),
        (pa.array([0.25, 1.555, 9.999]), _MONEY, "1.555"),
        (pa.array([0.5, 0.1]), pa.float32(), "0.1"),
        (pa.array([1e300]), pa.float32(), "1e[+]?300"),
        (pa.array([math.nan]), _MONEY, "nan"),
        (pa.array([Decimal("1.23456789012345678")]), pa.float64(), "1.23456789012345678"),
        (pa.array([Decimal("1.55")]), pa.decimal128(4, 1), "1.55"),
        (pa.array(["1", None, "abc", "x"]), pa.int32(), "abc"),
        (pa.array(["2026-13-01"]), pa.date32(), "2026-13-01"),
        (pa.array([_DAY, _MOMENT]), pa.date32(), "2026-01-02 03:04:05"),
        (pa.array(["no key"]), pa.uuid(), "no key"),
        (pa.array([[1], [2**40]]), pa.list_(pa.int32()), "1099511627776"),
    ],
)
def test_an_error_names_the_column_and_the_first_value_that_does_not_fit(
    values: pa.Array, target: pa.DataType, shown: str
) -> None:
    with pytest.raises(ice.InvalidDataError, match=f"column 'a' has the value .*{shown}") as error:
        ExactCast("a", values.type, target)(values)
    assert error.value.column == "a"


@pytest.mark.parametrize("target", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_uuids_become_text(target: pa.DataType) -> None:
    text = "0a1b2c3d-0000-4000-8000-00000000000f"
    storage = pa.array([None, uuid.UUID(text).bytes], pa.binary(16))
    values = pa.ExtensionArray.from_storage(pa.uuid(), storage)
    cast = ExactCast("a", pa.uuid(), target)(values)
    assert (cast.type, cast.to_pylist()) == (target, [None, text])


def test_nan_stays_nan_in_a_shorter_float() -> None:
    cast = ExactCast("a", pa.float64(), pa.float32())(pa.array([math.nan, None]))
    assert math.isnan(cast[0].as_py())
    assert cast[1].as_py() is None


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(ice.InvalidDataError) as error:
        ExactCast("a", pa.string(), pa.int32())(pa.array(["x" * 1000]))
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.struct([("a", pa.int32())]), pa.string()),
        (pa.int64(), pa.timestamp("us")),
        (pa.int64(), pa.list_(pa.int64())),
        (pa.timestamp("us"), pa.time64("us")),
        (pa.uuid(), pa.int64()),
        (pa.bool_(), pa.date32()),
    ],
)
def test_types_without_an_exact_cast_are_refused_before_rows_are_read(
    source: pa.DataType, target: pa.DataType
) -> None:
    with pytest.raises(ice.InvalidArgumentError, match="no exact cast"):
        ExactCast("a", source, target)
