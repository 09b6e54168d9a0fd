"""The range of a stream's keys: no key is outside it, whatever its type."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, TimestampType

import icestream as ice
from icestream.operations.merge.keys.key_columns import KeyColumns
from icestream.operations.merge.keys.key_range import KeyRange

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "x", DoubleType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
)


def _range(*names: str) -> KeyRange:
    return KeyRange(KeyColumns.of(_SCHEMA, names, table="db.t"))


def test_the_range_grows_with_every_batch_and_ignores_nulls() -> None:
    keys = _range("id")
    assert keys.bounds() == [True]
    for values in ([5, None, 7], [None], [], [-1, 6]):
        keys.add([pa.array(values, pa.int64())])
    assert keys.bounds() == [(-1, 7)]
    assert str(keys.filter()).count("id") == 2


def test_a_column_without_an_order_does_not_limit_files() -> None:
    """NaN is outside every range."""
    keys = _range("x")
    keys.add([pa.array([1.0, float("nan")])])
    assert keys.bounds() == [False]
    assert keys.filter() == AlwaysTrue()


def test_a_time_that_python_cannot_hold_is_part_of_the_range() -> None:
    keys = _range("id", "at")
    for moment in (0, 2**62, 0):
        keys.add([pa.array([moment]), pa.array([moment], pa.timestamp("us"))])
    assert keys.bounds() == [(0, 2**62), (0, 2**62)]


def test_ranges_of_workers_become_one() -> None:
    whole, part, unordered = _range("id", "x"), _range("id", "x"), _range("id", "x")
    part.add([pa.array([3, 9]), pa.array([None, None], pa.float64())])
    unordered.add([pa.array([4]), pa.array([float("nan")])])
    for each in (_range("id", "x"), part, unordered, part):
        whole.add_bounds(each.bounds())
    assert whole.bounds() == [(3, 9), False]


@pytest.mark.parametrize("names", [[], ["id", "id"], ["none"], [1]])
def test_keys_that_are_no_columns_are_refused(names: list[str]) -> None:
    with pytest.raises(ice.InvalidArgumentError):
        KeyColumns.of(_SCHEMA, names, table="db.t")
