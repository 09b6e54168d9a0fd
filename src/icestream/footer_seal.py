"""A checksum over a Parquet file's footer, which the format itself has none for.

Page checksums cover the values. A flipped bit in the footer may rule a row group out by its
statistics, change a type, or point at another column. The seal is 16 bytes in front of the footer,
where no reader looks: eight bytes of magic, the footer's CRC-32 and its length. A file without a
seal is read as it is.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

SEAL_BYTES = 16
END_BYTES = 8
_TAIL_BYTES = 64 << 10
_MAGIC = b"ICESEAL1"
_SEAL = struct.Struct("<8sII")


class DamagedFooterError(ValueError):
    """The footer has another checksum than when it was written."""


class SealedOutput:
    """A file that is being written, whose footer gets a seal.

    Memory: the buffer, and the footer while it is written.

    Args:
        store: The file: a `pa.NativeFile` or a Python file. `close` closes it.
        buffer_bytes: What is gathered before it is written.

    Attributes:
        stream: What a Parquet writer writes to.
    """

    def __init__(self, store: Any, buffer_bytes: int) -> None:
        self._passage = _Passage(store)
        self.stream = pa.BufferedOutputStream(pa.PythonFile(self._passage, mode="w"), buffer_bytes)

    @property
    def bytes_written(self) -> int:
        """Bytes that the file has so far, the buffered ones left out."""
        return self._passage.bytes_written

    @contextmanager
    def footer(self, most_bytes: int = 16 << 20) -> Iterator[None]:
        """Close the Parquet writer inside this block: its footer is sealed at the end.

        Args:
            most_bytes: How much may be held back; a longer footer gets no seal.
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
    """Passes writes on, or holds the newest of them back."""

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
            if excess > self._most_held_bytes:  # Twice as much: not a copy for every write.
                self._pass(bytes(self._held[:excess]))
                del self._held[:excess]
        return len(data)

    def hold(self, most_bytes: int) -> None:
        self._held = bytearray()
        self._most_held_bytes = most_bytes

    def seal(self) -> None:
        held, self._held = bytes(self._held or b""), None
        length = int.from_bytes(held[-END_BYTES : -END_BYTES + 4], "little")
        start = len(held) - END_BYTES - length
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


def read_tail(
    handle: pa.NativeFile, expect: Callable[[int], None] = lambda length: None
) -> bytes | None:
    """The last bytes of a Parquet file, the footer and its seal among them.

    Args:
        handle: The open file.
        expect: Called with the footer's length before the footer is read; may raise.

    Returns:
        None if the file does not end as a Parquet file with a plain footer does.

    Raises:
        DamagedFooterError: If the seal shows damage.
    """
    size = handle.size()
    tail: bytes = handle.read_at(min(size, _TAIL_BYTES), max(size - _TAIL_BYTES, 0))
    if len(tail) < END_BYTES or tail[-4:] != b"PAR1":
        return None
    needed = int.from_bytes(tail[-8:-4], "little") + END_BYTES
    if needed > size:
        return None
    expect(needed - END_BYTES)
    wanted = min(needed + SEAL_BYTES, size)
    if wanted > len(tail):
        tail = handle.read_at(wanted, size - wanted)
    check_seal(tail)
    return tail


def check_seal(tail: bytes) -> None:
    """Compare the checksum of a footer with its seal, if it has one.

    Args:
        tail: The end of the file, the footer and what is in front of it included.

    Raises:
        DamagedFooterError: If they differ.
    """
    length = int.from_bytes(tail[-8:-4], "little")
    start = len(tail) - END_BYTES - length
    if start < SEAL_BYTES:
        return
    magic, checksum, sealed_length = _SEAL.unpack_from(tail, start - SEAL_BYTES)
    if magic != _MAGIC:
        return
    if sealed_length != length or zlib.crc32(memoryview(tail)[start:]) != checksum:
        raise DamagedFooterError("the footer's checksum is not the one it was written with")
