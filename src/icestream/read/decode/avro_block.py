"""Read Avro files block by block, and refuse blocks that decompress to an excessive size.

A few compressed bytes can decompress to gigabytes. Most writers of Iceberg tables end a block after
about 64 kB. PyIceberg writes a manifest list as one block, which takes some megabytes for 10,000
manifests.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.codecs.codec import Codec
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader
from zstandard import ZstdDecompressor

from icestream.memory.budget import Lease

_MAGIC = b"Obj\x01"
CHUNK_BYTES = 1 << 20
MOST_BLOCK_BYTES = 32 << 20
# The usual compression levels need no more. A frame may request gigabytes.
_MOST_WINDOW_BYTES = 8 << 20
_RAW_DEFLATE = -15
_DEFLATE, _BZIP2, _ZSTANDARD, _SNAPPY = (
    KNOWN_CODECS[name] for name in ("deflate", "bzip2", "zstandard", "snappy")
)


class AvroBlocks:
    """The records of an Avro file that is read in chunks.

    Args:
        read: Returns the next bytes of the file, of about the given number; none at the end.
        lease: Resized to the bytes that are held.

    Attributes:
        bytes_read: Bytes that have been read so far.

    Memory: a chunk of the file, or a block if that is larger, and the decompressed block.
    """

    def __init__(self, read: Callable[[int], bytes], lease: Lease) -> None:
        self.lease = lease
        self.bytes_read = 0
        self._read = read
        self._buffer = b""
        self._at = 0

    def records(self, reader_of: Callable[[str], Callable[[Any], Any]]) -> Iterator[Any]:
        """Decode the records one by one.

        Args:
            reader_of: Takes the file's schema as JSON. Returns a function that reads one record
                from a decoder.

        Raises:
            ValueError: If the file is damaged, or a block is too large.
            EOFError: If the file is truncated.
        """
        header = self._header()
        codec = header.compression_codec()
        read = reader_of(header.meta["avro.schema"])
        while not self._at_end():
            count, content = self._number(), self._take(self._number())
            decoder = new_decoder(decompressed(codec, content))
            if self._take(SYNC_SIZE) != header.sync:
                raise ValueError("a block does not end with the sync marker of the file")
            for _ in range(count):
                yield read(decoder)

    def _header(self) -> AvroFileHeader:
        while self._fill():
            # PyIceberg's decoder does not check this, and reads past the end of other content.
            if not self._buffer.startswith(_MAGIC[: len(self._buffer)]):
                raise ValueError("the file does not begin like an Avro file")
            decoder = new_decoder(self._buffer)
            try:
                header: AvroFileHeader = _header_reader().read(decoder)
            except EOFError:
                continue  # The header is longer than the bytes that have been read.
            self._at = decoder.tell()
            return header
        raise EOFError("the file ends in its header")

    def _at_end(self) -> bool:
        return self._at == len(self._buffer) and not self._fill()

    def _number(self) -> int:
        """The next number, in Avro's zigzag encoding."""
        shift = value = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def _take(self, count: int) -> bytes:
        if count < 0:
            raise ValueError(f"a block of {count} bytes")
        while len(self._buffer) - self._at < count:
            if not self._fill():
                raise EOFError("the file ends in the middle of a block")
        start, self._at = self._at, self._at + count
        return self._buffer[start : self._at]

    def _fill(self) -> bool:
        more = self._read(CHUNK_BYTES)
        self.bytes_read += len(more)
        self._buffer = self._buffer[self._at :] + more
        self._at = 0
        self.lease.resize(len(self._buffer))
        return bool(more)


@cache
def _header_reader() -> Reader:
    return construct_reader(META_SCHEMA, {-1: AvroFileHeader})


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def decompressed(codec: type[Codec] | None, block: bytes) -> bytes:
    """Decompress a block.

    Args:
        codec: The codec in the file's header. None if blocks are not compressed.
        block: The block as it is stored.

    Memory: at most 64 MB, whatever size the block claims to have.

    Raises:
        ValueError: If the content is larger than 32 MB.
        EOFError: If the block is truncated.
    """
    if codec is None:
        return block
    if codec is _DEFLATE:
        return _whole(zlib.decompressobj(_RAW_DEFLATE), block)
    if codec is _BZIP2:
        return _whole(bz2.BZ2Decompressor(), block)
    if codec is _ZSTANDARD:
        return _zstandard(block)
    if codec is _SNAPPY:
        _refuse_beyond(_snappy_length(block))
    return codec.decompress(block)


def decompressed_zstd(blob: bytes) -> bytes:
    """Decompress a blob that is compressed with Zstandard, with the same limit of 32 MB."""
    with pa.input_stream(pa.py_buffer(blob), compression="zstd") as stream:
        content: bytes = stream.read(MOST_BLOCK_BYTES + 1)
    _refuse_beyond(len(content))
    return content


def _whole(decompressor: _Decompressor, block: bytes) -> bytes:
    content = decompressor.decompress(block, MOST_BLOCK_BYTES + 1)
    _refuse_beyond(len(content))
    if not decompressor.eof:
        raise EOFError("a compressed block is truncated")
    return content


def _zstandard(block: bytes) -> bytes:
    decompressor = ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES)
    with decompressor.stream_reader(BytesIO(block)) as reader:
        content: bytes = reader.read(MOST_BLOCK_BYTES + 1)
    _refuse_beyond(len(content))
    return content


def _snappy_length(block: bytes) -> int:
    """The declared size of a block: a number with seven bits in each byte, lowest bits first."""
    length = 0
    for position, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * position)
        if not byte & 0x80:
            break
    return length


def _refuse_beyond(length: int) -> None:
    if length > MOST_BLOCK_BYTES:
        raise ValueError(
            f"a block holds more than {MOST_BLOCK_BYTES >> 20} MB when decompressed: writers of "
            "Iceberg tables do not write such blocks"
        )
