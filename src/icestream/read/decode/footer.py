"""Parquet footers: lease their memory before they are parsed, and protect them with a checksum.

A parsed footer takes about ten times its size in the file, outside Arrow's pools. With tens of
thousands of row groups that is hundreds of MB. The last eight bytes of the file contain its length.

Page checksums cover only values, and Parquet has no checksum of the footer. A flipped bit there may
skip a row group by its statistics, change a type, or point at another column. So icestream writes a
seal: 16 bytes in front of the footer, which other readers ignore. They are eight magic bytes, the
CRC-32 of the footer and its length. A file without a seal is read without this check.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.memory.budget import format_bytes, over_limit

_PARSED_FACTOR = 10  # Measured: 7.8 to 11.7 with 5 to 3,000 columns (docs/design/0011).
_SEAL_BYTES = 16
_END_BYTES = 8
_TAIL_BYTES = 64 << 10
_MAGIC = b"ICESEAL1"
_SEAL = struct.Struct("<8sII")


class DamagedFooterError(ValueError):
    """The checksum of the footer does not match its seal."""


def read_footer(
    handle: pa.NativeFile, charge: Callable[[int], None] = lambda needed_bytes: None
) -> pq.ParquetFile:
    """Read the footer, as a file that provides `metadata` and `schema_arrow`.

    Args:
        handle: The open file.
        charge: Called with the size of the parsed footer before it is read and parsed. It may wait
            or raise.

    Raises:
        DamagedFooterError: If the seal does not match.
    """
    size = handle.size()
    tail: bytes = handle.read_at(min(size, _TAIL_BYTES), max(size - _TAIL_BYTES, 0))
    length = _footer_length(tail)
    needed = length + _END_BYTES
    if len(tail) < _END_BYTES or tail[-4:] != b"PAR1" or needed > size:
        return pq.ParquetFile(handle, pre_buffer=False)  # It raises the right error.
    charge(_PARSED_FACTOR * length)
    wanted = min(needed + _SEAL_BYTES, size)
    if wanted > len(tail):
        tail = handle.read_at(wanted, size - wanted)
    _check_seal(tail)
    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(tail).slice(len(tail) - needed)))


def refuse_footer_beyond(limit_bytes: int, needed_bytes: int, path: str) -> None:
    """Refuse a footer that does not fit the limit, before it is parsed.

    Raises:
        MemoryBudgetError: With the bytes that reading the file needs.
    """
    if needed_bytes <= limit_bytes:
        return
    raise over_limit(
        f"the parsed footer of {path} takes {format_bytes(needed_bytes)}",
        needed_bytes=int(needed_bytes * 1.5),
        limit_bytes=limit_bytes,
        otherwise="rewrite the file with fewer row groups",
    )


def _footer_length(tail: bytes) -> int:
    return int.from_bytes(tail[-8:-4], "little")


def _check_seal(tail: bytes) -> None:
    """Compare the checksum of the footer at the end of `tail` with its seal, if it has one."""
    length = _footer_length(tail)
    start = len(tail) - _END_BYTES - length
    if start < _SEAL_BYTES:
        return
    magic, checksum, sealed_length = _SEAL.unpack_from(tail, start - _SEAL_BYTES)
    if magic != _MAGIC:
        return
    if sealed_length != length or zlib.crc32(memoryview(tail)[start:]) != checksum:
        raise DamagedFooterError("the checksum of the footer does not match its seal")


class SealedOutput:
    """A Parquet file that is being written and whose footer gets a seal.

    Memory: the buffer, and the footer while it is written.

    Args:
        store: The file: a `pa.NativeFile` or a Python file. `close` closes it.
        buffer_bytes: The size of the write buffer.

    Attributes:
        stream: The stream for the Parquet writer.
    """

    def __init__(self, store: Any, buffer_bytes: int) -> None:
        self._passage = _Passage(store)
        self.stream = pa.BufferedOutputStream(pa.PythonFile(self._passage, mode="w"), buffer_bytes)

    @property
    def bytes_written(self) -> int:
        """Bytes that have been written so far, without buffered ones."""
        return self._passage.bytes_written

    @contextmanager
    def footer(self, most_bytes: int = 16 << 20) -> Iterator[None]:
        """Close the Parquet writer inside this block. The footer is sealed at the end.

        Args:
            most_bytes: Maximum number of bytes to hold back. A longer footer gets no seal.
        """
        self.stream.flush()
        self._passage.hold(most_bytes)
        yield
        self.stream.flush()
        self._passage.seal()

    def close(self) -> None:
        """Close the file."""
        self.stream.close()


class _Passage:
    """Passes writes on, or holds the newest bytes back."""

    def __init__(self, store: Any) -> None:
        self.bytes_written = 0
        self.closed = False
        self._store = store
        self._held: bytearray | None = None
        self._most_held_bytes = 0

    def write(self, data: bytes) -> int:
        if self._held is None:
            self._pass(data)
        else:
            self._held += data
            excess = len(self._held) - self._most_held_bytes
            # At twice the limit, to avoid a copy for each write.
            if excess > self._most_held_bytes:
                self._pass(bytes(self._held[:excess]))
                del self._held[:excess]
        return len(data)

    def hold(self, most_bytes: int) -> None:
        self._held = bytearray()
        self._most_held_bytes = most_bytes

    def seal(self) -> None:
        held, self._held = bytes(self._held or b""), None
        length = _footer_length(held)
        start = len(held) - _END_BYTES - length
        if start >= 0:
            footer = held[start:]
            self._pass(held[:start])
            self._pass(_SEAL.pack(_MAGIC, zlib.crc32(footer), length))
            held = footer
        self._pass(held)

    def flush(self) -> None:
        self._store.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._store.close()

    def _pass(self, data: bytes) -> None:
        if data:
            self._store.write(data)
            self.bytes_written += len(data)
