"""What becomes of rows of the table that rows of the stream match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from icestream.upsert.equality import Mask, same_values
from icestream.upsert.matches import Positions, Update
from icestream.upsert.merge_plan import MergePlan


@dataclass(frozen=True, slots=True)
class Changed:
    """What becomes of some rows of the table that are matched.

    Attributes:
        positions: Where they are.
        is_changed: Which of them are not as they were to be.
        is_deleted: Which of them go.
    """

    positions: Positions
    is_changed: Mask
    is_deleted: Mask

    @property
    def is_updated(self) -> Mask:
        """Which of them have new values."""
        return self.is_changed & ~self.is_deleted


class RowChange:
    """Makes new rows of the table's and the stream's.

    Args:
        plan: What the merge does.
        columns: The schema of rows in files.
        is_deletion: Tells which rows of the stream delete.
    """

    def __init__(
        self,
        plan: MergePlan,
        *,
        columns: pa.Schema,
        is_deletion: Callable[[pa.RecordBatch], Mask],
    ) -> None:
        self.updated = plan.updated
        self.is_complete = plan.is_complete
        self._columns = columns
        self._is_deletion = is_deletion
        self._skip_unchanged = plan.options.skip_unchanged
        # Columns in which all rows compared so far differ; None before the first.
        self._telling: frozenset[int] | None = None

    @property
    def needs_current_rows(self) -> bool:
        """Whether the rows of the table have to be read: not where others replace them whole."""
        return self._skip_unchanged or not self.is_complete

    def of(self, current: pa.RecordBatch, update: Update, at: Positions | None = None) -> Changed:
        """What becomes of rows of the table.

        Args:
            current: These rows, or a batch that they are in.
            update: What they match, row by row.
            at: Where they are in the batch; None if they are all of it.
        """
        deleted = self._is_deletion(update.rows)
        same = np.full(len(deleted), self._skip_unchanged) & ~deleted
        chosen = None if at is None else pa.array(at)
        for n in sorted(self.updated):
            if not same.any():
                break
            column = current.column(n) if chosen is None else current.column(n).take(chosen)
            same &= same_values(column, update.rows.column(n))
        return Changed(update.positions, ~same, deleted)

    def rows(self, current: pa.RecordBatch | None, update: Update) -> pa.RecordBatch:
        """Rows as they are to be, those to be deleted among them.

        Args:
            current: The rows of the table; None if the stream has all columns.
            update: What they match, row by row.
        """
        columns = [
            update.rows.column(n) if current is None or n in self.updated else current.column(n)
            for n in range(len(self._columns))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._columns)

    def note_differences(self, current: pa.RecordBatch, update: Update) -> None:
        """Learn which columns alone would have told that these rows change."""
        if self._telling is None:
            self._telling = frozenset(n for n in self.updated if _is_simple(current.column(n)))
        if self._telling:
            self._telling = frozenset(
                n
                for n in self._telling
                if not same_values(current.column(n), update.rows.column(n)).any()
            )

    def telling_column(self, schema: Schema, sizes: Mapping[int, int]) -> int | None:
        """The cheapest column in which all rows differed so far; None if there is none.

        Args:
            schema: The table's: what is new in the stream can't be read from it.
            sizes: Bytes of the columns in a file, by id.
        """
        known = {field.name: sizes.get(field.field_id, 0) for field in schema.fields}
        names = {n: self._columns.field(n).name for n in self._telling or ()}
        readable = [n for n, name in names.items() if name in known]
        return min(readable, key=lambda n: (self._is_text(n), known[names[n]], n), default=None)

    def _is_text(self, n: int) -> bool:
        """Whether a column's values are slow to decode, however few bytes they take in files."""
        kind = self._columns.field(n).type
        return bool(pa.types.is_large_unicode(kind) or pa.types.is_unicode(kind))

    def differs(self, current: pa.Array, update: Update, column: int) -> Mask:
        """Which rows change, for all that one column tells."""
        given = update.rows.column(column)
        deleted = self._is_deletion(update.rows)
        return deleted | ~same_values(current.cast(given.type), given)

    def all_of(self, update: Update) -> Changed:
        """What becomes of rows of which it is known that they change."""
        deleted = self._is_deletion(update.rows)
        return Changed(update.positions, np.ones(len(deleted), np.bool_), deleted)


def _is_simple(array: pa.Array) -> bool:
    return not pa.types.is_nested(array.type) and not isinstance(array, pa.ExtensionArray)


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
    columns = rows.columns
    order = np.arange(rows.num_rows)
    order[at] = rows.num_rows + np.arange(len(at))
    taken = pa.array(order)
    for n in sorted(updated):
        old, given = columns[n], new.column(n)
        if _is_plain(old) and _is_plain(given):
            columns[n] = _scattered(old, at, given)
        else:  # A copy more than `replace_with_mask` makes of texts, and three times as quick.
            columns[n] = pa.concat_arrays([old, given]).take(taken)
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _is_plain(array: pa.Array) -> bool:
    """Whether an array is one buffer of numbers, dates or moments, and nothing is null."""
    kind = array.type
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
    return numbers and not array.null_count


def _scattered(old: pa.Array, at: npt.NDArray[np.intp], given: pa.Array) -> pa.Array:
    """An array with other values in some places, made by one copy."""
    buffer = pa.allocate_buffer(len(old) * old.type.bit_width // 8)
    values = np.frombuffer(buffer, _words(old).dtype)
    values[:] = _words(old)
    values[at] = _words(given)
    return pa.Array.from_buffers(old.type, len(old), [None, buffer])


def _words(array: pa.Array) -> npt.NDArray[np.unsignedinteger[Any]]:
    width = array.type.bit_width // 8
    words = np.frombuffer(array.buffers()[1], f"u{width}")
    return words[array.offset : array.offset + len(array)]
