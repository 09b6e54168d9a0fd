"""Parquet, decoded page by page.

`ParquetFile.iter_batches` without pre-buffering and with a buffered stream per column holds one
page per column, however large the row group is. Its reader takes a new batch size and threading
between batches (tests/unit/read/test_parquet_reader.py fails if it stops doing so): that is how a
step can be as many rows as the budget allows right now.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.read.conversion import is_text
from icestream.read.sizing import Estimate

_PAGE_BYTES = 1 << 20
_CODE_BYTES = 3
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}


def buffer_bytes(limit_bytes: int, columns: int) -> int:
    """The buffered stream's size: all columns together take at most an eighth of the limit.

    Larger buffers than 64 kB gain nothing on a disk, and on an object store what is behind the
    buffer has been fetched already.
    """
    return max(16 << 10, min(64 << 10, limit_bytes // 8 // max(columns, 1)))


def estimate(
    metadata: pq.FileMetaData, row_groups: tuple[int, ...], leaves: list[int], buffer: int
) -> Estimate:
    """What the footer tells about decoding these row groups."""
    rows = sum(metadata.row_group(g).num_rows for g in row_groups)
    row_bytes, fixed = 0.0, 0
    sampled = row_groups[:8]
    sampled_rows = sum(metadata.row_group(g).num_rows for g in sampled) or 1
    for leaf in leaves:
        plain = 0
        largest = 0
        dictionary = False
        kind = ""
        values = 0
        for group in sampled:
            chunk = metadata.row_group(group).column(leaf)
            kind = chunk.physical_type
            plain += chunk.total_uncompressed_size
            largest = max(largest, chunk.total_uncompressed_size)
            dictionary = dictionary or chunk.has_dictionary_page
            values += chunk.num_values
        if kind in _WIDTHS:
            row_bytes += _WIDTHS[kind] * values / sampled_rows
        else:
            row_bytes += plain / sampled_rows + 8 * values / sampled_rows
        page = min(_PAGE_BYTES, largest)
        fixed += min(buffer, largest) + 2 * page + (page if dictionary else 0)
    return Estimate(max(row_bytes, 0.125), fixed if rows else 0, rows)


def dictionary_columns(
    metadata: pq.FileMetaData, file_schema: pa.Schema, leaves: list[int], row_group: int
) -> list[int]:
    """Flat string columns worth decoding through their dictionary: short codes, longer values.

    Building strings from a table of distinct values is cheaper than decoding each of them, as long
    as the column stayed dictionary-encoded to its end (docs/design/0003).
    """
    group = metadata.row_group(row_group)
    flat = {field.name for field in file_schema if is_text(field.type)}
    chunks = [(leaf, group.column(leaf)) for leaf in leaves]
    return [
        leaf
        for leaf, chunk in chunks
        if chunk.path_in_schema in flat
        and chunk.has_dictionary_page
        and chunk.total_uncompressed_size < _CODE_BYTES * chunk.num_values
    ]


class ParquetReader:
    """Decodes a run of consecutive row groups, a step of any number of rows at a time.

    Args:
        handle: The open file; stays open.
        metadata: Its footer, if it was read before.
        row_groups: Which row groups, consecutive.
        leaves: Which leaf columns.
        buffer: Bytes of buffer per column.
        dictionaries: Leaf columns to decode as dictionaries.

    Memory: a buffer, a page or two and a dictionary per column, and the batch of the step.
    """

    def __init__(
        self,
        handle: pa.NativeFile,
        metadata: pq.FileMetaData,
        row_groups: tuple[int, ...],
        leaves: list[int],
        buffer: int,
        dictionaries: list[int],
    ) -> None:
        self._file = pq.ParquetFile(
            handle,
            metadata=metadata,
            buffer_size=buffer,
            pre_buffer=False,
            page_checksum_verification=True,  # of pages that carry one
            read_dictionary=dictionaries or None,
            # PyArrow ignores read_dictionary beside binary_type.
            binary_type=None if dictionaries else pa.large_binary(),
            list_type=pa.LargeListType,
        )
        self._rows_left = sum(metadata.row_group(g).num_rows for g in row_groups)
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._row_groups = list(row_groups)
        self._leaves = leaves

    def step(self, rows: int, use_threads: bool) -> pa.RecordBatch | None:
        """Decode up to `rows` rows; None at the end."""
        reader = self._file.reader
        if self._batches is None:
            self._batches = reader.iter_batches(
                rows,
                row_groups=self._row_groups,
                column_indices=self._leaves,
                use_threads=use_threads,
            )
        else:
            reader.set_batch_size(rows)
            reader.set_use_threads(use_threads)
        batch = next(self._batches, None)
        if batch is None:
            if self._rows_left:
                raise OSError(f"the file ended {self._rows_left} rows early")
            return None
        self._rows_left -= batch.num_rows
        return batch

    def close(self) -> None:
        """Let go of buffers. The file itself belongs to whoever opened it."""
        self._batches = None
        with suppress(Exception):
            self._file.close()


class CountReader:
    """Stands in where no column is needed: only the number of rows is."""

    def __init__(self, rows: int) -> None:
        self._rows_left = rows

    def step(self, rows: int, use_threads: bool) -> pa.RecordBatch | None:
        """Batches without columns can't carry a length, so a null column stands in."""
        rows = min(rows, self._rows_left)
        if rows == 0:
            return None
        self._rows_left -= rows
        return pa.record_batch([pa.nulls(rows)], names=[""])

    def close(self) -> None:
        """Nothing to let go of."""
