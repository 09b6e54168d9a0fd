"""A merge in parts: the work of each worker, as plain data for any framework.

```
stream's rows -- keyed -------+
                              +-- joined by key, by the engine -- sorted by file -- apply -- files
table's files -- stored_keys -+
```

Rows of the table are never moved between workers. The worker that gets the matches of a file reads
that file again and applies them, as a merge in one process does.

A worker gets the descriptions of its own files only. In `apply` a description arrives as a row of
its own, before the matches of its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import FileScanTask

from icestream.commit.in_flight import InFlightWrite
from icestream.errors import InvalidArgumentError
from icestream.memory.budget import MemoryBudget
from icestream.operations.budget_shares import Budgets
from icestream.operations.kept_tasks import unpack_task
from icestream.operations.live_files import LiveFiles
from icestream.operations.merge.apply.copy_on_write import CopyOnWrite
from icestream.operations.merge.apply.merge_on_read import MergeOnRead
from icestream.operations.merge.apply.row_change import Applied, RowChange
from icestream.operations.merge.intake.stream_rows import StreamRows
from icestream.operations.merge.keys.key_hash import KeyHash, Keys, key_values
from icestream.operations.merge.keys.key_index import Sieve
from icestream.operations.merge.keys.key_range import KeyRange
from icestream.operations.merge.match.matches import Positions, Update, keys_of_files
from icestream.operations.merge.merge_plan import MergePlan
from icestream.operations.merge.row_shape import with_required
from icestream.operations.write_parts import WorkerPart
from icestream.write.parquet.row_buffer import cut
from icestream.write.schema.sizes import cut_written_out
from icestream.write.table_writer import TableWriter
from icestream.write.target import WriteTarget, without_history

KEY_FIELDS = (
    pa.field("__icestream_key_1", pa.int64()),
    pa.field("__icestream_key_2", pa.int64()),
    pa.field("__icestream_key_value", pa.binary()),  # Distinguishes keys with the same hash.
)
PLACE_FIELDS = (pa.field("__icestream_file", pa.int32()), pa.field("__icestream_pos", pa.int64()))
FILE_FIELD = pa.field("__icestream_task", pa.binary())  # The packed task of a file, or null.
FILE_POSITION = -1  # The position in a row that describes a file, so that the row sorts first.
_PIECES = 8


@dataclass(frozen=True, slots=True)
class MergeWork:
    """The work of a merge. Every worker gets the same object.

    Attributes:
        plan: The plan of the merge.
        target: The table when the merge began, with the schema for the new files.
        branch: The branch.
        key_hash: Hashes keys, the same in every worker.
        memory_bytes: The memory limit of a worker.
    """

    plan: MergePlan
    target: WriteTarget
    branch: str
    key_hash: KeyHash
    memory_bytes: int

    def for_workers(self) -> MergeWork:
        """The same work without what only the driver needs."""
        return replace(self, target=without_history(self.target))

    def keyed(
        self, batches: Iterable[pa.RecordBatch], key_range: KeyRange
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the stream with their keys as `KEY_FIELDS`, null where a key is null.

        Args:
            batches: The stream.
            key_range: The range to which the keys are added.

        Raises:
            InvalidDataError: If a value can't be stored.
        """
        rows_of = StreamRows(
            self.plan, self._writer(MemoryBudget(self.memory_bytes)), self.key_hash
        )
        for batch in batches:
            for piece in cut_written_out(batch, max(1, self.memory_bytes // _PIECES)):
                rows = rows_of(piece)
                key_range.add(rows.columns)
                values = None if rows.keys.second is None else key_values(rows.columns)
                schema = pa.schema([*piece.schema, *KEY_FIELDS], piece.schema.metadata)
                yield pa.RecordBatch.from_arrays(
                    [*piece.columns, *_as_columns(rows.keys, values)], schema=schema
                )

    def stored_keys(
        self, files: Sequence[FileScanTask], first: int, sieve: Sieve | None
    ) -> Iterator[pa.RecordBatch]:
        """The keys in some files that the stream may also have, with file and position.

        Args:
            files: The files of this worker, with consecutive numbers.
            first: The number of the first one.
            sieve: A sieve over the stream's keys; None passes all keys.

        Memory: the same as a scan of the key columns.
        """
        live = LiveFiles(self.target, self.branch, MemoryBudget(self.memory_bytes))
        schema = pa.schema([*KEY_FIELDS, *PLACE_FIELDS])
        for part in keys_of_files(live, files, self.plan.key, self.key_hash, sieve):
            file = np.full(len(part.keys), first + part.number, np.int32)
            keys = _as_columns(part.keys, part.values)
            columns = [*keys, pa.array(file), pa.array(part.positions)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def apply(self, batches: Iterable[pa.RecordBatch], *, task: int, attempt: int) -> WorkerPart:
        """Change the table's matching rows, and insert the stream's rows without a match.

        Args:
            batches: The columns of the stream, then `PLACE_FIELDS` and `FILE_FIELD`, sorted by
                file and position. One worker gets all matches of a file, after a row at
                `FILE_POSITION` with the packed task of the file. Rows that match nothing come
                last, with nulls.
            task: The number of this worker.
            attempt: The number of this worker's attempt.

        Returns:
            The result. After an error, no file is left.

        Raises:
            InvalidArgumentError: If rows arrive in another order.

        Memory: half of `memory_bytes` each for reading and for writing.
        """
        budgets = Budgets.of(MemoryBudget(self.memory_bytes), shares=2)
        target = self.target.for_task(task, attempt)
        in_flight = InFlightWrite(target, operation="merge", shared=True)
        writer = self._writer(budgets.write, target, in_flight)
        try:
            application = _Application(self, writer, budgets.scan)
            for number, pieces in groupby(_by_file(batches, self.memory_bytes), lambda p: p.number):
                application.take(number, pieces)
            return application.close(budgets.whole.peak_bytes)
        except BaseException:
            writer.abort()
            in_flight.abandon()
            raise

    def _writer(
        self,
        budget: MemoryBudget,
        target: WriteTarget | None = None,
        in_flight: InFlightWrite | None = None,
    ) -> TableWriter:
        columns = self.plan.columns
        if self.plan.options.when_not_matched == "ignore":
            columns = with_required(columns, self.target.schema)  # updated rows have values
        return TableWriter(
            target or self.target,
            arrow_schema=columns,
            schema_mode=self.plan.options.schema_mode,
            budget=budget,
            before_write=in_flight.mark if in_flight is not None else lambda: None,
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of the stream that match rows of one file; the number is None if they match nothing.

    The first piece of a file has its packed task and no rows.
    """

    number: int | None
    positions: Positions
    rows: pa.RecordBatch
    task: bytes | None = None


class _Application:
    """Applies rows of the stream to the table's files, one file after the other."""

    def __init__(self, work: MergeWork, writer: TableWriter, budget: MemoryBudget) -> None:
        self._work = work
        self._writer = writer
        self._rows_of = StreamRows(work.plan, writer, work.key_hash)
        live, change = LiveFiles(work.target, work.branch, budget), RowChange(self._rows_of)
        self._apply = (MergeOnRead if work.plan.on_read else CopyOnWrite)(live, writer, change)
        self._applied = Applied()
        self._numbers: dict[str, int] = {}
        self._matched = self._unmatched = 0

    def take(self, number: int | None, pieces: Iterator[_Piece]) -> None:
        """Take all rows that match rows of one file, or some rows that match nothing."""
        if number is None:
            for piece in pieces:
                self._unmatched += piece.rows.num_rows
                self._rows_of.insert(self._rows_of(piece.rows).rows)
            return
        record = next(pieces).task
        if record is None:
            raise _out_of_order(number)
        updates = self._updates(number, pieces)
        first = next(updates, None)
        if first is not None:
            task = unpack_task(record)
            self._numbers[task.file.file_path] = number
            self._applied = self._apply.run([task], _OneFile(first, updates))

    def close(self, peak_bytes: int) -> WorkerPart:
        """Finish all files."""
        written = self._writer.close()
        if self._work.target.schema != self._work.target.metadata.schema():
            files = (replace(file, schema_id=None) for file in written.files)
            written = replace(written, files=tuple(files))
        done = self._applied
        return WorkerPart(
            written=written,
            removed=tuple(self._numbers[file.file_path] for file in done.removed),
            deleted_from=tuple(self._numbers[file.file_path] for file in done.deleted_from),
            updated=done.updated,
            deleted=done.deleted,
            unchanged=done.unchanged,
            kept=done.written,
            matched=self._matched,
            unmatched=self._unmatched,
            peak_bytes=peak_bytes,
        )

    def _updates(self, number: int, pieces: Iterator[_Piece]) -> Iterator[Update]:
        last = -1
        for piece in pieces:
            if np.any(np.diff(piece.positions, prepend=last) < 0):
                raise _out_of_order(number)
            last = int(piece.positions[-1]) if len(piece.positions) else last
            rows = self._rows_of(piece.rows).rows
            self._matched += rows.num_rows
            update = Update(piece.positions, rows).where(self._rows_of.changes(rows))
            if len(update.positions):
                yield update


class _OneFile:
    """The updates of one file, as a stream."""

    def __init__(self, first: Update, others: Iterator[Update]) -> None:
        self._first = first
        self._others = others

    def files(self) -> list[int]:
        return [0]

    def positions(self, number: int) -> None:
        return

    def updates(self, number: int) -> Iterator[Update]:
        yield self._first
        yield from self._others

    def keep_only(self, number: int, positions: Positions) -> None:
        raise AssertionError("positions are not known")


def _out_of_order(number: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"rows of file {number} arrived out of order: sort them by file and position, after the "
        "row that describes the file"
    )


def _by_file(batches: Iterable[pa.RecordBatch], memory_bytes: int) -> Iterator[_Piece]:
    """Cut batches at the end of each file, and into pieces of limited size."""
    for batch in batches:
        *columns, files, positions, tasks = batch.columns
        schema = pa.schema(list(batch.schema)[: len(columns)])
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        numbers = files.fill_null(-1).to_numpy()
        places = positions.fill_null(0).to_numpy()
        is_task = places == FILE_POSITION
        ends = np.flatnonzero((np.diff(numbers) != 0) | is_task[:-1] | is_task[1:]) + 1
        start = 0
        for end in np.append(ends, len(numbers)).tolist() if len(numbers) else ():
            number = int(numbers[start]) if numbers[start] >= 0 else None
            if is_task[start]:
                yield _Piece(number, places[:0], rows.slice(0, 0), tasks[start].as_py())
            else:
                at = start
                for piece in cut(rows.slice(start, end - start), max(1, memory_bytes // _PIECES)):
                    stop = at + piece.num_rows
                    yield _Piece(number, places[at:stop], piece)
                    at = stop
            start = end


def _as_columns(keys: Keys, values: pa.Array | None) -> list[pa.Array]:
    """Keys as columns that any engine can compare; values are empty if keys are not hashed."""
    column = pa.repeat(pa.scalar(b""), len(keys)) if values is None else values.cast(pa.binary())
    if keys.nulls is not None:
        column = pc.if_else(pa.array(keys.nulls), pa.scalar(None, pa.binary()), column)
    return [_signed(keys.first, keys.nulls), _signed(keys.second, keys.nulls, len(keys)), column]


def _signed(
    words: npt.NDArray[np.uint64] | None, nulls: npt.NDArray[np.bool_] | None, count: int = 0
) -> pa.Array:
    values = np.zeros(count, np.int64) if words is None else words.view(np.int64)
    return pa.array(values, mask=nulls)
