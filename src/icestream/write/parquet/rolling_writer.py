"""Writes one file after another, each of about the table's target size."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from icestream.errors import WriterClosedError
from icestream.write.new_file import NewFile
from icestream.write.parquet.parquet_writer import ParquetFileWriter

_FULL = 0.93  # A file this close to the target is finished: the next group would be tiny.
_FIRST_SHARE = 4  # The first group is at most a quarter of the target.
_REMEMBERED_GROUPS = 4
_AIM = 0.99


class RollingWriter:
    """Writes row groups, and starts a new file when one has reached its size.

    Earlier groups show how many storage bytes an Arrow byte takes. From that, `next_group_bytes`
    sizes groups so that the last group of a file ends it at the target size.

    Not safe for several threads at once; one thread after another may use it (see `EncodePool`).

    Args:
        open_file: Creates the writer of a new file; called at the first row group of each.
        target_file_bytes: Storage bytes of a full file.
        row_group_bytes: Maximum Arrow bytes of a row group.
        max_tail_bytes: Maximum bytes of metadata and Bloom filters that a file holds in memory
            until it is finished; a file that holds more is finished early.
    """

    def __init__(
        self,
        open_file: Callable[[], ParquetFileWriter],
        *,
        target_file_bytes: int,
        row_group_bytes: int,
        max_tail_bytes: int | None = None,
    ) -> None:
        self._open_file = open_file
        self._target_file_bytes = target_file_bytes
        self._row_group_bytes = row_group_bytes
        self._max_tail_bytes = max_tail_bytes
        self._sizes: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED_GROUPS)
        self._current: ParquetFileWriter | None = None
        self._finished: list[tuple[ParquetFileWriter, NewFile]] = []
        self._footer_ratio = 1.0  # The last footer's size divided by its estimate.
        self._ended = False
        self._closed = False

    @property
    def finished_files(self) -> int:
        """Number of full files."""
        return len(self._finished)

    def next_group_bytes(self) -> int:
        """Arrow bytes of the next row group. Call it only while no group is being written."""
        if not self._sizes:
            return max(1, min(self._row_group_bytes, self._target_file_bytes // _FIRST_SHARE))
        # Weighted by size: the small last group of a file compresses worse than others.
        stored = sum(stored for stored, _ in self._sizes)
        ratio = stored / sum(arrow_bytes for _, arrow_bytes in self._sizes)
        written = self._stored_bytes()
        wanted = (_AIM * self._target_file_bytes - written) / ratio
        groups = max(1, math.ceil(wanted / self._row_group_bytes))
        return max(1, int(wanted / groups))

    def write_row_group(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write the batches as one row group, and finish the file if that fills it.

        Raises:
            WriteError: If storage refuses; the caller then aborts.
        """
        self._assert_open()
        arrow_bytes = sum(batch.nbytes for batch in batches)
        if self._current is None:
            self._current = self._open_file()
        current = self._current
        before = self._stored_bytes()
        current.write_row_group(batches)
        if arrow_bytes:
            self._sizes.append((max(self._stored_bytes() - before, 1), arrow_bytes))
        full = self._stored_bytes() >= _FULL * self._target_file_bytes
        if full or (self._max_tail_bytes and current.tail_bytes > self._max_tail_bytes):
            self._finish_current()

    def close(self) -> list[NewFile]:
        """Finish the last file and describe all of them.

        Raises:
            WriteError: If storage refuses. All files have been deleted.
        """
        self._assert_open()
        try:
            if self._current is not None:
                self._finish_current()
        except BaseException:
            self.abort()
            raise
        self._ended = self._closed = True
        return [new_file for _, new_file in self._finished]

    def abort(self) -> None:
        """Delete every file; does nothing after a successful `close`."""
        if not self._closed:
            self.delete()

    def delete(self) -> None:
        """Delete every file, closed or not. Failures are only logged."""
        self._ended = True
        if self._current is not None:
            self._current.abort()
            self._current = None
        for writer, _ in self._finished:
            writer.delete()
        self._finished.clear()

    def _stored_bytes(self) -> float:
        """The size of the current file if it were finished now."""
        if self._current is None:
            return 0
        return self._current.body_bytes + self._current.footer_bytes * self._footer_ratio

    def _finish_current(self) -> None:
        current, self._current = self._current, None
        if current is not None and current.rows:
            new_file = current.close()
            self._finished.append((current, new_file))
            self._footer_ratio = (new_file.bytes - current.body_bytes) / current.footer_bytes

    def _assert_open(self) -> None:
        if self._ended:
            raise WriterClosedError("the writer has ended: it takes no more rows")
