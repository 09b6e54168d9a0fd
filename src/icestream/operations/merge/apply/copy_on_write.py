"""Copy-on-write: rewrites the files with changed rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.table import FileScanTask

from icestream.operations.live_files import LiveFiles
from icestream.operations.merge.apply.row_change import (
    Applied,
    RowChange,
    UpdatesInOrder,
    places,
    replaced,
)
from icestream.operations.merge.match.matches import Updates
from icestream.read.located import Located
from icestream.write.table_writer import TableWriter


class CopyOnWrite:
    """Rewrites the files with changed rows; new versions take the place of old rows.

    A file is written from its first batch with a changed row. The batches before it are read again
    and written at the end. A file without changed rows stays as it is.

    Memory: the budgets of reading and writing; one batch of the table is held twice.

    Args:
        live: The table's files.
        writer: Writes the new files.
        change: Builds the new rows.
    """

    def __init__(self, live: LiveFiles, writer: TableWriter, change: RowChange) -> None:
        self._live = live
        self._writer = writer
        self._change = change
        self._done = Applied()

    def run(self, tasks: Sequence[FileScanTask], matches: Updates) -> Applied:
        """Change the rows of all files with matches."""
        numbers = matches.files()
        chosen = [tasks[number] for number in numbers]
        reading, written = -1, False
        updates = UpdatesInOrder(iter(()))
        passed: list[tuple[FileScanTask, int]] = []
        for located in self._live.located(chosen):
            if located.number != reading:
                reading, written = located.number, False
                updates = UpdatesInOrder(matches.updates(numbers[reading]))
            rows, any_changed = self._changed(located, updates)
            if any_changed and not written:
                written = True
                self._done.removed.append(chosen[reading].file)
                passed.append((chosen[reading], int(located.positions[0])))
            if written:
                self._write(rows)
            del located, rows
        # Only now, because two scans at the same time would need twice the memory.
        for task, position in passed:
            self._write_before(task, position)
        return self._done

    def _changed(self, located: Located, updates: UpdatesInOrder) -> tuple[pa.RecordBatch, bool]:
        """The new rows, and whether any of them differs from before."""
        current = self._writer.conform(located.rows)
        at, new, deleted = [], [], []
        for update in updates.up_to(int(located.positions[-1])):
            where = places(located.positions, update.positions)
            changed = self._change.of(current, update, where)
            self._done.count(changed)
            if changed.is_updated.any():
                at.append(where[changed.is_updated])
                new.append(update.where(changed.is_updated).rows)
            if changed.is_deleted.any():
                deleted.append(where[changed.is_deleted])
        if not at and not deleted:
            return current, False
        if at:
            rows = pa.concat_batches(new)
            current = replaced(current, np.concatenate(at), rows, self._change.updated)
        if deleted:
            keep = np.ones(current.num_rows, np.bool_)
            keep[np.concatenate(deleted)] = False
            current = current.filter(pa.array(keep))
        return current, True

    def _write_before(self, task: FileScanTask, position: int) -> None:
        """Write the rows before a position, which are unchanged."""
        if position == 0:
            return
        for located in self._live.located([task]):
            count = int(np.searchsorted(located.positions, position))
            if count:
                self._write(self._writer.conform(located.rows.slice(0, count)))
            if count < len(located.positions):
                return

    def _write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_conformed(rows)
        self._done.written += rows.num_rows
