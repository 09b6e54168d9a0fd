"""Keys as numbers: equal for equal keys, and for no others."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icestream.operations.merge.keys.key_hash import BUCKETS, KeyHash, Keys

_NAN = float("nan")
_KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    (pa.int64(), [-(2**63), -1, 0, 1, 2**63 - 1]),
    (pa.float32(), [-1.5, 0.0, 1.5, _NAN, float("inf"), float("-inf")]),
    (pa.float64(), [-1.5, 0.0, 1.5, _NAN, float("inf"), float("-inf"), 5e-324]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]),
    (pa.time64("us"), [dt.time(0), dt.time(0, 0, 0, 1), dt.time.max]),
    (pa.timestamp("us"), [dt.datetime(1900, 1, 1), dt.datetime(1970, 1, 1), dt.datetime.max]),
    (pa.timestamp("us", "UTC"), [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]),
    (pa.decimal128(38, 2), [Decimal("-1.00"), Decimal("0.00"), Decimal("1.00"), Decimal(10**35)]),
    (pa.string(), ["", "a", "a\0", "\0", "12345678", "123456789", "x" * 100, "x" * 101]),
    (pa.large_string(), ["", "a", "ä", "\U0001f9ca", "x" * 1000]),
    (pa.string_view(), ["", "a", "more than twelve bytes"]),
    (pa.binary(), [b"", b"\0", b"\0\0", b"\xff" * 8, b"\xff" * 9]),
    (pa.binary(5), [b"\0" * 5, b"\0\0\0\0\1", b"hello"]),
    (pa.binary(16), [b"\0" * 16, b"\0" * 15 + b"\1", b"\1" + b"\0" * 15]),
]


def _pairs(keys: Keys) -> list[tuple[int, int]]:
    second = keys.second if keys.second is not None else np.zeros(len(keys), np.uint64)
    return list(zip(keys.first.tolist(), second.tolist(), strict=True))


def _each(test: Callable[..., None]) -> Callable[..., None]:
    names = ("kind", "values")
    return pytest.mark.parametrize(names, _KINDS, ids=[str(kind) for kind, _ in _KINDS])(test)


@_each
def test_different_values_differ_and_equal_ones_are_equal(
    kind: pa.DataType, values: list[Any]
) -> None:
    hashed = KeyHash()
    twice = hashed([pa.array(values * 2, kind)])
    assert _pairs(twice)[: len(values)] == _pairs(twice)[len(values) :]
    assert len(set(_pairs(twice))) == len(values)
    assert twice.nulls is None


@_each
def test_where_an_array_begins_does_not_matter(kind: pa.DataType, values: list[Any]) -> None:
    """A slice has the keys of a copy; nulls before it, among it and after it do no harm."""
    hashed = KeyHash()
    plain = _pairs(hashed([pa.array(values, kind)]))
    padded = pa.array([values[-1], None, *values, values[0], None], kind)
    assert _pairs(hashed([padded.slice(2, len(values))])) == plain
    other = pa.array([*range(len(padded))], pa.int64())
    both = hashed([padded, other]).where(np.arange(2, 2 + len(values)))
    sliced = hashed([padded.slice(2, len(values)), other.slice(2, len(values))])
    assert _pairs(both) == _pairs(sliced)


@_each
def test_nulls_are_told(kind: pa.DataType, values: list[Any]) -> None:
    hashed = KeyHash()
    keys = hashed([pa.array([None, *values, None], kind)])
    assert keys.nulls is not None
    assert keys.nulls.tolist() == [True, *[False] * len(values), True]
    assert _pairs(keys)[1:-1] == _pairs(hashed([pa.array(values, kind)]))
    nothing = hashed([pa.nulls(3, kind)])
    assert nothing.nulls is not None
    assert nothing.nulls.all()
    assert len(hashed([pa.array([], kind)])) == 0


def test_a_null_in_any_column_makes_the_key_null() -> None:
    columns = [pa.array([1, None, 1, None]), pa.array(["a", "a", None, None])]
    nulls = KeyHash()(columns).nulls
    assert nulls is not None
    assert nulls.tolist() == [False, True, True, True]


@pytest.mark.parametrize(
    "kinds",
    [
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.string(), pa.large_string()),
        (pa.string(), pa.string_view()),
        (pa.binary(), pa.large_binary()),
        (pa.decimal128(9, 2), pa.decimal128(20, 2)),
    ],
    ids=str,
)
def test_types_that_a_column_may_have_had_before_give_the_same(kinds: Any) -> None:
    values: list[Any] = [1, 7, -3]
    if pa.types.is_floating(kinds[0]):
        values = [1.5, _NAN, -0.0]
    elif pa.types.is_decimal(kinds[0]):
        values = [Decimal("1.50"), Decimal("0.00"), Decimal("-3.25")]
    elif not pa.types.is_integer(kinds[0]):
        values = ["", "one", "x" * 30]
    hashed = KeyHash()
    first, second = (_pairs(hashed([pa.array(values, kind)])) for kind in kinds)
    assert first == second


def test_zeros_are_equal_and_every_nan_is() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001], np.uint64)
    values = pa.array([*bits.view(np.float64), 0.0, -0.0])
    pairs = _pairs(KeyHash()([values]))
    assert pairs[0] == pairs[1] == pairs[2] != pairs[3] == pairs[4]
    together = _pairs(KeyHash()([values, pa.array([1] * 5)]))
    assert together[0] == together[1] == together[2] != together[3] == together[4]


def test_extensions_count_as_what_they_store() -> None:
    stored = pa.array([bytes([n] * 16) for n in range(3)], pa.binary(16))
    hashed = KeyHash()
    assert _pairs(hashed([stored.cast(pa.uuid())])) == _pairs(hashed([stored]))


def test_columns_do_not_run_together() -> None:
    rows = [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", ""), ("c", "ab"), ("\0", ""), ("", "\0")]
    pairs = _pairs(KeyHash()([pa.array(column) for column in zip(*rows, strict=True)]))
    assert len(set(pairs)) == len(rows)


def test_each_merge_has_a_seed_of_its_own() -> None:
    column = pa.array(["a", "b"])
    assert _pairs(KeyHash()([column])) != _pairs(KeyHash()([column]))


def test_numbers_in_a_row_spread_over_the_buckets() -> None:
    for column in (pa.array(range(100_000)), pa.array([f"key {n}" for n in range(100_000)])):
        buckets = KeyHash()([column]).buckets
        counts = np.bincount(buckets, minlength=BUCKETS)
        assert len(counts) == BUCKETS
        assert counts.min() > 250
        assert counts.max() < 550


def test_no_two_of_many_keys_are_one() -> None:
    generator = random.Random(0)
    texts = list(
        {"".join(generator.choices("ab", k=generator.randint(0, 40))) for _ in range(9999)}
    )
    keys = KeyHash()([pa.array(texts)])
    assert len(set(_pairs(keys))) == len(texts)
    assert len(set(keys.first.tolist())) == len(texts)
    assert len(set(keys.second.tolist())) == len(texts)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=30),
    start=st.integers(0, 5),
)
def test_rows_of_bytes_are_equal_just_if_their_keys_are(
    rows: list[tuple[bytes, bytes]], start: int
) -> None:
    columns = [pa.array([row[n] for row in rows], pa.binary()).slice(start) for n in (0, 1)]
    pairs = _pairs(KeyHash()(columns))
    left = rows[start:]
    for one, pair in zip(left, pairs, strict=True):
        assert [other == one for other in left] == [other == pair for other in pairs]
