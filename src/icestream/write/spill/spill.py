"""Sorts rows that do not fit in memory: writes sorted runs to disk and merges them.

```
SortedRows -> RunFile   RunFile   RunFile   ...        one for each buffer full of rows
                 \\         |        /
                  cursor  cursor  cursor               each holds one chunk
                        \\    |    /
           (0, rows)  (1, rows)  (2, rows) ...         partition by partition
```
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.memory.budget import MemoryBudget
from icestream.write.spill.run_file import RunCursor, RunFile
from icestream.write.spill.sort_keys import Row, SortKeys, row_at
from icestream.write.spill.sorted_rows import SortedRows

_CHUNKS_PER_LIMIT = 256
_LEAST_CHUNK_BYTES = 64 * 1024
_LEAST_COLUMN_BYTES = 2 * 1024  # In smaller columns, lz4 and framing cost more than the rows.


class Spill:
    """Sorted runs in temporary files, merged in order of partition id.

    Merging compares partition ids only. With `keys`, Arrow also sorts the rows of one partition, a
    window at a time. A merge holds one chunk of each run. If these exceed their share of the
    budget, runs are first merged into longer ones.

    Memory: while merging, a quarter of the limit for the chunks of all cursors. With `keys`, an
    eighth for the chunks and two copies of that for the window being sorted.

    Args:
        directory: The directory of temporary files; None for `tempfile`'s default (`TMPDIR`).
        schema: The schema of the rows, without ids.
        budget: The budget that the chunks are charged to.
        keys: The sort keys within each partition.
    """

    def __init__(
        self,
        directory: str | None = None,
        *,
        schema: pa.Schema,
        budget: MemoryBudget,
        keys: SortKeys | None = None,
    ) -> None:
        limit = budget.limit_bytes
        wanted = max(
            limit // _CHUNKS_PER_LIMIT, _LEAST_CHUNK_BYTES, _LEAST_COLUMN_BYTES * len(schema)
        )
        self.chunk_bytes = min(wanted, limit // 32)
        self._cursors_bytes = limit // (4 if keys is None else 8)
        self.fan_in = max(2, self._cursors_bytes // self.chunk_bytes)
        self.spilled_bytes = 0
        self._directory = directory or tempfile.gettempdir()
        self._schema = schema
        self._budget = budget
        self._keys = keys
        self._runs: list[tuple[int, RunFile]] = []  # Each run with its merge level.

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, rows: SortedRows) -> None:
        """Write one run.

        Raises:
            WriteError: If the disk is full or the directory can't be written.
        """
        run = self._new_run(0)
        for batch, ids in rows.chunks(self.chunk_bytes):
            self._append(run, batch, ids)
        self._finish(run)
        while self._same_level_runs() >= self.fan_in:
            self._merge_last(self.fan_in)

    def merged(self) -> Generator[tuple[int, Iterator[pa.RecordBatch]], None, None]:
        """Yield each partition once with its rows, in order of id. Empties the spill.

        Take a partition's batches before the next partition: the rest is skipped. A batch may be a
        slice of a chunk: copy it to keep it.
        """
        while len(self._runs) > self.fan_in:
            self._merge_last(min(self.fan_in, len(self._runs) - self.fan_in + 1))
        try:  # Runs stay in the list, so that `close` drops them even during the merge.
            yield from self._merge([run for _, run in self._runs])
        finally:
            self._runs.clear()

    def close(self) -> None:
        """Drop all runs and free their disk space. Rows not yet taken are lost."""
        for _, run in self._runs:
            run.close()
        self._runs.clear()

    def _new_run(self, level: int) -> RunFile:
        run = RunFile(self._schema, self._directory)
        self._runs.append((level, run))  # Listed at once, so that `close` finds it.
        return run

    def _append(self, run: RunFile, batch: pa.RecordBatch, ids: npt.NDArray[np.int32]) -> None:
        """Write a chunk, split in halves if its rows are larger than average."""
        if batch.nbytes > 2 * self.chunk_bytes and batch.num_rows > 1:
            half = batch.num_rows // 2
            self._append(run, batch.slice(0, half), ids[:half])
            self._append(run, batch.slice(half), ids[half:])
            return
        run.append(batch, ids)
        if batch.nbytes > 2 * self.chunk_bytes:  # A single large row, which a cursor has to hold.
            self.fan_in = max(2, min(self.fan_in, self._cursors_bytes // batch.nbytes))

    def _finish(self, run: RunFile) -> None:
        run.finish()
        self.spilled_bytes += run.bytes

    def _same_level_runs(self) -> int:
        """The number of runs at the end of the list with the same merge level."""
        _, last = next(groupby(reversed(self._runs), key=lambda run: run[0]))
        return sum(1 for _ in last)

    def _merge_last(self, count: int) -> None:
        """Merge the last runs into one. They are adjacent, so equal rows keep their order."""
        last = self._runs[-count:]
        longer = self._new_run(max(level for level, _ in last) + 1)
        pending: list[tuple[int, pa.RecordBatch]] = []
        pending_bytes = 0
        with closing(self._merge([run for _, run in last])) as merged:
            for partition_id, batches in merged:
                for batch in batches:
                    pending.append((partition_id, batch))
                    pending_bytes += batch.nbytes
                    if pending_bytes >= self.chunk_bytes:
                        self._append_together(longer, pending)
                        pending_bytes = 0
        self._append_together(longer, pending)
        self._finish(longer)
        del self._runs[-count - 1 : -1]

    def _append_together(self, run: RunFile, pending: list[tuple[int, pa.RecordBatch]]) -> None:
        if pending:
            lengths = [batch.num_rows for _, batch in pending]
            ids = np.repeat(np.array([each for each, _ in pending], np.int32), lengths)
            self._append(run, pa.concat_batches([batch for _, batch in pending]), ids)
            pending.clear()

    def _merge(
        self, runs: list[RunFile]
    ) -> Generator[tuple[int, Iterator[pa.RecordBatch]], None, None]:
        cursors: list[RunCursor] = []
        try:
            cursors.extend(run.cursor(self._budget) for run in runs)
            heap = [(each.id, n) for n, each in enumerate(cursors) if not each.exhausted]
            heapq.heapify(heap)
            while heap:
                partition_id = heap[0][0]
                numbers = []
                while heap and heap[0][0] == partition_id:
                    numbers.append(heapq.heappop(heap)[1])
                rows = self._rows_of(partition_id, [cursors[number] for number in numbers])
                yield partition_id, rows
                for _ in rows:
                    pass
                for number in numbers:
                    if not cursors[number].exhausted:
                        heapq.heappush(heap, (cursors[number].id, number))
        finally:
            for cursor in cursors:
                cursor.close()
            for run in runs:
                run.close()

    def _rows_of(self, partition_id: int, cursors: list[RunCursor]) -> Iterator[pa.RecordBatch]:
        if self._keys is not None and len(cursors) > 1:
            return _merge_rows(partition_id, cursors, self._keys)
        return _chain_rows(partition_id, cursors)


def _chain_rows(partition_id: int, cursors: list[RunCursor]) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, one run after another."""
    for cursor in cursors:
        while not cursor.exhausted and cursor.id == partition_id:
            end = cursor.end_of(partition_id)
            yield cursor.rows.slice(cursor.position, end - cursor.position)
            cursor.advance(end)


