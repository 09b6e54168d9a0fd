"""The stream of a merge, taken in once: its rows by key, in memory or on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from icestream.errors import DuplicateKeysError, InvalidDataError, MemoryBudgetError
from icestream.memory import Lease, MemoryBudget, format_bytes
from icestream.read.rows import Mask
from icestream.upsert.grouped_rows import GroupedRows
from icestream.upsert.key_columns import KeyColumns
from icestream.upsert.key_hash import BUCKET_BITS, KeyHash, Keys
from icestream.upsert.key_index import KeyIndex, Rows, Sieve
from icestream.upsert.key_range import KeyRange
from icestream.upsert.options import MergeOptions
from icestream.upsert.own_columns import decoded
from icestream.upsert.row_shape import RowShape
from icestream.write.row_buffer import cut, joined
from icestream.write.table_writer import TableWriter

_DELETE = pa.field("icestream delete", pa.bool_(), nullable=False)
_LAST_BY = "icestream last by"
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
        options: What to do with null keys and with duplicates.
        key: The key's columns.
        writer: Conforms rows to the table.
        columns: The stream's columns that are written.
        is_delete: Which rows of the stream delete; None if none does.
        budget: What rows are on lease from.
    """

    def __init__(
        self,
        options: MergeOptions,
        key: KeyColumns,
        *,
        writer: TableWriter,
        columns: pa.Schema,
        is_delete: Mask | None,
        budget: MemoryBudget,
    ) -> None:
        self.hash = KeyHash()
        self.range = KeyRange(key)
        self.sieve = Sieve(0)
        self.rows = 0
        self.rows_superseded = 0
        self._options = options
        self._key = key
        self._arrays = key.in_batches_of(writer.target.schema)
        self._shape = RowShape(key, writer=writer, columns=columns, mode=options.schema_mode)
        self._is_delete = is_delete
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
            flags = self._flags_of(piece)
            deletes = self._only_deletes(piece, flags)
            rows = self._shape(piece, deletes)
            arrays = self._arrays(rows)
            keys = self.hash(arrays)
            if keys.nulls is not None and self._options.null_keys == "error":
                raise self._null_keys(piece, arrays, keys)
            self.range.add(arrays)
            self._keep(self._with_extras(rows, piece, flags), keys)
            self.rows += rows.num_rows

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
            yield self._bucket(number, rows, self.hash(self._arrays(rows)))
            lease.release()

    def close(self) -> None:
        """Drop all rows."""
        if self._store is not None:
            self._store.close()

    def key_columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The key's columns of rows as `buckets` gives them."""
        return self._arrays(rows)

    def is_deletion(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows, as `buckets` gives them, delete."""
        if self._options.when_matched == "delete":
            return np.ones(rows.num_rows, np.bool_)
        return self.flagged(rows)

    def flagged(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows the stream itself says are deleted."""
        if self._is_delete is None:
            return np.zeros(rows.num_rows, np.bool_)
        column = rows.column(rows.schema.get_field_index(_DELETE.name))
        flags: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
        return flags

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

    def _flags_of(self, piece: pa.RecordBatch) -> pa.Array | None:
        return None if self._is_delete is None else pc.fill_null(self._is_delete(piece), False)

    def _only_deletes(
        self, piece: pa.RecordBatch, flags: pa.Array | None
    ) -> npt.NDArray[np.bool_] | None:
        """Which rows are never written, as all they do is delete; None if none is such."""
        options = self._options
        if options.when_matched == "delete" and options.when_not_matched == "ignore":
            return np.ones(piece.num_rows, np.bool_)
        return None if flags is None else flags.to_numpy(zero_copy_only=False)

    def _with_extras(
        self, rows: pa.RecordBatch, piece: pa.RecordBatch, flags: pa.Array | None
    ) -> pa.RecordBatch:
        columns, schema = rows.columns, rows.schema
        if flags is not None:
            columns = [*columns, flags]
            schema = schema.append(_DELETE)
        if self._options.last_by is not None:
            values = decoded(piece.column(piece.schema.get_field_index(self._options.last_by)))
            columns = [*columns, values]
            schema = schema.append(pa.field(_LAST_BY, values.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _bucket(self, number: int | None, rows: pa.RecordBatch, keys: Keys) -> Bucket:
        index = KeyIndex(keys, same_bits=0 if number is None else BUCKET_BITS)
        kept = np.ones(rows.num_rows, np.bool_)
        repeated = index.repeated()
        if len(repeated):
            if self._options.on_duplicate == "error":
                raise self._duplicates(rows, repeated)
            last_by = None
            if self._options.last_by is not None:
                last_by = rows.column(rows.schema.get_field_index(_LAST_BY))
            left_out = index.keep_last(last_by)
            kept[left_out] = False
            self.rows_superseded += len(left_out)
        return Bucket(number, rows, index, kept)

    def _duplicates(self, rows: pa.RecordBatch, repeated: Rows) -> DuplicateKeysError:
        some = rows.take(pa.array(repeated[: 4 * _MOST_EXAMPLES]))
        shown = list(dict.fromkeys(self._shown(self._arrays(some))))[:_MOST_EXAMPLES]
        return DuplicateKeysError(
            f"{len(repeated)} rows of the stream share their key with another, such as "
            f"{'; '.join(shown)}: remove them, or merge with on_duplicate='last' and, where their "
            "order does not tell, last_by= the column that does. Nothing was changed",
            column=", ".join(self._key.names),
            examples=tuple(shown),
        )

    def _null_keys(
        self, piece: pa.RecordBatch, arrays: list[pa.Array], keys: Keys
    ) -> InvalidDataError:
        assert keys.nulls is not None
        where = np.flatnonzero(keys.nulls)
        example = self._shown([array.take(pa.array(where[:1])) for array in arrays])[0]
        missing = next(n for n, a in zip(self._key.names, arrays, strict=True) if a.null_count)
        return InvalidDataError(
            f"{len(where)} rows of the stream have a null in their key, such as the one with "
            f"{example} (row {self.rows + int(where[0])}, counted from 0): fill them, or merge "
            "with null_keys='insert' to insert such rows without looking for matches",
            column=missing,
        )

    def _shown(self, arrays: list[pa.Array]) -> list[str]:
        values = zip(*(array.to_pylist() for array in arrays), strict=True)
        return [
            ", ".join(f"{n} = {v!r}" for n, v in zip(self._key.names, row, strict=True))
            for row in values
        ]
