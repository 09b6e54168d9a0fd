"""Keys with one hash: chosen ones do not have it, and others are told apart by their values."""

from __future__ import annotations

import itertools
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import icestream as ice
from icestream.operations.merge.keys import key_hash
from icestream.operations.merge.keys.key_hash import KeyHash, Keys, key_values
from icestream.operations.merge.keys.key_index import KeyIndex

_TOP = 1 << 63


def _toggled_keys(pairs: int) -> list[bytes]:
    """Keys whose differences cancel out in a hash that multiplies by a known odd number.

    A top bit that is flipped stays the one bit that is flipped, whatever the seed; a shift by 29
    brings it to bit 34 as well, and the next word takes both back.
    """
    blocks = [(7, 9), (7 ^ _TOP, 9 ^ _TOP ^ (1 << 34))]
    choices = [b"".join(word.to_bytes(8, "little") for word in block) for block in blocks]
    return [b"".join(chosen) for chosen in itertools.product(choices, repeat=pairs)]


def test_keys_chosen_for_a_known_multiplier_have_hashes_of_their_own() -> None:
    keys = _toggled_keys(10)
    hashed = KeyHash()([pa.array(keys, pa.binary())])
    assert hashed.second is not None
    assert len(np.unique(hashed.first)) == len(keys)
    assert len(np.unique(hashed.second)) == len(keys)


@pytest.mark.parametrize("step", [1, 1 << 32, 1 << 48, 1 << 56])
def test_chosen_numbers_are_spread_by_secrets(step: int) -> None:
    numbers = (np.arange(4096, dtype=np.uint64) * np.uint64(step)).view(np.int64)
    buckets = [np.bincount(KeyHash()([pa.array(numbers)]).buckets, minlength=256) for _ in "ab"]
    assert (buckets[0] != buckets[1]).any()
    distinct = len(np.unique(numbers))
    assert max(int(counts.max()) for counts in buckets) < 80 * 4096 // distinct


def test_a_fold_is_both_halves_of_the_product() -> None:
    generator = random.Random(3)
    words = [0, 1, 2**64 - 1, *(generator.getrandbits(64) for _ in range(200))]
    secret = generator.getrandbits(64) | 1
    folded = key_hash._folded(np.array(words, np.uint64), np.uint64(secret))
    for word, found in zip(words, folded.tolist(), strict=True):
        product = word * secret
        assert found == (product >> 64) ^ (product & (2**64 - 1))


_ROWS = st.lists(
    st.tuples(st.text("ab", max_size=3), st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(rows=_ROWS)
def test_values_are_the_same_for_equal_keys_only(rows: list[tuple[str, float]]) -> None:
    columns = [pa.array([r[0] for r in rows], pa.string()), pa.array([r[1] for r in rows])]
    same = [(text, "nan" if number != number else number + 0.0) for text, number in rows]
    found = key_values(columns).to_pylist()
    for one, value in zip(same, found, strict=True):
        assert [other == one for other in same] == [other == value for other in found]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, ""]),
        pa.array(["a", None, ""], pa.large_string()),
        pa.array(["a", None, ""], pa.string_view()),
        pa.array([b"a", None, b""], pa.binary()),
        pa.array([b"ab", None, b"cd"], pa.binary(2)),
        pa.array([Decimal("1.5"), None, Decimal("-2.5")], pa.decimal128(20, 1)),
        pa.array([1, None, 3], pa.int32()),
        pa.array([True, None, False]),
        pa.array([1, None, 3], pa.timestamp("us")),
        pa.array([b"0123456789abcdef", None, b"fedcba9876543210"], pa.uuid()),
    ],
    ids=lambda column: str(column.type),
)
def test_every_type_of_key_has_values(column: pa.Array) -> None:
    for columns in ([column], [column, pa.array(["x", "y", "x"])]):
        first, _, last = key_values(columns).to_pylist()
        assert first is not None
        assert first != last
        assert key_values([part.slice(2) for part in columns]).to_pylist() == [last]


# A hash of few bits


