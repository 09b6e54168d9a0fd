"""Arrow IPC files and streams: the size of each batch is known before the batch is read.

PyArrow reads a batch as a whole, however large it is. The header in front of it, a small
FlatBuffers table, has its size. In a stream, each message follows the one before. In a file, the
footer has the positions of messages, because writers may leave gaps between them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

_FILE_MARK = b"ARROW1"
_END_BYTES = 4 + len(_FILE_MARK)  # after the footer: its length, and the mark
_DICTIONARIES, _BATCHES = 2, 3  # fields of the footer
_BLOCK_BYTES = 24
_CONTINUATION = 0xFFFFFFFF
_DICTIONARY, _BATCH = 2, 3  # kinds of messages
_LONGEST_HEADER_BYTES = 64 << 20
_WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class MessageSize:
    """The size of a dictionary or a batch.

    Attributes:
        is_dictionary: Whether it is a dictionary. Dictionaries stay in memory for all batches.
        bytes: The memory it takes while it is read: its stored bytes, and its decompressed bytes if
            it is compressed.
    """

    is_dictionary: bool
    bytes: int


class IpcMessages:
    """The batches of an open file.

    Args:
        handle: The file; the caller closes it.

    Attributes:
        schema: Its columns.
    """

    def __init__(self, handle: pa.NativeFile) -> None:
        self._handle = handle
        self._file: pa.ipc.RecordBatchFileReader | None = None
        self._stream: pa.ipc.RecordBatchStreamReader | None = None
        self._given = 0
        if self._at(0, len(_FILE_MARK)) == _FILE_MARK:
            self._file = pa.ipc.open_file(handle)
            self.schema = self._file.schema
        else:
            handle.seek(0)
            self._stream = pa.ipc.open_stream(handle)
            self.schema = self._stream.schema

    def sizes(self) -> Iterator[MessageSize]:
        """The size of each dictionary and batch. After the size of a batch, call `next_batch`.

        Raises:
            OSError: If the file is damaged.
        """
        return self._sizes_in_stream() if self._file is None else self._sizes_in_file()

    def next_batch(self) -> pa.RecordBatch:
        """Read the batch whose size was given last."""
        if self._stream is not None:
            return self._stream.read_next_batch()
        assert self._file is not None
        self._given += 1
        return self._file.get_batch(self._given - 1)

    def _sizes_in_file(self) -> Iterator[MessageSize]:
        end = self._handle.size() - _END_BYTES
        length = _number("<i", self._at(end, _END_BYTES), 0)
        footer = _Table.root(self._at(end - length, length))
        for field in (_DICTIONARIES, _BATCHES):
            for position in footer.structs(field, _BLOCK_BYTES):
                message = self._message(footer.read("<q", position))
                if message is None or message.size is None:
                    raise OSError("the footer has a position without a message")
                yield message.size

    def _sizes_in_stream(self) -> Iterator[MessageSize]:
        position = 0
        while (message := self._message(position)) is not None:
            position = message.end
            if message.size is not None:
                yield message.size
        try:
            self.next_batch()  # PyArrow raises an error if the stream is truncated.
        except StopIteration:
            return
        raise OSError("the header of a message is damaged")

    def _message(self, position: int) -> _Message | None:
        """Read the header of a message; None at the end of a stream."""
        prefix = self._at(position, 8)
        if len(prefix) < 8:
            return None
        first, length = struct.unpack("<II", prefix)
        start = position + 8
        if first != _CONTINUATION:  # The format before Arrow 0.15.
            length, start = first, position + 4
        if not length:
            return None
        if length > _LONGEST_HEADER_BYTES:
            raise OSError(f"a message has a header of {length} bytes")
        header = self._at(start, length)
        if len(header) < length:
            return None
        table, body = _Table.root(header), start + length
        kind, stored = table.number(1, "<B"), table.number(3, "<q")
        if stored < 0:
            raise OSError("the header of a message is damaged: its length is negative")
        size = None
        if kind in (_DICTIONARY, _BATCH):
            rows = table.table(2)
            if kind == _DICTIONARY:
                rows = rows and rows.table(1)
            unpacked = 0 if rows is None else self._unpacked_bytes(rows, body, body + stored)
            size = MessageSize(kind == _DICTIONARY, stored + unpacked)
        return _Message(size, body + stored)

    def _unpacked_bytes(self, rows: _Table, body: int, end: int) -> int:
        """The decompressed bytes of a batch; 0 if it is not compressed."""
        if rows.table(3) is None:
            return 0
        total = 0
        start, window = body, b""
        for place in rows.structs(2, 16):
            position, length = body + rows.read("<q", place), rows.read("<q", place + 8)
            if length < 8:
                continue
            # The first eight bytes of a buffer are its length. Short buffers share a request.
            if not start <= position <= start + len(window) - 8:
                start = position
                window = self._at(start, min(_WINDOW_BYTES, max(end - start, 8)))
            total += max(_number("<q", window, position - start), length)
        return total

    def _at(self, position: int, length: int) -> bytes:
        """Read bytes anywhere in the file, and restore the position of the stream."""
        if position < 0 or length < 0:
            raise OSError("the header of a message is damaged: a position is negative")
        before = self._handle.tell()
        self._handle.seek(position)
        read: bytes = self._handle.read(length)
        self._handle.seek(before)
        return read


@dataclass(frozen=True, slots=True)
class _Message:
    """The size of a dictionary or a batch, and the end of its message."""

    size: MessageSize | None
    end: int


class _Table:
    """A FlatBuffers table.

    Raises:
        OSError: If it refers to bytes beyond its end.
    """

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position
        self._fields = position - self.read("<i", position)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        """The outermost table."""
        return cls(data, _number("<I", data, 0))

    def number(self, field: int, kind: str) -> int:
        """A number; 0 if it is absent."""
        at = self._place(field)
        return 0 if at is None else self.read(kind, at)

    def table(self, field: int) -> _Table | None:
        """A nested table."""
        at = self._place(field)
        return None if at is None else _Table(self._data, at + self.read("<I", at))

    def structs(self, field: int, each_bytes: int) -> Iterator[int]:
        """The positions of the structs of a list."""
        at = self._place(field)
        if at is None:
            return
        start = at + self.read("<I", at)
        for number in range(self.read("<I", start)):
            yield start + 4 + each_bytes * number

    def read(self, kind: str, position: int) -> int:
        """The number at a position."""
        return _number(kind, self._data, position)

    def _place(self, field: int) -> int | None:
        slot = 4 + 2 * field
        if slot >= self.read("<H", self._fields):
            return None
        offset = self.read("<H", self._fields + slot)
        return self._position + offset if offset else None


def _number(kind: str, data: bytes, position: int) -> int:
    try:
        return int(struct.unpack_from(kind, data, position)[0])
    except struct.error as error:
        raise OSError(f"the header of a message is damaged: {error}") from error
