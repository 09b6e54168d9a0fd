"""Blocks are decompressed as PyIceberg does it, and no further than is sensible."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.table import Table
from zstandard import ZstdCompressionParameters, ZstdCompressor

import icestream as ice
from icestream.memory.budget import MemoryBudget
from icestream.read.decode import avro_block
from icestream.read.decode.avro_block import (
    MOST_BLOCK_BYTES,
    AvroBlocks,
    decompressed,
    decompressed_zstd,
)
from tests.support.tables import make_catalog

_CODECS = ["deflate", "bzip2", "zstandard"]
_LONG = 200 << 20


def _deflated(length: int) -> bytes:
    compressor = zlib.compressobj(1, zlib.DEFLATED, -15)
    piece = bytes(1 << 20)
    parts = [compressor.compress(piece) for _ in range(length >> 20)]
    return b"".join((*parts, compressor.flush()))


def _bzipped(length: int) -> bytes:
    compressor = bz2.BZ2Compressor()
    piece = bytes(1 << 20)
    parts = [compressor.compress(piece) for _ in range(length >> 20)]
    return b"".join((*parts, compressor.flush()))


def _zstandard(length: int) -> bytes:
    compressor = ZstdCompressor().compressobj()
    piece = bytes(1 << 20)
    parts = [compressor.compress(piece) for _ in range(length >> 20)]
    return b"".join((*parts, compressor.flush()))


_BOMBS = {"deflate": _deflated, "bzip2": _bzipped, "zstandard": _zstandard}


@pytest.mark.parametrize("content", [b"", b"a", bytes(range(256)) * 5_000], ids=len)
@pytest.mark.parametrize("name", _CODECS)
def test_a_block_that_pyiceberg_wrote_is_read(name: str, content: bytes) -> None:
    codec = KNOWN_CODECS[name]
    assert codec is not None
    assert decompressed(codec, codec.compress(content)[0]) == content


def test_a_block_that_is_not_compressed_is_handed_on() -> None:
    assert decompressed(KNOWN_CODECS["null"], b"as it is") == b"as it is"


@pytest.mark.parametrize("name", _CODECS)
def test_a_block_is_refused_once_it_is_too_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_block, "MOST_BLOCK_BYTES", 2 << 20)
    codec, make = KNOWN_CODECS[name], _BOMBS[name]
    assert decompressed(codec, make(2 << 20)) == bytes(2 << 20)
    with pytest.raises(ValueError, match="more than 2 MB when decompressed"):
        decompressed(codec, make(3 << 20))


def test_a_snappy_block_is_refused_by_the_length_that_it_claims() -> None:
    claims_a_gigabyte = b"\x80\x80\x80\x80\x04" + b"x"
    with pytest.raises(ValueError, match="more than 32 MB"):
        decompressed(KNOWN_CODECS["snappy"], claims_a_gigabyte)


@pytest.mark.parametrize("name", ["deflate", "bzip2"])
def test_a_block_that_is_cut_off_is_an_error(name: str) -> None:
    codec = KNOWN_CODECS[name]
    assert codec is not None
    stored = codec.compress(bytes(range(256)) * 100)[0]
    with pytest.raises((EOFError, OSError, zlib.error)):
        decompressed(codec, stored[: len(stored) // 2])


def test_a_frame_that_asks_for_a_large_window_is_refused() -> None:
    parameters = ZstdCompressionParameters(window_log=26)
    compressor = ZstdCompressor(compression_params=parameters).compressobj()
    stored = compressor.compress(bytes(1 << 20)) + compressor.flush()
    with pytest.raises(Exception, match="requires too much memory"):
        decompressed(KNOWN_CODECS["zstandard"], stored)


def test_a_blob_is_refused_once_it_is_too_long() -> None:
    assert decompressed_zstd(_zstandard(1 << 20)) == bytes(1 << 20)
    with pytest.raises(ValueError, match="more than 32 MB"):
        decompressed_zstd(_zstandard(MOST_BLOCK_BYTES + (1 << 20)))


_VERBS: dict[str, Callable[[Table], object]] = {
    "scan": lambda table: list(ice.scan(table, memory="64MB")),
    "health": lambda table: ice.health(table, memory="64MB"),
    "orphans": lambda table: ice.orphans(table, memory="64MB"),
}


@pytest.mark.parametrize("content", [b"x" * 5_000, b"Obj\x02" + bytes(100), b"PAR1"])
def test_other_content_is_refused_before_it_is_decoded(content: bytes) -> None:
    file = BytesIO(content)
    blocks = AvroBlocks(file.read, MemoryBudget("1MB").force(0))
    with pytest.raises(ValueError, match="does not begin like an Avro file"):
        next(blocks.records(lambda _: lambda __: None))


@pytest.mark.parametrize("content", [b"", b"Ob", b"Obj\x01"])
def test_a_file_that_ends_in_its_header_is_an_error(content: bytes) -> None:
    file = BytesIO(content)
    blocks = AvroBlocks(file.read, MemoryBudget("1MB").force(0))
    with pytest.raises(EOFError):
        next(blocks.records(lambda _: lambda __: None))


@pytest.mark.parametrize("verb", _VERBS)
def test_a_manifest_list_that_swells_is_named_and_not_read(tmp_path: Path, verb: str) -> None:
    catalog = make_catalog(tmp_path)
    properties = {"write.avro.compression-codec": "deflate"}
    table = catalog.create_table("db.t", pa.schema([("a", pa.int64())]), properties=properties)
    table.append(pa.table({"a": [1]}))
    path = Path(table.current_snapshot().manifest_list.removeprefix("file://"))
    stored = path.read_bytes()
    bomb = _deflated(_LONG)
    path.write_bytes(stored + b"\x00" + _zigzag(len(bomb)) + bomb + stored[-16:])
    with pytest.raises(ice.IcestreamError, match="more than 32 MB") as raised:
        _VERBS[verb](table)
    assert path.name in str(raised.value)
    catalog.close()


def _zigzag(number: int) -> bytes:
    number <<= 1
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes((*parts, number))
