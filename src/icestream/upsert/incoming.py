"""The stream of a merge, taken in once: its rows by key, in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.errors import DuplicateKeysError, MemoryBudgetError
from icestream.memory import Lease, MemoryBudget, format_bytes
from icestream.upsert.grouped_rows import GroupedRows
from icestream.upsert.key_hash import BUCKET_BITS, Keys, key_values
from icestream.upsert.key_index import KeyIndex, Rows, Sieve
from icestream.upsert.key_range import KeyRange
from icestream.upsert.merge_plan import MergePlan
from icestream.upsert.stream_rows import LAST_BY, StreamRows
from icestream.write.row_buffer import cut, joined

_MOST_EXAMPLES = 5
_PIECES = 8
_SIEVE_SHARE = 16
_HELD_SHARE = 0.6  # What else a merge in memory takes: the index, and the rows taken from it.


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows of the stream with all others that have their keys.

    Attributes:
        number: As of `Keys.buckets`; None for all rows at once.
        rows: The rows as files get them, and the columns that the merge itself needs.
        index: Finds them by their keys; each key once.
        kept: Rows that count: not superseded by others of the same key.
    """

    number: int | None
    rows: pa.RecordBatch
    index: KeyIndex
    kept: npt.NDArray[np.bool_]


class Incoming:
    """Takes the stream in.

    Memory: the share of the budget that rows may take. Beyond that they are spilled in 256 buckets
    by their keys, each of which must fit.

    Args:
        plan: What the merge does.
        rows_of: Makes rows of batches of the stream.
        budget: What rows are on lease from.
    """

    def __init__(self, plan: MergePlan, rows_of: StreamRows, budget: MemoryBudget) -> None:
        self.range = KeyRange(plan.key)
        self.sieve = Sieve(0)
        self.rows = 0
        self.rows_superseded = 0
        self._options = plan.options
        self._key = plan.key
        self._rows_of = rows_of
        self._budget = budget
        self._store: GroupedRows | None = None
        # Of rows that are in memory. Their bytes are counted as what sorting them would take.
        self._keys: list[Keys] = []

    @property
    def is_spilled(self) -> bool:
        """Whether rows are on disk."""
        return self._store is not None and self._store.is_spilled

    @property
    def spilled_bytes(self) -> int:
        """What went to disk."""
        return self._store.spilled_bytes if self._store is not None else 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Take rows of the stream.

        Raises:
            InvalidDataError: If a key is null, or a value can't be stored.
        """
        for piece in cut(batch, max(1, self._budget.limit_bytes // _PIECES)):
            taken = self._rows_of(piece)
            self._rows_of.refuse_null_keys(taken, first_row=self.rows)
            self.range.add(taken.columns)
            self._keep(taken.rows, taken.keys)
            self.rows += taken.rows.num_rows

    def buckets(self) -> Iterator[Bucket]:
        """All rows; by bucket if they are on disk.

        Raises:
            DuplicateKeysError: If two rows have one key and the caller did not say which counts.
        """
        if self._store is None:
            return
        if not self._store.is_spilled:
            rows = joined(self._store.take_all())
            keys = Keys.joined(self._keys)
            self._keys.clear()
            self.sieve = Sieve(self._budget.limit_bytes // _SIEVE_SHARE, rows.num_rows)
            self.sieve.add(keys)
            yield self._bucket(None, rows, keys)
            return
        for number, batches in self._store.groups():
            lease = self._budget.force(0)
            rows = joined(self._held(batches, lease))
            keys = self._rows_of.hash(self._rows_of.key_columns(rows))
            yield self._bucket(number, rows, keys)
            lease.release()

    def close(self) -> None:
        """Drop all rows."""
        if self._store is not None:
            self._store.close()

    def _held(self, batches: Iterator[pa.RecordBatch], lease: Lease) -> list[pa.RecordBatch]:
        """The rows of a bucket.

        Raises:
            MemoryBudgetError: If they are more than fit.
        """
        held = []
        for batch in batches:
            held.append(pa.concat_batches([batch]))  # A copy: it is cut from a chunk.
            lease.resize(lease.held_bytes + held[-1].nbytes)
            if self._budget.free_bytes < 0:  # The spills, and what matches, hold the rest.
                needed = 8 * lease.held_bytes
                raise MemoryBudgetError(
                    f"the {self.rows} rows of the stream are too many, or too many have the same "
                    f"key, to be merged in this limit: raise memory to {format_bytes(needed)} or "
                    "more, or merge them in parts",
                    needed_bytes=needed,
                    limit_bytes=self._budget.limit_bytes,
                )
        return held

    def _keep(self, rows: pa.RecordBatch, keys: Keys) -> None:
        if self._store is None:
            most_bytes = int(self._budget.limit_bytes * _HELD_SHARE)
            self._store = GroupedRows(rows.schema, budget=self._budget, most_bytes=most_bytes)
        was_spilled = self._store.is_spilled
        self._store.add(rows, keys.buckets)
        self._keys.append(keys)
        if self._store.is_spilled:
            if not was_spilled:
                self.sieve = Sieve(self._budget.limit_bytes // _SIEVE_SHARE)
            for part in self._keys:
                self.sieve.add(part)
            self._keys.clear()

    def _bucket(self, number: int | None, rows: pa.RecordBatch, keys: Keys) -> Bucket:
        columns = self._rows_of.key_columns(rows)
        index = KeyIndex(
            keys,
            same_bits=0 if number is None else BUCKET_BITS,
            values_of=lambda some: key_values([c.take(pa.array(some)) for c in columns]),
        )
        kept = np.ones(rows.num_rows, np.bool_)
        repeated = index.repeated()
        if len(repeated):
            if self._options.on_duplicate == "error":
                raise self._duplicates(rows, repeated)
            last_by = None
            if self._options.last_by is not None:
                last_by = rows.column(rows.schema.get_field_index(LAST_BY))
            left_out = index.keep_last(last_by)
            kept[left_out] = False
            self.rows_superseded += len(left_out)
        return Bucket(number, rows, index, kept)

    def _duplicates(self, rows: pa.RecordBatch, repeated: Rows) -> DuplicateKeysError:
        some = rows.take(pa.array(repeated[: 4 * _MOST_EXAMPLES]))
        all_shown = self._rows_of.shown(self._rows_of.key_columns(some))
        shown = list(dict.fromkeys(all_shown))[:_MOST_EXAMPLES]
        return DuplicateKeysError(
            f"{len(repeated)} rows of the stream share their key with another, such as "
            f"{'; '.join(shown)}: remove them, or merge with on_duplicate='last' and, where their "
            "order does not tell, last_by= the column that does. Nothing was changed",
            column=", ".join(self._key.names),
            examples=tuple(shown),
        )
