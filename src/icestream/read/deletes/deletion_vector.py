"""Deletion vectors: the deleted positions of a data file, as a blob in a Puffin file."""

from __future__ import annotations

import zlib

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table.puffin import MAGIC_BYTES, Footer, PuffinBlobMetadata
from pyroaring import BitMap

from icestream.read.decode.avro_block import decompressed_zstd
from icestream.read.decode.files import open_file
from icestream.read.deletes.position_set import PositionSet
from icestream.read.split import DeleteFile


def read_vector(io: FileIO, delete: DeleteFile, path: str) -> PositionSet:
    """Read the deletion vector of a data file, without the rest of the Puffin file.

    PyIceberg 0.12 drops the offset of the vector, so it is looked up in the footer. A replaced
    vector may still be in the file. A newer vector also contains its positions, so that all vectors
    of the data file are combined.

    Raises:
        ValueError: If the vector is damaged.
    """
    with open_file(io, delete.path) as handle:
        if delete.offset is not None and delete.length is not None:
            return decode_vector(handle.read_at(delete.length, delete.offset))
        positions = PositionSet()
        for blob in _puffin_footer(handle):
            if blob.properties.get("referenced-data-file") == path:
                positions.update(decode_vector(_blob(handle, blob)))
    if delete.of_one_file and len(positions) < delete.records:
        raise ValueError(
            f"it has {len(positions)} deleted positions of {path} instead of {delete.records}"
        )
    return positions


def decode_vector(blob: bytes) -> PositionSet:
    """Decode `deletion-vector-v1`: length, magic, 64-bit roaring bitmap, checksum."""
    length = int.from_bytes(blob[:4], "big")
    if blob[4:8] != b"\xd1\xd3\x39\x64" or len(blob) < length + 8:
        raise ValueError("not a deletion vector: wrong magic number or length")
    checksum = int.from_bytes(blob[4 + length : 8 + length], "big")
    if zlib.crc32(memoryview(blob)[4 : 4 + length]) != checksum:
        raise ValueError("the deletion vector is damaged: its checksum does not match")
    data = memoryview(blob)[8 : 4 + length]
    count = int.from_bytes(data[:8], "little")
    data = data[8:]
    bitmaps: dict[int, BitMap] = {}
    for remaining in range(count, 0, -1):
        key = int.from_bytes(data[:4], "little")
        bitmaps[key] = BitMap.deserialize(bytes(data[4:]))
        if remaining > 1:
            data = data[4 + len(bitmaps[key].serialize()) :]
    return PositionSet.of_bitmaps(bitmaps)


def _puffin_footer(handle: pa.NativeFile) -> list[PuffinBlobMetadata]:
    size = handle.size()
    tail = handle.read_at(12, max(size - 12, 0))
    if len(tail) < 12 or tail[8:] != MAGIC_BYTES:
        raise ValueError("not a Puffin file: it does not end with the magic bytes")
    if tail[4] != 0:
        raise ValueError("the Puffin file has a compressed footer, which is not supported")
    length = int.from_bytes(tail[:4], "little")
    footer: list[PuffinBlobMetadata] = Footer.model_validate_json(
        handle.read_at(length, size - 12 - length)
    ).blobs
    return footer


def _blob(handle: pa.NativeFile, blob: PuffinBlobMetadata) -> bytes:
    raw: bytes = handle.read_at(blob.length, blob.offset)
    if blob.compression_codec is None:
        return raw
    if blob.compression_codec == "zstd":
        return decompressed_zstd(raw)
    raise ValueError(f"the deletion vector is compressed with {blob.compression_codec}")
