"""ORC, streamed flat: the dataset scanner with read-ahead of one batch and no threads.

Tiny stripes come out as tiny batches; the stream joins them before it does any work on them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.dataset as ds


class OrcReader:
    """Decodes an ORC file from start to end.

    Args:
        handle: The open file; stays open.
        schema: The file's schema; asking for it here would parse the footer once more.
        columns: Top-level column names to decode.
        batch_rows: The most rows in a step.

    Memory: the streams of the columns within one stripe, and two batches.
    """

    def __init__(
        self, handle: pa.NativeFile, schema: pa.Schema, columns: list[str], batch_rows: int
    ) -> None:
        fragment = ds.OrcFileFormat().make_fragment(handle)
        scanner = ds.Scanner.from_fragment(
            fragment,
            schema=schema,
            columns=columns,
            batch_size=batch_rows,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
        )
        # Not `to_batches`: on a busy machine that decodes further ahead.
        self._batches: Iterator[pa.RecordBatch] | None = iter(scanner.to_reader())

    def step(self, rows: int, use_threads: bool) -> pa.RecordBatch | None:
        """The next batch, whatever its size up to `batch_rows`; None at the end."""
        return next(self._batches, None) if self._batches is not None else None

    def close(self) -> None:
        """Let go of the scanner, and so of its buffers."""
        self._batches = None
