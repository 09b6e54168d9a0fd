"""The rows of the stream by key, in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.memory.budget import Lease, MemoryBudget, over_limit
from icestream.operations.merge.intake.duplicate_keys import DuplicateKeys
from icestream.operations.merge.intake.grouped_rows import GroupedRows
from icestream.operations.merge.intake.stream_rows import StreamRows
from icestream.operations.merge.keys.key_hash import BUCKET_BITS, Keys, key_values
from icestream.operations.merge.keys.key_index import KeyIndex, Sieve
from icestream.operations.merge.keys.key_range import KeyRange
from icestream.write.parquet.row_buffer import joined
from icestream.write.schema.sizes import cut_written_out

_PIECES = 8
_SIEVE_SHARE = 16
_HELD_SHARE = 0.6  # The rest is for the index and for copies of held rows.


@dataclass(frozen=True, slots=True)
class Bucket:
    """Rows of the stream. All rows with the same key are in the same bucket.

    Attributes:
        number: The number from `Keys.buckets`; None if the bucket has all rows.
        rows: The rows in the shape of files, and the columns that the merge itself uses.
        index: Finds the rows by their keys; each key once.
        kept: Marks the rows that no other row with the same key supersedes.
    """

    number: int | None
    rows: pa.RecordBatch
    index: KeyIndex
    kept: npt.NDArray[np.bool_]


class Incoming:
    """Takes in the stream.

    Memory: the limit of the budget. Rows that do not fit are spilled to 256 buckets by key, each of
    which must fit.

    Args:
        rows_of: Converts batches of the stream to rows.
        budget: The budget that rows are charged to.
    """

    def __init__(self, rows_of: StreamRows, budget: MemoryBudget) -> None:
        self.range = KeyRange(rows_of.plan.key)
        self.sieve = Sieve(0)
        self.rows = 0
        self.duplicates = DuplicateKeys(rows_of)
        self.rows_of = rows_of
        self._budget = budget
        most_bytes = int(budget.limit_bytes * _HELD_SHARE)
        self._store = GroupedRows(budget=budget, most_bytes=most_bytes)
        # The keys of rows in memory. `GroupedRows` counts their bytes as memory for sorting.
        self._keys: list[Keys] = []

    @property
    def is_spilled(self) -> bool:
        """Whether rows are on disk."""
        return self._store.is_spilled

    @property
    def spilled_bytes(self) -> int:
        """The number of bytes written to disk."""
        return self._store.spilled_bytes

    def take(self, batch: pa.RecordBatch) -> None:
        """Take rows of the stream.

        Raises:
            InvalidDataError: If a key is null, or a value can't be stored.
        """
        for piece in cut_written_out(batch, max(1, self._budget.limit_bytes // _PIECES)):
            keyed = self.rows_of(piece)
            self.rows_of.refuse_null_keys(keyed, first_row=self.rows)
            self.range.add(keyed.columns)
            self._keep(keyed.rows, keyed.keys)
            self.rows += keyed.rows.num_rows

    def buckets(self) -> Iterator[Bucket]:
        """All rows, in one bucket if they are in memory, else in many.

        Raises:
            DuplicateKeysError: If rows have the same key, and `on_duplicate` is `"error"`.
        """
        if not self.rows:
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
            keys = self.rows_of.hash(self.rows_of.key_columns(rows))
            yield self._bucket(number, rows, keys)
            lease.release()

    def close(self) -> None:
        """Drop all rows."""
        self._store.close()

    def _held(self, batches: Iterator[pa.RecordBatch], lease: Lease) -> list[pa.RecordBatch]:
        """The rows of a bucket.

        Raises:
            MemoryBudgetError: If they do not fit.
        """
        held = []
        for batch in batches:
            held.append(pa.concat_batches([batch]))  # A copy, as the batch is part of a chunk.
            lease.resize(lease.held_bytes + held[-1].nbytes)
            if self._budget.free_bytes < 0:  # The spill buffers and the matches hold the rest.
                # At least 1.5 times the bytes held now, so that the next attempt gets further.
                held_bytes = self._budget.limit_bytes - self._budget.free_bytes
                needed = max(8 * lease.held_bytes, held_bytes * 3 // 2)
                raise over_limit(
                    f"the stream has too many rows ({self.rows}), or too many have the same key",
                    needed_bytes=needed,
                    limit_bytes=self._budget.limit_bytes,
                    otherwise="merge the rows in parts",
                )
        return held

    def _keep(self, rows: pa.RecordBatch, keys: Keys) -> None:
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
        columns = self.rows_of.key_columns(rows)
        index = KeyIndex(
            keys,
            same_bits=0 if number is None else BUCKET_BITS,
            values_of=lambda some: key_values([c.take(pa.array(some)) for c in columns]),
        )
        return Bucket(number, rows, index, self.duplicates.resolve(rows, index))
