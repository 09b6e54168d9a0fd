"""What becomes of rows of the table that rows of the stream match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from icestream.upsert.equality import Mask, same_values
from icestream.upsert.incoming import Incoming
from icestream.upsert.matches import Positions, Update


@dataclass(frozen=True, slots=True)
class Changed:
    """Some rows of the table that are matched, and what they become.

    Attributes:
        rows: The rows as they are to be, those to be deleted among them.
        positions: Where they were.
        is_changed: Which of them are not as they were.
        is_deleted: Which of them go.
    """

    rows: pa.RecordBatch
    positions: Positions
    is_changed: Mask
    is_deleted: Mask


class RowChange:
    """Makes new rows of the table's and the stream's.

    Args:
        incoming: Tells which rows delete.
        columns: The schema of rows in files.
        updated: The positions of the columns that an update sets; the key's are not among them.
        is_complete: Whether the stream gives all columns, so that its rows can replace others.
        skip_unchanged: Whether to look for rows that are as they were to be.
    """

    def __init__(
        self,
        incoming: Incoming,
        *,
        columns: pa.Schema,
        updated: frozenset[int],
        is_complete: bool,
        skip_unchanged: bool,
    ) -> None:
        self.updated = updated
        self._incoming = incoming
        self._columns = columns
        self._is_complete = is_complete
        self._skip_unchanged = skip_unchanged

    @property
    def needs_current_rows(self) -> bool:
        """Whether the rows of the table have to be read: not where others replace them whole."""
        return self._skip_unchanged or not self._is_complete

    def of(self, current: pa.RecordBatch, update: Update) -> Changed:
        """What rows become, given those of the table, row by row."""
        columns = [
            update.rows.column(n) if n in self.updated else current.column(n)
            for n in range(len(self._columns))
        ]
        deleted = self._incoming.is_deletion(update.rows)
        changed = np.ones(len(deleted), np.bool_)
        if self._skip_unchanged:
            same = ~deleted
            for n in sorted(self.updated):
                if same.any():
                    same &= same_values(current.column(n), columns[n])
            changed = ~same
        rows = pa.RecordBatch.from_arrays(columns, schema=self._columns)
        return Changed(rows, update.positions, changed, deleted)

    def without_current(self, update: Update) -> Changed:
        """What rows become that the stream replaces whole."""
        columns = [update.rows.column(n) for n in range(len(self._columns))]
        deleted = self._incoming.is_deletion(update.rows)
        rows = pa.RecordBatch.from_arrays(columns, schema=self._columns)
        return Changed(rows, update.positions, np.ones(len(deleted), np.bool_), deleted)


class UpdatesInOrder:
    """The updates of one file, taken as far as the file has been read."""

    def __init__(self, updates: Iterator[Update]) -> None:
        self._updates = updates
        self._next: Update | None = None

    def up_to(self, position: int) -> list[Update]:
        """The updates of rows up to a position that were not taken yet."""
        taken = []
        while (update := self._next or next(self._updates, None)) is not None:
            self._next = None
            count = int(np.searchsorted(update.positions, position, side="right"))
            if count:
                taken.append(_part(update, 0, count))
            if count < len(update.positions):
                self._next = _part(update, count, len(update.positions))
                break
        return taken


def _part(update: Update, start: int, stop: int) -> Update:
    return Update(update.positions[start:stop], update.rows.slice(start, stop - start))


def places(positions: Positions, wanted: Positions) -> npt.NDArray[np.intp]:
    """Where some positions are among others, ascending; all of them are there."""
    found = np.searchsorted(positions, wanted)
    assert np.array_equal(positions[np.minimum(found, len(positions) - 1)], wanted)
    return found


def replaced(
    rows: pa.RecordBatch,
    at: npt.NDArray[np.intp],
    new: pa.RecordBatch,
    updated: frozenset[int],
) -> pa.RecordBatch:
    """Rows with the values of others in some places, ascending, in the columns that differ."""
    mask = np.zeros(rows.num_rows, np.bool_)
    mask[at] = True
    order = np.arange(rows.num_rows)
    order[at] = rows.num_rows + np.arange(len(at))
    arrow_mask, arrow_order = pa.array(mask), pa.array(order)
    columns = rows.columns
    for n in sorted(updated):
        old, given = rows.column(n), new.column(n)
        if pa.types.is_nested(old.type) or isinstance(old, pa.ExtensionArray):
            columns[n] = pa.concat_arrays([old, given]).take(arrow_order)
        else:  # One copy instead of two.
            columns[n] = pc.replace_with_mask(old, arrow_mask, given)
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)
