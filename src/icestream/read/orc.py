"""ORC, streamed flat: the dataset scanner with read-ahead of one batch and no threads.

Tiny stripes come out as tiny batches; the stream joins them before it does any work on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.dataset as ds

_REOPEN_FACTOR = 16


class OrcReader:
    """Decodes an ORC file from start to end.

    A scanner's batch size is fixed. Rows may be far longer than their stored bytes tell, so that
    the first steps are small; the file is opened again once they are known to be short. Dropping a
    scanner before its end makes Arrow read the rest of the file, unless the file is closed first.

    Args:
        open_file: Opens the file, and opens it again after the reader has closed it.
        schema: The file's schema; asking for it here would parse the footer once more.
        columns: Top-level column names to decode.
        batch_rows: The most rows in the first steps.
        rows: How many rows the file has. Batches are never larger, because a scanner allocates
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
        """The next batch, whatever its size up to that of the first steps; None at the end."""
        if self._batches is None:
            return None
        rows = min(rows, self._rows)
        if self._position and rows >= _REOPEN_FACTOR * self._batch_rows:
            return self._step_reopened(rows)
        batch = next(self._batches, None)
        if batch is not None:
            self._position += batch.num_rows
        return batch

    def close(self) -> None:
        """Let go of the file and of the scanner, and so of its buffers."""
        with suppress(Exception):
            self._handle.close()
        self._batches = None

    def _step_reopened(self, rows: int) -> pa.RecordBatch | None:
        """Go on with larger batches, behind the few rows that were delivered before."""
        self._batch_rows = rows
        self.close()  # Before the next one is opened: each holds the file's footer.
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
        fragment = ds.OrcFileFormat().make_fragment(self._handle)
        scanner = ds.Scanner.from_fragment(
            fragment,
            schema=self._schema,
            columns=self._columns,
            batch_size=self._batch_rows,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
        )
        # Not `to_batches`: on a busy machine that decodes further ahead.
        return iter(scanner.to_reader())
