"""Random Arrow columns, generated with NumPy: a million values take milliseconds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

_FIRST_MICROSECOND = 1_700_000_000_000_000
_YEAR_MICROSECONDS = 365 * 24 * 3600 * 1_000_000

# Entry i has the two ASCII hex digits of byte i, as one 16-bit number.
_HEX_PAIRS = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)


@cache
def vocabulary(size: int = 10_000) -> pa.Array:
    """Return `size` distinct strings of 8 to 20 characters."""
    rng = np.random.default_rng(size)
    tail = rng.integers(97, 123, (size, 14), dtype=np.uint8).tobytes().decode()
    lengths = rng.integers(2, 15, size)
    return pa.array(
        [f"{i:06d}{tail[14 * i : 14 * i + int(length)]}" for i, length in enumerate(lengths)]
    )


def words(rng: np.random.Generator, rows: int, size: int = 10_000) -> pa.Array:
    """Return strings from a vocabulary, which compress well with a dictionary."""
    return vocabulary(size).take(pa.array(rng.integers(0, size, rows, dtype=np.int32)))


def hex_text(rng: np.random.Generator, lengths: np.ndarray) -> pa.Array:
    """Return distinct random hex strings of the given lengths. zstd halves their size."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    raw = np.frombuffer(rng.bytes((int(offsets[-1]) + 1) // 2), dtype=np.uint8)
    return pa.StringArray.from_buffers(
        len(lengths), pa.py_buffer(offsets), pa.py_buffer(_HEX_PAIRS[raw])
    )


def codes(rng: np.random.Generator, rows: int, width: int) -> pa.Array:
    """Return random lower-case strings of one width, which hardly compress."""
    letters = rng.integers(97, 123, rows * width, dtype=np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))


def integers(rng: np.random.Generator, rows: int, high: int) -> pa.Array:
    """Return int64 values in [0, high)."""
    return pa.array(rng.integers(0, high, rows))


def amounts(rng: np.random.Generator, rows: int) -> pa.Array:
    """Return float64 values with two decimals, like prices."""
    return pa.array(np.round(rng.random(rows) * 10_000, 2))


def doubles(rng: np.random.Generator, rows: int) -> pa.Array:
    """Return float64 values with random bits, which do not compress."""
    return pa.array(rng.random(rows))


def flags(rng: np.random.Generator, rows: int) -> pa.Array:
    """Return booleans."""
    return pa.array(rng.random(rows) < 0.3)


def timestamps(rng: np.random.Generator, rows: int) -> pa.Array:
    """Return microsecond timestamps of one year."""
    micros = rng.integers(0, _YEAR_MICROSECONDS, rows) + _FIRST_MICROSECOND
    return pa.array(micros).cast(pa.timestamp("us"))


def sequence(start: int, rows: int) -> pa.Array:
    """Return consecutive int64 ids."""
    return pa.array(np.arange(start, start + rows, dtype=np.int64))


def offsets(rng: np.random.Generator, rows: int, longest: int) -> pa.Array:
    """Return list offsets for `rows` lists of 0 to `longest` elements."""
    lengths = rng.integers(0, longest + 1, rows)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
