"""A merge in parts: what workers do of it, as plain data for any of them.

```
stream's rows -- keyed -------+
                              +-- joined by key, by the engine -- sorted by file -- apply -- files
table's files -- stored_keys -+
```

Rows of the table are never moved: each file is read once more, by the worker that gets what matches
in it, and written again or deleted from as in one process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import FileScanTask

from icestream.commit.budgets import Budgets
from icestream.commit.in_flight import InFlightWrite
from icestream.commit.live_files import LiveFiles
from icestream.memory import MemoryBudget
from icestream.upsert.applied import Applied
from icestream.upsert.copy_on_write import CopyOnWrite
from icestream.upsert.key_hash import KeyHash, Keys, key_values
from icestream.upsert.key_index import Sieve
from icestream.upsert.key_range import KeyRange
from icestream.upsert.matches import Positions, Update, keys_of_files
from icestream.upsert.merge_on_read import MergeOnRead
from icestream.upsert.merge_plan import MergePlan
from icestream.upsert.row_change import RowChange
from icestream.upsert.stream_rows import StreamRows
from icestream.write.row_buffer import cut
from icestream.write.table_writer import TableWriter, Written
from icestream.write.target import WriteTarget

KEY_FIELDS = (
    pa.field("__icestream_key_1", pa.int64()),
    pa.field("__icestream_key_2", pa.int64()),
    pa.field("__icestream_key_value", pa.binary()),  # Tells keys with one hash apart.
)
PLACE_FIELDS = (pa.field("__icestream_file", pa.int32()), pa.field("__icestream_pos", pa.int64()))
_PIECES = 8


@dataclass(frozen=True, slots=True)
class MergePart:
    """What one worker did.

    Attributes:
        written: Its files, delete files among them.
        removed: The numbers of the files that it wrote again.
        deleted_from: The numbers of the files that lost rows by position.
        updated: Rows with new values; deleted and unchanged likewise.
        kept: Rows written that were in the table.
        matched: Rows of the table that rows of the stream match.
        unmatched: Rows of the stream that match nothing.
        peak_bytes: The most that it held.
        retried: Whether earlier tries of a worker may have left files.
        worker: The peak and the base of the process in bytes, where it was measured.
    """

    written: Written = field(default_factory=Written)
    removed: tuple[int, ...] = ()
    deleted_from: tuple[int, ...] = ()
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    kept: int = 0
    matched: int = 0
    unmatched: int = 0
    peak_bytes: int = 0
    retried: bool = False
    worker: tuple[int, int] = (0, 0)

    def __add__(self, other: MergePart) -> MergePart:
        return MergePart(
            self.written + other.written,
            self.removed + other.removed,
            self.deleted_from + other.deleted_from,
            self.updated + other.updated,
            self.deleted + other.deleted,
            self.unchanged + other.unchanged,
            self.kept + other.kept,
            self.matched + other.matched,
            self.unmatched + other.unmatched,
            max(self.peak_bytes, other.peak_bytes),
            self.retried or other.retried,
            max(self.worker, other.worker),
        )


@dataclass(frozen=True, slots=True)
class MergeWork:
    """The same for every worker of a merge.

    Attributes:
        plan: What the merge does.
        target: The table as it was planned, with the schema that files are to have.
        branch: The branch.
        key_hash: Makes numbers of keys, the same everywhere.
        files: The table's files that may hold keys of the stream.
        memory_bytes: What a worker may hold.
    """

    plan: MergePlan
    target: WriteTarget
    branch: str
    key_hash: KeyHash
    files: Sequence[FileScanTask]
    memory_bytes: int

    def keyed(
        self, batches: Iterable[pa.RecordBatch], key_range: KeyRange
    ) -> Iterator[pa.RecordBatch]:
        """Batches of the stream with their keys as `KEY_FIELDS`, null where a key is null.

        Args:
            batches: The stream.
            key_range: Is widened by their keys.

        Raises:
            InvalidDataError: If a value can't be stored.
        """
        rows_of = StreamRows(
            self.plan, self._writer(MemoryBudget(self.memory_bytes)), self.key_hash
        )
        for batch in batches:
            for piece in cut(batch, max(1, self.memory_bytes // _PIECES)):
                rows = rows_of(piece)
                key_range.add(rows.columns)
                values = None if rows.keys.second is None else key_values(rows.columns)
                schema = pa.schema([*piece.schema, *KEY_FIELDS], piece.schema.metadata)
                yield pa.RecordBatch.from_arrays(
                    [*piece.columns, *_as_columns(rows.keys, values)], schema=schema
                )

    def stored_keys(self, numbers: Sequence[int], sieve: Sieve | None) -> Iterator[pa.RecordBatch]:
        """The keys in some files that the stream may have, too, and where they are.

        Args:
            numbers: Which files.
            sieve: Of the stream's keys; None lets all pass.

        Memory: as of a scan of the key's columns.
        """
        live = LiveFiles(self.target, self.branch, MemoryBudget(self.memory_bytes))
        chosen = [self.files[number] for number in numbers]
        schema = pa.schema([*KEY_FIELDS, *PLACE_FIELDS])
        for found in keys_of_files(live, chosen, self.plan.key, self.key_hash, sieve):
            file = np.full(len(found.keys), numbers[found.number], np.int32)
            keys = _as_columns(found.keys, found.values)
            columns = [*keys, pa.array(file), pa.array(found.positions)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def apply(self, batches: Iterable[pa.RecordBatch], *, task: int, attempt: int) -> MergePart:
        """Change the rows that match, and write those that do not.

        Args:
            batches: Columns of the stream, then `PLACE_FIELDS`: sorted by file and position, rows
                that match nothing last, with nulls. All matches of a file are given to one worker.
            task: Which worker this is.
            attempt: Which try of that worker.

        Returns:
            What was done. If it raises, no file is left.

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
        return TableWriter(
            target or self.target,
            arrow_schema=self.plan.columns,
            schema_mode=self.plan.options.schema_mode,
            budget=budget,
            before_write=in_flight.mark if in_flight is not None else lambda: None,
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of the stream that match in one file, or nothing (None)."""

    number: int | None
    positions: Positions
    rows: pa.RecordBatch


class _Application:
    """Applies rows to the table's files, one file after the other."""

    def __init__(self, work: MergeWork, writer: TableWriter, budget: MemoryBudget) -> None:
        self._work = work
        self._writer = writer
        self._rows_of = StreamRows(work.plan, writer, work.key_hash)
        live = LiveFiles(work.target, work.branch, budget)
        change = RowChange(
            work.plan, columns=writer.file_schema, is_deletion=self._rows_of.is_deletion
        )
        self._apply = (MergeOnRead if work.plan.on_read else CopyOnWrite)(live, writer, change)
        self._applied = Applied()
        self._numbers: dict[str, int] = {}
        self._matched = self._unmatched = 0

    def take(self, number: int | None, pieces: Iterator[_Piece]) -> None:
        """Take all rows that match in a file, or some that match nothing."""
        if number is None:
            for piece in pieces:
                self._unmatched += piece.rows.num_rows
                new = self._rows_of.inserted(
                    self._rows_of(piece.rows).rows, self._writer.file_schema
                )
                if new is not None:
                    self._writer.write_conformed(new)
            return
        task = self._work.files[number]
        self._numbers[task.file.file_path] = number
        updates = self._updates(pieces)
        first = next(updates, None)
        if first is not None:
            self._applied = self._apply.run([task], _OneFile(first, updates))

    def close(self, peak_bytes: int) -> MergePart:
        """Finish all files."""
        written = self._writer.close()
        if self._work.target.schema != self._work.target.metadata.schema():
            files = (replace(file, schema_id=None) for file in written.files)
            written = replace(written, files=tuple(files))
        done = self._applied
        return MergePart(
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

    def _updates(self, pieces: Iterator[_Piece]) -> Iterator[Update]:
        for piece in pieces:
            rows = self._rows_of(piece.rows).rows
            self._matched += rows.num_rows
            update = Update(piece.positions, rows).where(self._rows_of.changes(rows))
            if len(update.positions):
                yield update


class _OneFile:
    """The matches of one file, as they come."""

    rows = 0
    duplicates = 0
    spilled_bytes = 0

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

    def finish(self) -> None:
        """Rows that match nothing come by another way."""

    def close(self) -> None:
        """Nothing is held."""


def _by_file(batches: Iterable[pa.RecordBatch], memory_bytes: int) -> Iterator[_Piece]:
    """Batches cut where a file ends, and into pieces that are not too large."""
    for batch in batches:
        *columns, files, positions = batch.columns
        schema = pa.schema(list(batch.schema)[: len(columns)])
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        numbers = files.fill_null(-1).to_numpy()
        places = positions.fill_null(-1).to_numpy()
        ends = np.append(np.flatnonzero(np.diff(numbers)) + 1, len(numbers))
        start = 0
        for end in ends.tolist():
            number = int(numbers[start]) if end > start else -1
            at = start
            for piece in cut(rows.slice(start, end - start), max(1, memory_bytes // _PIECES)):
                stop = at + piece.num_rows
                yield _Piece(None if number < 0 else number, places[at:stop], piece)
                at = stop
            start = end


def _as_columns(keys: Keys, values: pa.Array | None) -> list[pa.Array]:
    """Keys as columns that any engine can compare; values are empty where numbers are enough."""
    column = pa.repeat(pa.scalar(b""), len(keys)) if values is None else values.cast(pa.binary())
    if keys.nulls is not None:
        column = pc.if_else(pa.array(keys.nulls), pa.scalar(None, pa.binary()), column)
    return [_signed(keys.first, keys.nulls), _signed(keys.second, keys.nulls, len(keys)), column]


def _signed(
    words: npt.NDArray[np.uint64] | None, nulls: npt.NDArray[np.bool_] | None, count: int = 0
) -> pa.Array:
    values = np.zeros(count, np.int64) if words is None else words.view(np.int64)
    return pa.array(values, mask=nulls)
