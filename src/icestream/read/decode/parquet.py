"""Decode Parquet page by page.

`ParquetFile.iter_batches` holds one page for each column, however large the row group is, if it
uses a buffered stream for each column and no pre-buffering. Its reader accepts a new batch size and
threading between batches, so each step can have as many rows as the budget allows at that moment.
tests/unit/read/decode/test_parquet.py fails if PyArrow changes this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq


class ParquetReader:
    """Decodes a run of consecutive row groups, a step of any number of rows at a time.

    Args:
        handle: The open file. The reader does not close it.
        metadata: The footer of the file.
        row_groups: The row groups to decode, consecutive.
        leaves: The leaf columns to decode.
        buffer: Size of the buffer for each column.
        dictionaries: Leaf columns to decode as dictionaries.
        large: Whether texts and lists get 64-bit offsets instead of those of the file's schema.

    Memory: for each column a buffer, one or two pages and a dictionary; and the batch of the step.
    """

    def __init__(
        self,
        handle: pa.NativeFile,
        metadata: pq.FileMetaData,
        row_groups: tuple[int, ...],
        leaves: list[int],
        buffer: int,
        dictionaries: list[int],
        *,
        large: bool = True,
    ) -> None:
        self._file = pq.ParquetFile(
            handle,
            metadata=metadata,
            buffer_size=buffer,
            pre_buffer=False,
            page_checksum_verification=True,  # Pages without a checksum are accepted.
            read_dictionary=dictionaries or None,
            # PyArrow ignores read_dictionary if binary_type is set.
            binary_type=pa.large_binary() if large and not dictionaries else None,
            list_type=pa.LargeListType if large else None,
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
        """Drop the buffers. The file stays open."""
        self._batches = None
        with suppress(Exception):
            self._file.close()


class CountReader:
    """A reader for scans that need only the number of rows and no column."""

    def __init__(self, rows: int) -> None:
        self._rows_left = rows

    def step(self, rows: int, use_threads: bool) -> pa.RecordBatch | None:
        """The next rows as a null column, because batches without columns have no length."""
        rows = min(rows, self._rows_left)
        if rows == 0:
            return None
        self._rows_left -= rows
        return pa.record_batch([pa.nulls(rows)], names=[""])

    def close(self) -> None:
        """Does nothing."""
