"""One file after another, each about as large as the table wants."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from icestream.errors import WriterClosedError
from icestream.write.new_file import NewFile
from icestream.write.parquet_writer import ParquetFileWriter

_FULL = 0.93  # A file this near to the target is finished: what is left would be a tiny group.
_FIRST_SHARE = 4  # Before anything is measured, a quarter of the target at most.
_REMEMBERED_GROUPS = 4
_AIM = 0.99


class RollingWriter:
    """Writes row groups, and begins a new file when one has reached its size.

    How much of a file a row group will fill is known only from the groups before it: the storage
    bytes that an Arrow byte became. `next_group_bytes` sizes groups so that the last one of a file
    ends it at the target.

    Not for several threads at once, but from one thread after another (see `EncodePool`).

    Args:
        open_file: Makes the writer of a new file; called with the first row group of each.
        target_file_bytes: Storage bytes of a full file.
        row_group_bytes: Arrow bytes of a row group at most.
        max_tail_bytes: What a file may hold in memory until it is finished, metadata and Bloom
            filters of its row groups; a file that holds more is finished early.
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
        self._footer_ratio = 1.0  # What the last file's footer took, over what was foretold.
        self._ended = False
        self._closed = False

    @property
    def finished_files(self) -> int:
        """How many files are full."""
        return len(self._finished)

    def next_group_bytes(self) -> int:
        """Arrow bytes that the next row group should have; ask when no group is being written."""
        if not self._sizes:
            return max(1, min(self._row_group_bytes, self._target_file_bytes // _FIRST_SHARE))
        # Weighted by size: the small group that ends a file compresses worse than the others.
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
        """Delete every file; nothing happens after a successful `close`."""
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
        """What the current file would take if it were finished now."""
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
