"""Decode ORC with the dataset scanner, with a read-ahead of one batch and no threads.

Tiny stripes become tiny batches, which `UnitStream` joins before it processes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from icestream.read.decode.sizing import Estimate
from icestream.read.project.conversion import is_text

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_REOPEN_FACTOR = 16
_PLAIN_FACTOR = 3  # Arrow bytes for each byte of the file.
_STREAM_BYTES = 1 << 20


class OrcReader:
    """Decodes an ORC file from start to end.

    The batch size of a scanner is fixed. Rows may be much longer than their stored bytes suggest,
    so the first steps are small. When the rows turn out to be short, the file is opened again with
    a larger batch size. Dropping a scanner before its end makes Arrow read the rest of the file,
    unless the file is closed first.

    Args:
        open_file: Opens the file, and opens it again after the reader has closed it.
        schema: The file's schema. Reading it here would parse the footer again.
        columns: Names of the top-level columns to decode.
        batch_rows: Maximum number of rows in the first steps.
        rows: Number of rows in the file. Batches are never larger, because a scanner allocates
            memory for a whole batch.

    Memory: the streams of the columns within one stripe, and two batches.
    """

    def __init__(
        self,
        open_file: Callable[[], pa.NativeFile],
        schema: pa.Schema,
        columns: list[str],
        batch_rows: int,
        *,
        rows: int,
    ) -> None:
        self._open_file = open_file
        self._handle = open_file()
        self._schema = schema
        self._columns = columns
        self._batch_rows = batch_rows
        self._rows = rows
        self._position = 0
        self._batches: Iterator[pa.RecordBatch] | None = self._scan()

    def step(self, rows: int, use_threads: bool) -> pa.RecordBatch | None:
        """The next batch; None at the end. It may have fewer or more rows than `rows`."""
        batch = self._next(min(rows, self._rows))
        if batch is not None:
            # ORC has no checksums. Text that is not valid UTF-8 may crash other libraries.
            batch.validate(full=True)
        return batch

    def close(self) -> None:
        """Close the file, and drop the scanner with its buffers."""
        with suppress(Exception):
            self._handle.close()
        self._batches = None

    def _next(self, rows: int) -> pa.RecordBatch | None:
        if self._batches is None:
            return None
        if self._position and rows >= _REOPEN_FACTOR * self._batch_rows:
            return self._step_reopened(rows)
        batch = next(self._batches, None)
        if batch is not None:
            self._position += batch.num_rows
        return batch

    def _step_reopened(self, rows: int) -> pa.RecordBatch | None:
        """Continue with larger batches, after the few rows that were delivered before."""
        self._batch_rows = rows
        self.close()  # Close it first, because each scanner holds the file's footer.
        self._handle = self._open_file()
        self._batches = self._scan()
        behind = self._position
        for batch in self._batches:
            if batch.num_rows > behind:
                rest = batch.slice(behind)
                self._position += rest.num_rows
                return rest
            behind -= batch.num_rows
        return None

    def _scan(self) -> Iterator[pa.RecordBatch]:
        return orc_batches(self._handle, self._columns, self._batch_rows, self._schema)


def orc_fragment(handle: pa.NativeFile) -> ds.Fragment:
    """An ORC file as a fragment of a dataset."""
    import pyarrow.dataset as ds  # 12 MB, and only ORC needs it

    return ds.OrcFileFormat().make_fragment(handle)


def orc_batches(
    handle: pa.NativeFile, columns: list[str], batch_rows: int, schema: pa.Schema | None = None
) -> Iterator[pa.RecordBatch]:
    """Decode an ORC file, one batch ahead. The schema is read from the file if it is not given."""
    scanner = orc_fragment(handle).scanner(
        schema=schema,
        columns=columns,
        batch_size=batch_rows,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
    )
    # `to_batches` would decode further ahead on a busy machine.
    return iter(scanner.to_reader())


def orc_estimate(schema: pa.Schema, columns: int, *, file_bytes: int, rows: int) -> Estimate:
    """Estimate the memory for decoding a file from its size.

    Args:
        schema: The file's schema.
        columns: Number of columns to decode.
        file_bytes: Size of the file.
        rows: Number of rows in the file.
    """
    plain = _PLAIN_FACTOR * file_bytes * columns / max(len(schema), 1) / rows
    return Estimate(
        row_bytes=plain + 8 * columns,
        fixed_bytes=min(_STREAM_BYTES, _PLAIN_FACTOR * file_bytes),
        rows=rows,
        surprising=_has_text(schema),
    )


def _has_text(schema: pa.Schema) -> bool:
    def holds(kind: pa.DataType) -> bool:
        text = is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        return text or any(holds(kind.field(i).type) for i in range(kind.num_fields))

    return any(holds(field.type) for field in schema)
