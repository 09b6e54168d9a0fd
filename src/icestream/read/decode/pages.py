"""Sizes of Parquet pages, from their headers.

A decoder holds pages, but the footer records only the sizes of column chunks. The header in front
of each page records its size, in a few bytes of Thrift's compact protocol. This module reads only
headers.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

_HEADER_BYTES = 256
_LONGEST_HEADER_BYTES = 1 << 20
_DICTIONARY_PAGE = 2
_MOST_PAGES = 4_096


@dataclass(frozen=True, slots=True)
class PageSizes:
    """Decompressed sizes of the pages of a column chunk.

    Attributes:
        largest_bytes: The largest data page.
        dictionary_bytes: The dictionary page. 0 without one.
        dictionary_values: Number of values in the dictionary.
        data_bytes: All data pages.
    """

    largest_bytes: int
    dictionary_bytes: int
    dictionary_values: int
    data_bytes: int

    @property
    def longest_value_bytes(self) -> int:
        """Upper bound for a dictionary value. Each value has four more bytes for its length."""
        return max(self.dictionary_bytes - 4 * self.dictionary_values, 0)


def chunk_range(chunk: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Start and end of a column chunk in its file."""
    start = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None and chunk.dictionary_page_offset > 0:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def page_sizes(
    handle: pa.NativeFile, chunk: pq.ColumnChunkMetaData, *, every: bool = False
) -> PageSizes:
    """Read the headers of a column chunk's dictionary and first data page, or of every page.

    Values of a fixed width have pages of the same size. A page of text is as large as its longest
    text. The sizes are bounds from the footer if headers are malformed, which the decoder reports
    better, and for pages after the first few thousand.
    """
    at, end = chunk_range(chunk)
    whole = int(chunk.total_uncompressed_size)
    largest = dictionary = values = seen = pages = 0
    while at < end and (every or not largest) and largest < whole - seen:
        try:
            header = _read_header(handle, at, end, whole=every)
        except _Malformed:
            return PageSizes(whole, whole, 1, whole)
        if pages == _MOST_PAGES:
            largest = max(largest, min(whole - seen, 2 * largest))
            break
        if header.kind == _DICTIONARY_PAGE:
            dictionary, values = header.size, header.values
        else:
            largest = max(largest, header.size)
        seen += header.size
        pages += 1
        at += header.length + header.stored_size
    return PageSizes(largest, dictionary, values, max(whole - dictionary, 0))


class _Malformed(Exception):  # noqa: N818 - never leaves this module
    """The bytes are not a page header."""


@dataclass(frozen=True, slots=True)
class _Header:
    kind: int
    size: int
    stored_size: int
    values: int
    length: int


def _read_header(handle: pa.NativeFile, at: int, end: int, *, whole: bool) -> _Header:
    length = _HEADER_BYTES
    while True:
        read = min(length, end - at)
        parser = _Parser(handle.read_at(read, at))
        try:
            return parser.page_header(whole=whole)
        except IndexError:
            if read < length or length >= _LONGEST_HEADER_BYTES:
                raise _Malformed from None
            length *= 16


class _Parser:
    """Parses the part of Thrift's compact protocol that page headers use."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def page_header(self, *, whole: bool) -> _Header:
        """Read a header.

        Args:
            whole: Whether to read a data page's header to its end, where the page begins. If not,
                the statistics at the end are skipped, and `length` is too small.
        """
        numbers = {1: -1, 2: -1, 3: -1}
        values = 0
        number = 0
        while (kind_and_step := self._byte()) != 0:
            kind, step = kind_and_step & 15, kind_and_step >> 4
            number = number + step if step else self._zigzag()
            if number in numbers and kind == 5:
                numbers[number] = self._zigzag()
                if number == 3 and numbers[1] != _DICTIONARY_PAGE and not whole:
                    break
            elif number == 7 and kind == 12:
                values = self._first_number()
            else:
                self._skip(kind)
        if min(numbers.values()) < 0:
            raise _Malformed
        return _Header(numbers[1], numbers[2], numbers[3], values, self._at)

    def _first_number(self) -> int:
        """The first field of a struct, which is a number. Skips the other fields."""
        value, first = 0, True
        while (kind_and_step := self._byte()) != 0:
            kind, step = kind_and_step & 15, kind_and_step >> 4
            if not step:
                self._zigzag()
            if first and step == 1 and kind == 5:
                value = self._zigzag()
            else:
                self._skip(kind)
            first = False
        return value

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _varint(self) -> int:
        data, at = self._data, self._at
        value = shift = 0
        while (byte := data[at]) >= 128:
            value |= (byte & 127) << shift
            shift += 7
            at += 1
            if shift > 63:
                raise _Malformed
        self._at = at + 1
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, kind: int) -> None:
        if kind in (1, 2):  # A boolean: the kind is its value.
            return
        if kind == 3:
            self._at += 1
        elif kind in (4, 5, 6):
            self._varint()
        elif kind == 7:
            self._at += 8
        elif kind == 8:
            size = self._varint()
            self._at += size
        elif kind in (9, 10):
            self._skip_list()
        elif kind == 12:
            while (kind_and_step := self._byte()) != 0:
                if not kind_and_step >> 4:
                    self._zigzag()
                self._skip(kind_and_step & 15)
        else:
            raise _Malformed
        if self._at > len(self._data):
            raise IndexError

    def _skip_list(self) -> None:
        size_and_kind = self._byte()
        size, kind = size_and_kind >> 4, size_and_kind & 15
        if size == 15:
            size = self._varint()
        for _ in range(size):
            if kind in (1, 2):
                self._at += 1
            else:
                self._skip(kind)