def _merge_rows(
    partition_id: int, cursors: list[RunCursor], keys: SortKeys
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in sorted order, merged from sorted runs.

    Among the chunks that may continue, take the last row of each: the earliest of these is the
    bound. Rows not yet read can't sort before it, so all rows up to the bound can be yielded.
    """
    windows = [_Window(cursor, partition_id, keys) for cursor in cursors]
    while len(windows) > 1:
        last_rows = [window.last_row for window in windows if window.may_go_on]
        bound = keys.earliest(last_rows) if last_rows else None
        rows = pa.concat_batches([window.take_up_to(bound) for window in windows])
        yield rows.take(keys.indices(rows))
        windows = [window for window in windows if not window.is_done]
    for window in windows:
        yield from _chain_rows(partition_id, [window.cursor])


class _Window:
    """The rows of one partition in one cursor's chunk."""

    def __init__(self, cursor: RunCursor, partition_id: int, keys: SortKeys) -> None:
        self.cursor = cursor
        self._partition_id = partition_id
        self._keys = keys
        self._look()

    @property
    def is_done(self) -> bool:
        """Whether the run has no more rows of the partition."""
        cursor = self.cursor
        return cursor.exhausted or cursor.id != self._partition_id

    @property
    def may_go_on(self) -> bool:
        """Whether the next chunk may have more rows of the partition."""
        return self._end == len(self.cursor.ids)

    @property
    def last_row(self) -> Row:
        """The sort values of the window's last row."""
        return row_at(self._values(), self._end - self._start - 1)

    def take_up_to(self, bound: Row | None) -> pa.RecordBatch:
        """Take the rows up to the bound (inclusive), or all rows without a bound."""
        cursor = self.cursor
        position, end = cursor.position, self._end
        if bound is not None:
            first, last = position - self._start, end - self._start
            end = self._start + self._keys.rows_up_to(self._values(), bound, first, last)
        rows = cursor.rows.slice(position, end - position)
        chunk = cursor.rows
        cursor.advance(end)
        if cursor.rows is not chunk and not self.is_done:
            self._look()
        return rows

    def _look(self) -> None:
        cursor = self.cursor
        self._start, self._end = cursor.position, cursor.end_of(self._partition_id)
        self._known_values: list[pa.Array] | None = None

    def _values(self) -> list[pa.Array]:
        """The values that rows are compared by, computed on demand and once for each chunk."""
        if self._known_values is None:
            window = self.cursor.rows.slice(self._start, self._end - self._start)
            self._known_values = self._keys.values(window)
        return self._known_values
