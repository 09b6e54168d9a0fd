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
