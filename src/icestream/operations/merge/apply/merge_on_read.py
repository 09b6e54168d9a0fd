"""Merge-on-read: deletes changed rows by position, and appends their new versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
from pyiceberg.table import FileScanTask

from icestream.operations.live_files import LiveFiles
from icestream.operations.merge.apply.row_change import (
    Applied,
    Changed,
    RowChange,
    UpdatesInOrder,
    places,
)
from icestream.operations.merge.match.matches import Positions, Update, Updates
from icestream.read.deletes.position_set import PositionSet
from icestream.write.table_writer import TableWriter

_COMPARED_ROWS = 16_384
_COMPARED_SHARE = 8
_FEW_FILES = 3


class MergeOnRead:
    """Deletes changed rows by their positions, and appends their new versions.

    It reads as few columns as possible to detect changes. If all matching rows of the first file
    differ in one column, it reads only that column of the other files. It then reads the other
    columns of a file only if some of its rows are equal in that column.

    Memory: the budgets of reading and writing. When comparing by one column, also the positions of
    deleted rows, as bitmaps.

    Args:
        live: The table's files.
        writer: Writes new rows and delete files.
        change: Builds the new rows.
    """

    def __init__(self, live: LiveFiles, writer: TableWriter, change: RowChange) -> None:
        self._live = live
        self._writer = writer
        self._change = change
        self._done = Applied()
        self._waiting: dict[int, PositionSet] = {}

    def run(self, tasks: Sequence[FileScanTask], matches: Updates) -> Applied:
        """Change the rows of all files with matches."""
        numbers = matches.files()
        if not self._change.needs_current_rows:
            for number in numbers:
                for update in matches.updates(number):
                    self._replace_all(tasks, number, update)
            return self._done
        has_positions = all(matches.positions(number) is not None for number in numbers)
        if self._change.is_complete and has_positions and len(numbers) > _FEW_FILES:
            numbers = self._compare_by_one_column(tasks, numbers, matches)
        self._compare(tasks, numbers, matches)
        return self._done

    def _compare(
        self,
        tasks: Sequence[FileScanTask],
        numbers: Sequence[int],
        matches: Updates,
        *,
        learn: bool = False,
    ) -> None:
        for number, rows, update in self._matched_rows(tasks, numbers, matches):
            current = self._writer.conform(rows)
            if learn:
                self._change.note_differences(current, update)
            changed = self._change.of(current, update)
            self._replace(tasks, number, changed, self._change.rows(current, update))
        for number in list(self._waiting):
            self._flush(tasks, number)

    def _compare_by_one_column(
        self, tasks: Sequence[FileScanTask], numbers: list[int], matches: Updates
    ) -> list[int]:
        """Change the rows that differ in one column; return the files with rows left to compare."""
        self._compare(tasks, numbers[:1], matches, learn=True)
        sizes = tasks[numbers[0]].file.column_sizes or {}
        column = self._change.telling_column(self._live.schema, sizes)
        if column is None:
            return numbers[1:]
        left: dict[int, PositionSet] = {}
        name = self._writer.file_schema.field(column).name
        for number, rows, update in self._matched_rows(tasks, numbers[1:], matches, [name]):
            if number not in self._waiting:
                self._flush_known(tasks, left)
                self._waiting[number] = PositionSet()
            differs = self._change.differs(rows.column(0), update, column)
            if not differs.all():
                left.setdefault(number, PositionSet()).add(update.positions[~differs])
            update = update.where(differs)
            self._replace_all(tasks, number, update)
        self._flush_known(tasks, left)
        for number, positions in left.items():
            matches.keep_only(number, np.concatenate(list(positions.pieces())))
        return list(left)

    def _matched_rows(
        self,
        tasks: Sequence[FileScanTask],
        numbers: Sequence[int],
        matches: Updates,
        columns: Sequence[str] | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch, Update]]:
        """Matching rows with their updates, many at a time: each comparison has overhead."""
        chosen = [tasks[number] for number in numbers]
        known = [matches.positions(number) for number in numbers]
        wanted = None if any(some is None for some in known) else cast(list[Positions], known)
        most_bytes = self._live.budget.limit_bytes // _COMPARED_SHARE
        reading = -1
        updates = UpdatesInOrder(iter(()))
        pairs: list[tuple[pa.RecordBatch, Update]] = []
        for located in self._live.located(chosen, columns, positions=wanted):
            if located.number != reading:
                yield from _joined(numbers, reading, pairs)
                reading = located.number
                updates = UpdatesInOrder(matches.updates(numbers[reading]))
            for update in updates.up_to(int(located.positions[-1])):
                at = places(located.positions, update.positions)
                pairs.append((located.rows.take(pa.array(at)), update))
            held_bytes = sum(rows.nbytes + update.rows.nbytes for rows, update in pairs)
            count = sum(len(update.positions) for _, update in pairs)
            if count >= _COMPARED_ROWS or held_bytes >= most_bytes:
                yield from _joined(numbers, reading, pairs)
            del located
        yield from _joined(numbers, reading, pairs)

    def _replace_all(self, tasks: Sequence[FileScanTask], number: int, update: Update) -> None:
        """Replace all matching rows with rows of the stream."""
        changed, rows = self._change.all_of(update), self._change.rows(None, update)
        self._replace(tasks, number, changed, rows)

    def _replace(
        self, tasks: Sequence[FileScanTask], number: int, changed: Changed, rows: pa.RecordBatch
    ) -> None:
        self._done.count(changed)
        if not changed.is_changed.any():
            return
        gone = changed.positions[changed.is_changed]
        if number in self._waiting:
            self._waiting[number].add(gone)
        else:
            self._delete(tasks[number], gone)
        if changed.is_updated.any():
            rows = rows.filter(pa.array(changed.is_updated))
            self._writer.write_conformed(rows)
            self._done.written += rows.num_rows

    def _flush_known(self, tasks: Sequence[FileScanTask], left: dict[int, PositionSet]) -> None:
        """Write the deletes of the files that were read, except files to read again."""
        for number in [number for number in self._waiting if number not in left]:
            self._flush(tasks, number)

    def _flush(self, tasks: Sequence[FileScanTask], number: int) -> None:
        for positions in self._waiting.pop(number).pieces():
            self._delete(tasks[number], positions)

    def _delete(self, task: FileScanTask, positions: Positions) -> None:
        if not self._done.deleted_from or self._done.deleted_from[-1] != task.file:
            self._done.deleted_from.append(task.file)
        self._writer.delete_rows(task.file, positions)


def _joined(
    numbers: Sequence[int], reading: int, pairs: list[tuple[pa.RecordBatch, Update]]
) -> Iterator[tuple[int, pa.RecordBatch, Update]]:
    """The rows and updates of a file, joined into one pair; clears the list."""
    if pairs:
        rows = pa.concat_batches([rows for rows, _ in pairs])
        update = Update(
            np.concatenate([update.positions for _, update in pairs]),
            pa.concat_batches([update.rows for _, update in pairs]),
        )
        pairs.clear()
        yield numbers[reading], rows, update
