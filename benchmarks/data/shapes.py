"""The rows of each data set, in chunks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.data import columns as col

Chunks = Iterator[pa.Table]


def chunk_sizes(rows: int, chunk_rows: int) -> Iterator[tuple[int, int]]:
    """Yield (first row, number of rows) of each chunk."""
    for start in range(0, rows, chunk_rows):
        yield start, min(chunk_rows, rows - start)


def events(seed: int, rows: int, chunk_rows: int = 1_048_576) -> Chunks:
    """Generate five columns, for sets a, e and size_N."""
    for start, count in chunk_sizes(rows, chunk_rows):
        rng = np.random.default_rng([seed, start])
        yield pa.table(
            {
                "id": col.sequence(seed * 1_000_000_000 + start, count),
                "amount": col.amounts(rng, count),
                "customer": col.words(rng, count),
                "active": col.flags(rng, count),
                "created_at": col.timestamps(rng, count),
            }
        )


def documents(rows: int, chunks: int = 30) -> Chunks:
    """Generate rows with 400 bytes in memory and 250 on disk, for sets b and b8."""
    for start, count in chunk_sizes(rows, max(1, -(-rows // chunks))):
        rng = np.random.default_rng([100, start])
        data = {
            "id": col.sequence(start, count),
            "account": col.integers(rng, count, 2**62),
        }
        for i in range(4):
            data[f"measure_{i}"] = col.doubles(rng, count)
        for i in range(5):
            data[f"text_{i}"] = col.hex_text(rng, rng.integers(40, 105, count))
        yield pa.table(data)


def log_lines(rows: int, chunk_rows: int) -> Chunks:
    """Generate six columns with one long text, for set c."""
    for start, count in chunk_sizes(rows, chunk_rows):
        rng = np.random.default_rng([200, start])
        yield pa.table(
            {
                "id": col.sequence(start, count),
                "value": col.doubles(rng, count),
                "customer": col.words(rng, count),
                "message": col.hex_text(rng, rng.integers(32, 65, count)),
                "active": col.flags(rng, count),
                "created_at": col.timestamps(rng, count),
            }
        )


def readings(rows: int, code_width: int, chunk_rows: int) -> Chunks:
    """Generate four narrow columns for files with many stripes, for sets cs and huge."""
    for start, count in chunk_sizes(rows, chunk_rows):
        rng = np.random.default_rng([300, start])
        yield pa.table(
            {
                "id": col.sequence(start, count),
                "value": col.doubles(rng, count),
                "code": col.codes(rng, count, code_width),
                "quantity": col.integers(rng, count, 1000),
            }
        )


def wide(seed: int, rows: int, column_count: int = 400) -> pa.Table:
    """Generate many columns of mixed types, for set d."""
    rng = np.random.default_rng([400, seed])
    makers = [
        lambda: col.integers(rng, rows, 2**40),
        lambda: col.doubles(rng, rows),
        lambda: col.words(rng, rows),
        lambda: col.integers(rng, rows, 1000),
        lambda: col.integers(rng, rows, 50),
        lambda: col.amounts(rng, rows),
        lambda: col.flags(rng, rows),
        lambda: col.words(rng, rows, 500),
        lambda: col.timestamps(rng, rows),
    ]
    return pa.table({f"c{i:03d}": makers[i % len(makers)]() for i in range(column_count)})


def orders(seed: int, rows: int) -> pa.Table:
    """Generate a list of structs, a map, and a struct in a struct, for set f."""
    rng = np.random.default_rng([500, seed])
    line_offsets = col.offsets(rng, rows, 6)
    lines = line_offsets[-1].as_py()
    line = pa.StructArray.from_arrays(
        [col.words(rng, lines), col.integers(rng, lines, 20), col.amounts(rng, lines)],
        names=["sku", "quantity", "price"],
    )
    tag_offsets = col.offsets(rng, rows, 4)
    tags = tag_offsets[-1].as_py()
    place = pa.StructArray.from_arrays(
        [col.doubles(rng, rows), col.doubles(rng, rows)], names=["latitude", "longitude"]
    )
    address = pa.StructArray.from_arrays(
        [col.words(rng, rows, 2000), col.integers(rng, rows, 100_000), place],
        names=["city", "postcode", "place"],
    )
    return pa.table(
        {
            "id": col.sequence(seed * 1_000_000_000, rows),
            "lines": pa.ListArray.from_arrays(line_offsets, line),
            "tags": pa.MapArray.from_arrays(
                tag_offsets, col.words(rng, tags, 500), col.integers(rng, tags, 1000)
            ),
            "address": address,
        }
    )


def skewed_mixed(seed: int, rows: int) -> pa.Table:
    """Generate text of 10 bytes to 2 MB in random order, 5 kB on average, for set g."""
    rng = np.random.default_rng([600, seed])
    kind = rng.random(rows)
    lengths = rng.integers(10, 200, rows)
    medium, large = kind > 0.92, kind > 0.996
    lengths[medium] = rng.integers(1_000, 20_000, medium.sum())
    lengths[large] = rng.integers(100_000, 2_000_000, large.sum())
    return _skewed(rng, seed, lengths)


def skewed_runs(seed: int, narrow_rows: int, wide_rows: int) -> pa.Table:
    """Generate many rows of 10 to 100 bytes, then rows of 1 to 2 MB, for set g."""
    rng = np.random.default_rng([700, seed])
    narrow = rng.integers(10, 100, narrow_rows)
    wide_lengths = rng.integers(1_000_000, 2_000_000, wide_rows)
    return _skewed(rng, seed, np.concatenate([narrow, wide_lengths]))


def _skewed(rng: np.random.Generator, seed: int, lengths: np.ndarray) -> pa.Table:
    ids = col.sequence(seed * 1_000_000_000, len(lengths))
    return pa.table({"id": ids, "body": col.hex_text(rng, lengths)})