class _FewBits(KeyHash):
    """Has three bits of the first hash only: nearly all keys collide."""

    def __call__(self, columns: Any) -> Keys:
        keys = super().__call__(columns)
        if keys.second is None:
            return keys
        top = np.uint64(0b111 << 61)
        return Keys(keys.first & top, np.zeros(len(keys), np.uint64), keys.nulls)


@settings(max_examples=100, deadline=None)
@given(
    held=st.lists(st.text("abc", max_size=3), max_size=30),
    asked=st.lists(st.text("abc", max_size=3), max_size=30),
)
def test_an_index_of_keys_that_collide_finds_what_a_dictionary_finds(
    held: list[str], asked: list[str]
) -> None:
    hashed = _FewBits()
    column, wanted = pa.array(held, pa.string()), pa.array(asked, pa.string())
    index = KeyIndex(
        hashed([column]), values_of=lambda rows: key_values([column.take(pa.array(rows))])
    )
    counts = {text: held.count(text) for text in held}
    assert sorted(index.repeated()) == [n for n, text in enumerate(held) if counts[text] > 1]
    if held:
        index.keep_last(None)
    last = {text: row for row, text in enumerate(held)}
    found = index.find(hashed([wanted]), key_values([wanted]))
    expected = {n: last[text] for n, text in enumerate(asked) if text in last}
    assert dict(zip(found.places.tolist(), found.rows.tolist(), strict=True)) == expected


def test_finding_many_keys_that_collide_takes_no_time_for_each_pair() -> None:
    """With 40,000 keys of one hash, a walk from one to the next would take 800 million steps."""
    count = 40_000
    column = pa.array([f"key {n}" for n in range(count)])
    same = Keys(np.zeros(count, np.uint64), np.zeros(count, np.uint64), None)
    index = KeyIndex(same, values_of=lambda rows: key_values([column.take(pa.array(rows))]))
    found = index.find(same, key_values([column]))
    assert found.rows.tolist() == list(range(count))
    first_only = Keys(np.zeros(count, np.uint64), np.arange(count, dtype=np.uint64), None)
    assert KeyIndex(first_only).find(first_only).rows.tolist() == list(range(count))


@pytest.mark.parametrize("on", [["name"], ["name", "part"]], ids="+".join)
@pytest.mark.parametrize("write_mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("memory", ["64MB", "16MB"], ids=["in memory", "spilled"])
def test_a_merge_by_keys_that_collide_changes_the_right_rows(
    catalog: SqlCatalog,
    monkeypatch: pytest.MonkeyPatch,
    on: list[str],
    write_mode: str,
    memory: str,
) -> None:
    monkeypatch.setattr("icestream.operations.merge.merge.KeyHash", _FewBits)
    rows = 2_000 if memory == "64MB" else 60_000

    def some(numbers: range, text: str) -> pa.Table:
        return pa.table(
            {
                "name": [f"name {n}" for n in numbers],
                "part": pa.array([n % 3 for n in numbers], pa.int64()),
                "text": [f"{text} {n} " + "x" * 60 for n in numbers],
            }
        )

    before, stream = some(range(rows), "old"), some(range(rows // 2, rows + rows // 2), "new")
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table("db.collided", before.schema, properties={"format-version": "2"})
    ice.append(table, before)
    report = ice.merge(table, stream, on=on, write_mode=write_mode, memory=memory)
    assert (report.rows_updated, report.rows_inserted) == (rows // 2, rows // 2)
    assert (report.bytes_spilled > 0) == (memory == "16MB")
    expected = pa.concat_tables([before.slice(0, rows // 2), stream]).sort_by("name")
    found = pa.Table.from_batches(ice.scan(table), ice.scan(table).schema).sort_by("name")
    assert found.cast(expected.schema).equals(expected)
    again = pa.concat_tables([stream, stream.slice(0, 3)])
    with pytest.raises(ice.DuplicateKeysError, match="6 rows"):
        ice.merge(table, again, on=on, write_mode=write_mode, memory="64MB")
