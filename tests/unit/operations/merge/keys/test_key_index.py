"""The index of a stream's keys against a dictionary, and the sieve before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from icestream.operations.merge.keys.key_hash import KeyHash, Keys
from icestream.operations.merge.keys.key_index import KeyIndex, Sieve


def _rank(value: int | None) -> int:
    """Null is lowest."""
    return -1 if value is None else value


# Few values of each half, so that halves collide and keys repeat.
_HALVES = st.tuples(st.integers(0, 3), st.integers(0, 3))
_SOME = st.lists(_HALVES, max_size=25)


def _keys(pairs: list[tuple[int, int]], *, halves: int = 2, nulls: Any = None) -> Keys:
    first = np.array([pair[0] for pair in pairs], np.uint64)
    second = np.array([pair[1] for pair in pairs], np.uint64)
    missing = None if nulls is None else np.array(nulls, np.bool_)
    return Keys(first, second if halves == 2 else None, missing)


def _found(index: KeyIndex, keys: Keys) -> dict[int, int]:
    found = index.find(keys)
    assert found.places.tolist() == sorted(found.places.tolist())
    return dict(zip(found.places.tolist(), found.rows.tolist(), strict=True))


@settings(max_examples=150, deadline=None)
@given(held=_SOME, asked=_SOME, halves=st.sampled_from([1, 2]), data=st.data())
def test_rows_are_found_as_in_a_dictionary(
    held: list[tuple[int, int]], asked: list[tuple[int, int]], halves: int, data: st.DataObject
) -> None:
    unique = list(dict.fromkeys(pair[:halves] for pair in held))
    padded = [(*pair, 0)[:2] for pair in unique]
    gone = data.draw(st.lists(st.booleans(), min_size=len(unique), max_size=len(unique)))
    missing = data.draw(st.lists(st.booleans(), min_size=len(asked), max_size=len(asked)))
    index = KeyIndex(_keys(padded, halves=halves, nulls=gone))
    rows = {pair: row for row, pair in enumerate(unique) if not gone[row]}
    assert len(index) == len(rows)
    expected = {
        number: rows[pair[:halves]]
        for number, pair in enumerate(asked)
        if pair[:halves] in rows and not missing[number]
    }
    assert _found(index, _keys(asked, halves=halves, nulls=missing)) == expected


@settings(max_examples=150, deadline=None)
@given(
    held=_SOME,
    values=st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=25, max_size=25),
    by_value=st.booleans(),
    halves=st.sampled_from([1, 2]),
)
def test_the_last_row_of_each_key_is_kept(
    held: list[tuple[int, int]], values: list[int | None], by_value: bool, halves: int
) -> None:
    index = KeyIndex(_keys(held, halves=halves))
    counts = [sum(pair[:halves] == other[:halves] for other in held) for pair in held]
    assert sorted(index.repeated().tolist()) == [n for n, count in enumerate(counts) if count > 1]
    last: dict[tuple[int, ...], int] = {}
    for row, pair in enumerate(held):
        before = last.get(pair[:halves])
        if by_value and before is not None and _rank(values[row]) < _rank(values[before]):
            continue
        last[pair[:halves]] = row
    if held:
        column = pa.array(values[: len(held)], pa.int64()) if by_value else None
        left_out = index.keep_last(column)
        assert sorted(left_out.tolist()) == sorted(set(range(len(held))) - set(last.values()))
    expected = {number: last[pair[:halves]] for number, pair in enumerate(held)}
    assert _found(index, _keys(held, halves=halves)) == expected
    assert len(index.repeated()) == 0


def test_nan_is_highest_and_null_lowest() -> None:
    same = _keys([(1, 1)] * 4)
    for values, kept in [([1.0, None, float("nan"), 2.0], 2), ([None, -5.0, None, None], 1)]:
        index = KeyIndex(same)
        left_out = index.keep_last(pa.array(values))
        assert sorted(left_out.tolist()) == [n for n in range(4) if n != kept]


def test_rows_with_null_keys_are_never_repeated() -> None:
    index = KeyIndex(_keys([(1, 1), (1, 1), (1, 1)], nulls=[True, False, True]))
    assert len(index.repeated()) == 0
    assert _found(index, _keys([(1, 1)])) == {0: 1}


@pytest.mark.parametrize("halves", [1, 2])
def test_an_empty_index_finds_nothing(halves: int) -> None:
    index = KeyIndex(_keys([], halves=halves))
    assert _found(index, _keys([(1, 1)], halves=halves)) == {}
    assert _found(KeyIndex(_keys([(1, 1)], halves=halves)), _keys([], halves=halves)) == {}


def test_keys_at_both_ends_are_found() -> None:
    top = 2**64 - 1
    index = KeyIndex(_keys([(top, top), (0, 0), (top, 0)]))
    asked = _keys([(0, 0), (top, top), (0, 1), (top, 1), (top, 0)])
    assert _found(index, asked) == {0: 1, 1: 0, 4: 2}


# The sieve


@pytest.mark.parametrize("most_bytes", [1, 1024, 5_000, 1 << 20])
def test_every_key_that_was_noted_passes(most_bytes: int) -> None:
    hashed, sieve = KeyHash(), Sieve(most_bytes)
    noted = hashed([pa.array(range(0, 2_000, 2))])
    sieve.add(noted)
    assert sieve.passes(noted).all()
    if most_bytes == 1 << 20:
        others = hashed([pa.array(range(1, 2_000, 2))])
        assert sieve.passes(others).sum() < 20


def test_an_empty_sieve_lets_nothing_pass() -> None:
    assert not Sieve(1024).passes(KeyHash()([pa.array(range(1_000))])).any()
