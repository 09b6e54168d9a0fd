"""The matched rows are changed: their files are written again, or they are deleted by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask

from icestream.commit.live_files import LiveFiles
from icestream.read.located import Located
from icestream.upsert.matches import Matches, Update
from icestream.upsert.row_change import (
    Changed,
    RowChange,
    UpdatesInOrder,
    places,
    replaced,
)
from icestream.write.table_writer import TableWriter

_COMPARED_ROWS = 16_384
_COMPARED_SHARE = 8


@dataclass(slots=True)
class Applied:
    """What was done to the files with matches.

    Attributes:
        removed: Files that were written again.
        deleted_from: Files that lost rows by position.
        updated: Rows with new values.
        deleted: Rows that are gone.
        unchanged: Rows that were as they were to be.
        written: Rows written, old and new ones.
    """

    removed: list[DataFile] = field(default_factory=list)
    deleted_from: list[DataFile] = field(default_factory=list)
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    written: int = 0

    def count(self, changed: Changed) -> None:
        """Count rows that were looked at."""
        self.deleted += int(np.count_nonzero(changed.is_deleted))
        self.updated += int(np.count_nonzero(changed.is_changed & ~changed.is_deleted))
        self.unchanged += int(np.count_nonzero(~changed.is_changed))


class CopyOnWrite:
    """Writes the files with changed rows again, changed rows in the place of old ones.

    Nothing of a file is written until a row of it has changed; what came before is written in the
    end, for which it is read a second time. Where no row has changed the file stays as it is.

    Memory: as of reading and writing; one batch of the table twice.

    Args:
        live: The table's files.
        writer: Writes them again.
        change: Makes the new rows.
    """

    def __init__(self, live: LiveFiles, writer: TableWriter, change: RowChange) -> None:
        self._live = live
        self._writer = writer
        self._change = change
        self._done = Applied()

    def run(self, tasks: Sequence[FileScanTask], matches: Matches) -> Applied:
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
        # Not before: two scans at a time would need the memory of two.
        for task, position in passed:
            self._write_before(task, position)
        return self._done

    def _changed(self, located: Located, updates: UpdatesInOrder) -> tuple[pa.RecordBatch, bool]:
        """The rows as they are to be, and whether any of them is not as it was."""
        current = self._writer.conform(located.rows)
        at, new, deleted = [], [], []
        for update in updates.up_to(int(located.positions[-1])):
            where = places(located.positions, update.positions)
            changed = self._change.of(current.take(pa.array(where)), update)
            self._done.count(changed)
            stays = changed.is_changed & ~changed.is_deleted
            if stays.any():
                at.append(where[stays])
                new.append(changed.rows.filter(pa.array(stays)))
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
        """Write the rows before a position, which are as they were to be."""
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


class MergeOnRead:
    """Deletes the rows that changed by their positions, and appends what they have become.

    Args:
        live: The table's files.
        writer: Writes new rows and delete files.
        change: Makes the new rows.
    """

    def __init__(self, live: LiveFiles, writer: TableWriter, change: RowChange) -> None:
        self._live = live
        self._writer = writer
        self._change = change
        self._done = Applied()

    def run(self, tasks: Sequence[FileScanTask], matches: Matches) -> Applied:
        """Change the rows of all files with matches."""
        numbers = matches.files()
        chosen = [tasks[number] for number in numbers]
        if self._change.needs_current_rows:
            self._compare(chosen, numbers, matches)
            return self._done
        for number, task in zip(numbers, chosen, strict=True):
            for update in matches.updates(number):
                self._replace(task, self._change.without_current(update))
        return self._done

    def _compare(self, chosen: list[FileScanTask], numbers: list[int], matches: Matches) -> None:
        reading = -1
        updates = UpdatesInOrder(iter(()))
        most_bytes = self._live.budget.limit_bytes // _COMPARED_SHARE
        found: list[tuple[pa.RecordBatch, Update]] = []
        known = [matches.positions(number) for number in numbers]
        wanted = [positions for positions in known if positions is not None]
        for located in self._live.located(chosen, positions=wanted or None):
            if located.number != reading:
                self._replace_found(chosen, reading, found)
                reading = located.number
                updates = UpdatesInOrder(matches.updates(numbers[reading]))
            for update in updates.up_to(int(located.positions[-1])):
                at = places(located.positions, update.positions)
                found.append((located.rows.take(pa.array(at)), update))
            held_bytes = sum(rows.nbytes + update.rows.nbytes for rows, update in found)
            rows = sum(len(update.positions) for _, update in found)
            if rows >= _COMPARED_ROWS or held_bytes >= most_bytes:
                self._replace_found(chosen, reading, found)
            del located
        self._replace_found(chosen, reading, found)

    def _replace_found(
        self,
        chosen: list[FileScanTask],
        number: int,
        found: list[tuple[pa.RecordBatch, Update]],
    ) -> None:
        """Change the rows found in a file, many at a time: each comparison has its price."""
        if found:
            current = self._writer.conform(pa.concat_batches([rows for rows, _ in found]))
            update = Update(
                np.concatenate([update.positions for _, update in found]),
                pa.concat_batches([update.rows for _, update in found]),
            )
            found.clear()
            self._replace(chosen[number], self._change.of(current, update))

    def _replace(self, task: FileScanTask, changed: Changed) -> None:
        self._done.count(changed)
        if not changed.is_changed.any():
            return
        if not self._done.deleted_from or self._done.deleted_from[-1] is not task.file:
            self._done.deleted_from.append(task.file)
        self._writer.delete_rows(task.file, changed.positions[changed.is_changed])
        stays = changed.is_changed & ~changed.is_deleted
        if stays.any():
            rows = changed.rows.filter(pa.array(stays))
            self._writer.write_conformed(rows)
            self._done.written += rows.num_rows
