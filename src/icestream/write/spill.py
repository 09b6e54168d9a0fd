"""Rows of many partitions that do not fit in memory: sorted runs on disk, merged afterwards.

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

from icestream.memory import MemoryBudget
from icestream.write.run_file import RunCursor, RunFile
from icestream.write.sort_keys import Row, SortKeys, row_at
from icestream.write.sorted_rows import SortedRows

_CHUNKS_PER_LIMIT = 256
_LEAST_CHUNK_BYTES = 64 * 1024
_LEAST_COLUMN_BYTES = 2 * 1024  # Of a chunk: below, lz4 and the framing cost more than the rows.


class Spill:
    """Sorted runs in temporary files, given back in order of partition id.

    Merging compares partition ids only; with `keys`, the rows of one partition are merged by Arrow
    a window at a time. When there are more runs than chunks fit in the share of the budget, runs
    are merged into longer ones first.

    Memory: while merging, a quarter of the limit for the chunks of all cursors; with `keys` an
    eighth, and two copies of it for the window that is sorted.

    Args:
        directory: Where temporary files are made; None is `tempfile`'s choice (`TMPDIR`).
        schema: Of the rows, without ids.
        budget: What the chunks are on lease from.
        keys: The order that the rows of each partition of each run are in.
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
        self.fan_in = max(2, limit // (4 if keys is None else 8) // self.chunk_bytes)
        self.spilled_bytes = 0
        self._directory = directory or tempfile.gettempdir()
        self._schema = schema
        self._budget = budget
        self._keys = keys
        self._runs: list[tuple[int, RunFile]] = []  # How often its rows were merged, and the run.

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, rows: SortedRows) -> None:
        """Write one run.

        Raises:
            WriteError: If the disk is full or the directory can't be written.
        """
        run = self._new_run(0)
        step = max(1, int(self.chunk_bytes / max(1.0, rows.row_bytes)))
        for start in range(0, len(rows), step):
            ids = rows.ids[start : start + step]
            for batch in rows.rows(start, min(len(rows), start + step)):
                self._append(run, batch, ids[: batch.num_rows])
                ids = ids[batch.num_rows :]
        self._finish(run)
        while self._same_level_runs() >= self.fan_in:
            self._merge_last(self.fan_in)

    def merged(self) -> Generator[tuple[int, Iterator[pa.RecordBatch]], None, None]:
        """Give the rows back, each partition once, in order of id; the spill is empty after.

        The batches of a partition must be taken before the next partition; those not taken are
        skipped. A batch is a slice of a chunk: copy it to keep it.
        """
        while len(self._runs) > self.fan_in:
            self._merge_last(min(self.fan_in, len(self._runs) - self.fan_in + 1))
        try:  # The runs stay known, so that `close` drops them also while somebody takes rows.
            yield from self._merge([run for _, run in self._runs])
        finally:
            self._runs.clear()

    def close(self) -> None:
        """Drop all runs and their disk space. Rows that were not taken yet are lost."""
        for _, run in self._runs:
            run.close()
        self._runs.clear()

    def _new_run(self, level: int) -> RunFile:
        run = RunFile(self._schema, self._directory)
        self._runs.append((level, run))  # At once, so that `close` finds it.
        return run

    def _append(self, run: RunFile, batch: pa.RecordBatch, ids: npt.NDArray[np.int32]) -> None:
        """Write a chunk, in pieces if its rows turn out to be larger than others."""
        if batch.nbytes > 2 * self.chunk_bytes and batch.num_rows > 1:
            half = batch.num_rows // 2
            self._append(run, batch.slice(0, half), ids[:half])
            self._append(run, batch.slice(half), ids[half:])
        else:
            run.append(batch, ids)

    def _finish(self, run: RunFile) -> None:
        run.finish()
        self.spilled_bytes += run.bytes

    def _same_level_runs(self) -> int:
        """How many of the last runs were merged equally often."""
        _, last = next(groupby(reversed(self._runs), key=lambda run: run[0]))
        return sum(1 for _ in last)

    def _merge_last(self, count: int) -> None:
        """Make one run of the last ones; they are neighbours, so equal rows stay as they came."""
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
    """The rows of a partition, one run after the other."""
    for cursor in cursors:
        while not cursor.exhausted and cursor.id == partition_id:
            end = cursor.end_of(partition_id)
            yield cursor.rows.slice(cursor.position, end - cursor.position)
            cursor.advance(end)


def _merge_rows(
    partition_id: int, cursors: list[RunCursor], keys: SortKeys
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in sorted order, from runs that are sorted each.

    What may be given out next are the rows up to the earliest of the last rows of the chunks that
    another chunk may follow: nothing that is yet to be read comes before them.
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
        """The last row's values."""
        return row_at(self._values(), self._end - self._start - 1)

    def take_up_to(self, bound: Row | None) -> pa.RecordBatch:
        """Take the rows up to the bound, equal ones too, or all without one."""
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
        """What the rows are compared by: worked out when needed, and once for each chunk."""
        if self._known_values is None:
            window = self.cursor.rows.slice(self._start, self._end - self._start)
            self._known_values = self._keys.values(window)
        return self._known_values
