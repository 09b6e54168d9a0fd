"""Deletion vectors of every shape are decoded, and damage is an error."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

import icestream as ice
from icestream.read.deletes.deletion_vector import read_vector
from tests.support.delete_files import commit_deletion_vectors
from tests.support.puffin import PUFFIN_MAGIC, deletion_vector_blob
from tests.support.scans import ids_of
from tests.support.tables import add_parquet_file, data_file_paths, upgrade_to_v3

_ORDERS = [ice.TaskOrder(), ice.ArrivalOrder(concurrent_streams=4)]
orders = pytest.mark.parametrize("order", _ORDERS, ids=["task", "arrival"])


def _table_with_vector(catalog: Catalog, positions: list[int]) -> tuple[Table, str]:
    """A table of one file with ids 0 to 99, and the Puffin file of its vector."""
    table = catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    add_parquet_file(table, pa.table({"id": list(range(100))}))
    upgrade_to_v3(table)
    (path,) = data_file_paths(table)
    (puffin,) = commit_deletion_vectors(table, {path: positions})
    return table, puffin


def _rewrite_puffin(path: str, positions: list[int], *, codec: str | None) -> Path:
    """Replace a Puffin file by one that holds a vector of these positions for every data file."""
    local = Path(path.removeprefix("file://"))
    old = local.read_bytes()
    length = struct.unpack("<i", old[-12:-8])[0]
    footer = json.loads(old[-12 - length : -12])
    blob = deletion_vector_blob(positions)
    if codec == "zstd":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(blob)
        blob = sink.getvalue().to_pybytes()
    content = PUFFIN_MAGIC
    for entry in footer["blobs"]:
        entry["offset"], entry["length"] = len(content), len(blob)
        if codec:
            entry["compression-codec"] = codec
        content += blob
    text = json.dumps(footer).encode()
    content += PUFFIN_MAGIC + text + struct.pack("<i", len(text)) + bytes(4) + PUFFIN_MAGIC
    local.write_bytes(content)
    return local


@pytest.mark.parametrize(
    "positions",
    [
        [0, 5, 99],
        list(range(10, 90)),
        [5, 2**32 + 5, 2**40],
        [7, *range(2**32, 2**32 + 5_000), *range(2**33, 2**33 + 20_000, 2)],
    ],
    ids=["few", "run", "beyond 32 bits", "containers of every kind"],
)
@pytest.mark.parametrize("codec", [None, "zstd"])
def test_vectors_of_every_shape_are_decoded(
    catalog: Catalog, positions: list[int], codec: str | None
) -> None:
    table, puffin = _table_with_vector(catalog, [0])
    _rewrite_puffin(puffin, positions, codec=codec)
    (split,) = ice.scan(table).splits()
    vector = read_vector(table.io, split.deletes[0], split.path)
    assert [p for piece in vector.pieces() for p in piece.tolist()] == positions
    assert ids_of(ice.scan(table)) == sorted(set(range(100)) - set(positions))


def _damage(kind: str, path: str) -> None:
    local = Path(path.removeprefix("file://"))
    content = bytearray(local.read_bytes())
    start = content.index(b"\xd1\xd3\x39\x64")
    if kind == "vector":
        content[start + 20] ^= 0xFF
    elif kind == "magic":
        content[start] ^= 0xFF
    elif kind == "checksum":
        length = int.from_bytes(content[start - 4 : start], "big")
        content[start + length] ^= 0x01
    elif kind == "footer":
        content[-20] = 0
    elif kind == "truncated":
        content = content[:-30]
    else:
        content = bytearray(b"not a Puffin file")
    local.write_bytes(content)


@orders
@pytest.mark.parametrize(
    "kind", ["vector", "magic", "checksum", "footer", "truncated", "other file"]
)
def test_a_damaged_deletion_vector_is_an_error_and_never_a_guess(
    catalog: Catalog, kind: str, order: Any
) -> None:
    table, puffin = _table_with_vector(catalog, [1, 2, 3, 50])
    _damage(kind, puffin)
    with pytest.raises(ice.CorruptFileError) as caught:
        list(ice.scan(table, order=order))
    assert caught.value.path == puffin
    assert caught.value.split == ice.scan(table).splits()[0].id


def test_an_unknown_compression_of_a_vector_is_named(catalog: Catalog) -> None:
    table, puffin = _table_with_vector(catalog, [1])
    _rewrite_puffin(puffin, [1], codec="lz4")
    with pytest.raises(ice.ReadError, match="lz4") as caught:
        list(ice.scan(table))
    assert caught.value.path == puffin


def test_the_checksum_covers_the_magic_number_and_the_vector() -> None:
    blob = deletion_vector_blob([1])
    assert zlib.crc32(blob[4:-4]) == int.from_bytes(blob[-4:], "big")


def test_a_vector_with_fewer_positions_than_recorded_is_an_error(catalog: Catalog) -> None:
    table, puffin = _table_with_vector(catalog, [1, 2, 3])
    _rewrite_puffin(puffin, [1, 2], codec=None)
    with pytest.raises(ice.CorruptFileError, match=r"2 deleted positions .* instead of 3"):
        list(ice.scan(table))
