"""Puffin files of deletion vectors, written byte by byte as the Iceberg specs lay them out."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyroaring import BitMap

PUFFIN_MAGIC = b"PFA1"
VECTOR_MAGIC = bytes.fromhex("d1d33964")
ROW_POSITION_FIELD_ID = 2147483645


@dataclass(frozen=True, slots=True)
class VectorBlob:
    """Where one data file's deletion vector lies in a Puffin file."""

    data_file_path: str
    offset: int
    length_bytes: int
    cardinality: int


def deletion_vector_blob(positions: Iterable[int]) -> bytes:
    """Return a `deletion-vector-v1` blob: length, magic, 64-bit roaring bitmap, CRC-32."""
    by_key: dict[int, list[int]] = {}
    for position in positions:
        by_key.setdefault(position >> 32, []).append(position & 0xFFFFFFFF)
    vector = struct.pack("<Q", len(by_key))
    for key in sorted(by_key):
        bitmap = BitMap(by_key[key])
        bitmap.run_optimize()
        vector += struct.pack("<I", key) + bitmap.serialize()
    body = VECTOR_MAGIC + vector
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def puffin_file(
    vectors: Mapping[str, Iterable[int]], *, snapshot_id: int = -1, sequence_number: int = -1
) -> tuple[bytes, list[VectorBlob]]:
    """Return the bytes of a Puffin file with a deletion vector per data file, and where each is.

    The ids default to -1, as the spec wants for deletion vectors: they are inherited at commit.
    """
    content = bytearray(PUFFIN_MAGIC)
    blobs, footer_blobs = [], []
    for path, positions in vectors.items():
        unique = sorted(set(positions))
        payload = deletion_vector_blob(unique)
        blobs.append(VectorBlob(path, len(content), len(payload), len(unique)))
        footer_blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [ROW_POSITION_FIELD_ID],
                "snapshot-id": snapshot_id,
                "sequence-number": sequence_number,
                "offset": len(content),
                "length": len(payload),
                "properties": {"referenced-data-file": path, "cardinality": str(len(unique))},
            }
        )
        content += payload
    footer = json.dumps({"blobs": footer_blobs, "properties": {"created-by": "tests"}}).encode()
    content += PUFFIN_MAGIC + footer + struct.pack("<i", len(footer)) + bytes(4) + PUFFIN_MAGIC
    return bytes(content), blobs
