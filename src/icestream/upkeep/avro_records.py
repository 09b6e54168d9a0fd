"""Avro files read one record at a time, and refused if they are cut off.

PyIceberg's reader takes the end of a file that was cut off between two blocks for the end of its
records. Whoever deletes what a manifest does not name must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import InputStream
from pyiceberg.schema import Schema

_SYNC_BYTES = 16
_CHUNK_BYTES = 1 << 20


class AvroRecords:
    """The records of an Avro file.

    Memory: what is given as bytes, or 1 MB of a stream; and one block, decompressed.

    Args:
        content: The file: its bytes, or a stream at its start.
        size_bytes: How long it is.
        reader: Makes the reader of a record, given the schema that the file was written with.

    Raises:
        ValueError: If it is not Avro.
        EOFError: If it is cut off.
    """

    def __init__(
        self,
        content: bytes | InputStream,
        size_bytes: int,
        reader: Callable[[Schema], Reader],
    ) -> None:
        self._size_bytes = size_bytes
        self._decoder: BinaryDecoder
        if isinstance(content, bytes):
            self._decoder = new_decoder(content)
        else:
            self._decoder = StreamingBinaryDecoder(_Chunks(content))
        header = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
        self._header: AvroFileHeader = header.read(self._decoder)
        self._reader = reader(self._header.get_schema())

    def __iter__(self) -> Iterator[Any]:
        """The records.

        Raises:
            ValueError: If the file is damaged.
            EOFError: If it is cut off.
        """
        codec = self._header.compression_codec()
        while self._decoder.tell() < self._size_bytes:
            count = self._decoder.read_int()
            block = self._decoder.read_bytes()
            if self._decoder.read(_SYNC_BYTES) != self._header.sync:
                raise ValueError("its blocks do not end where they should")
            records = new_decoder(codec.decompress(block) if codec else block)
            for _ in range(count):
                yield self._reader.read(records)


class _Chunks:
    """A stream read in large pieces."""

    def __init__(self, stream: InputStream) -> None:
        self._stream = stream
        self._chunk = b""
        self._at = 0
        self._start = 0

    def read(self, size: int = 0) -> bytes:
        pieces = []
        while size > 0:
            if self._at == len(self._chunk):
                self._start += len(self._chunk)
                self._chunk, self._at = bytes(self._stream.read(_CHUNK_BYTES)), 0
                if not self._chunk:
                    break
            piece = self._chunk[self._at : self._at + size]
            self._at += len(piece)
            size -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    def tell(self) -> int:
        return self._start + self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        raise OSError("a manifest is read from its start to its end")

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> _Chunks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
