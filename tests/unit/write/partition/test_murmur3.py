"""The bucket hash: equal to Murmur3's reference values and to another implementation's."""

from __future__ import annotations

import random
import struct

import mmh3
import numpy as np
import pytest

from icestream.write.partition.murmur3 import hash_byte_strings, hash_longs


def _hashed(values: list[bytes]) -> list[int]:
    lengths = np.array([len(value) for value in values], dtype=np.int64)
    data = np.frombuffer(b"".join(values), dtype=np.uint8)
    hashes: list[int] = hash_byte_strings(data, np.cumsum(lengths) - lengths, lengths).tolist()
    return hashes


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"", 0),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"!Ce\x87", 0xF55B516B),
        (b"!Ce", 0x7E4A8634),
        (b"!C", 0xA0F7B07A),
        (b"!", 0x72661CF4),
        (b"\x00\x00\x00\x00", 0x2362F9DE),
        (b"\x00", 0x514E28B7),
        (b"iceberg", 1210000089),
    ],
)
def test_known_values_have_their_published_hashes(value: bytes, expected: int) -> None:
    assert _hashed([value]) == [expected]


@pytest.mark.parametrize("count", [1, 5, 24, 25, 26, 300])
@pytest.mark.parametrize("longest", [3, 4, 40, 1000])
def test_values_of_mixed_lengths_are_hashed_like_each_alone(count: int, longest: int) -> None:
    generator = random.Random(count * longest)
    values = [generator.randbytes(generator.randint(0, longest)) for _ in range(count)]
    assert _hashed(values) == [mmh3.hash(value, signed=False) for value in values]


def test_values_may_lie_anywhere_in_the_data_and_overlap() -> None:
    data = random.Random(0).randbytes(100)
    spans = [(90, 10), (0, 100), (3, 7), (3, 0), (97, 3), (3, 7), (96, 4)]
    hashes = hash_byte_strings(
        np.frombuffer(data, dtype=np.uint8),
        np.array([start for start, _ in spans]),
        np.array([length for _, length in spans]),
    )
    expected = [mmh3.hash(data[start : start + length], signed=False) for start, length in spans]
    assert hashes.tolist() == expected


def test_longs_are_hashed_as_eight_bytes_lowest_first() -> None:
    numbers = [0, 1, -1, 34, 2**63 - 1, -(2**63), 1 << 32]
    expected = [mmh3.hash(struct.pack("<q", number), signed=False) for number in numbers]
    assert hash_longs(np.array(numbers)).tolist() == expected
    assert hash_longs(np.array(numbers)[::2]).tolist() == expected[::2]


def test_no_values_have_no_hashes() -> None:
    assert _hashed([]) == []
    assert hash_longs(np.zeros(0, dtype=np.int64)).tolist() == []
