"""The matches of a stream that does not fit into memory: both sides are spilled by key.

```
stream's rows --+-- bucket 0 --+                       +-- file 0, by position
                +-- bucket 1   +-- find -- rows with --+-- file 1
table's keys  --+-- ...      --+           a position  +-- ...
```
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from icestream.memory.budget import MemoryBudget
from icestream.operations.merge.intake.grouped_rows import GroupedRows
from icestream.operations.merge.intake.incoming import Bucket, Incoming
from icestream.operations.merge.keys.key_hash import Keys
from icestream.operations.merge.match.matches import KeysOfFile, Positions, Update, chunks
from icestream.write.spill.sort_keys import SortKeys

_POSITION_ID = 2147483645  # The id of `_pos` in the Iceberg specification.
_POSITION = pa.field(
    "icestream pos", pa.int64(), False, {b"PARQUET:field_id": str(_POSITION_ID).encode()}
)
_BUFFER_SHARE = 4


class MatchedOnDisk:
    """Joins the stream with the table's keys bucket by bucket, and sorts the matches by file.

    Memory: about three quarters of the budget's limit, and one bucket of the stream.

    Args:
        incoming: The stream.
        keys: The keys of the table's files.
        budget: The budget that rows and matches are charged to.
    """

    def __init__(
        self, incoming: Incoming, keys: Iterator[KeysOfFile], budget: MemoryBudget
    ) -> None:
        self.rows = 0
        self.duplicates = 0
        self._incoming = incoming
        self._files: set[int] = set()
        self._waiting: Iterator[tuple[int, Iterator[pa.RecordBatch]]] | None = None
        most_bytes = budget.limit_bytes // _BUFFER_SHARE
        self._keys = GroupedRows(budget=budget, most_bytes=most_bytes)  # by bucket
        self._matched = GroupedRows(budget=budget, most_bytes=most_bytes, keys=_by_position)
        try:
            for part in keys:
                self._keys.add(_to_store(part), part.keys.buckets)
            self._join()
        except BaseException:
            self.close()
            raise

    @property
    def spilled_bytes(self) -> int:
        """The number of bytes in temporary files, without the stream's rows."""
        return self._keys.spilled_bytes + self._matched.spilled_bytes

    def files(self) -> list[int]:
        """The files with rows to change."""
        return sorted(self._files)

    def positions(self, number: int) -> None:
        """None: the positions are on disk."""
        return

    def updates(self, number: int) -> Iterator[Update]:
        """The updates for a file."""
        if self._waiting is None:
            self._waiting = self._matched.groups()
        for group, batches in self._waiting:
            if group == number:
                yield from map(_update, batches)
                return
        raise AssertionError("updates must be requested in the order of files")

    def keep_only(self, number: int, positions: Positions) -> None:
        """Never called, because updates are read from disk only once."""
        raise AssertionError("positions are not known")

    def finish(self) -> None:
        """Do nothing: `_join` has inserted the rows that match nothing."""

    def close(self) -> None:
        """Drop everything."""
        self._keys.close()
        self._matched.close()

    def _join(self) -> None:
        stored = self._keys.groups()
        number, some = next(stored, (None, None))
        rows_of = self._incoming.rows_of
        for bucket in self._incoming.buckets():
            assert bucket.number is not None
            while number is not None and number < bucket.number:
                number, some = next(stored, (None, None))
            matched = np.zeros(bucket.rows.num_rows, np.bool_)
            if number == bucket.number and some is not None:
                changing = rows_of.changes(bucket.rows)
                before = self.rows
                for keys in some:
                    self._find(bucket, keys, matched, changing)
                self.duplicates += self.rows - before - int(np.count_nonzero(matched))
            for _, rows in chunks(bucket.rows, np.flatnonzero(bucket.kept & ~matched)):
                rows_of.insert(rows)
        self._keys.close()

    def _find(
        self,
        bucket: Bucket,
        stored: pa.RecordBatch,
        matched: npt.NDArray[np.bool_],
        changing: npt.NDArray[np.bool_],
    ) -> None:
        files, positions, keys, values = _of_stored(stored)
        matches = bucket.index.find(keys, values)
        self.rows += len(matches.rows)
        matched[matches.rows] = True
        chosen = changing[matches.rows]
        places, rows = matches.places[chosen], matches.rows[chosen]
        for part, taken in chunks(bucket.rows, rows):
            tagged = pa.RecordBatch.from_arrays(
                [*taken.columns, pa.array(positions[places[part]])],
                schema=taken.schema.append(_POSITION),
            )
            numbers = files[places[part]]
            self._files.update(np.unique(numbers).tolist())
            self._matched.add(tagged, numbers)


def _to_store(part: KeysOfFile) -> pa.RecordBatch:
    columns = {
        "file": pa.array(np.full(len(part.keys), part.number, np.int32)),
        "position": pa.array(part.positions),
        "first": pa.array(part.keys.first),
    }
    if part.keys.second is not None:
        columns["second"] = pa.array(part.keys.second)
        columns["values"] = part.values
    return pa.RecordBatch.from_pydict(columns)


def _of_stored(
    stored: pa.RecordBatch,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], Keys, pa.Array | None]:
    files, positions, first = (column.to_numpy() for column in stored.columns[:3])
    if stored.num_columns == 3:
        return files, positions, Keys(first, None, None), None
    second, values = stored.columns[3:]
    return files, positions, Keys(first, second.to_numpy(), None), values


def _update(batch: pa.RecordBatch) -> Update:
    *columns, positions = batch.columns
    schema = batch.schema.remove(len(columns))
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    return Update(positions.to_numpy(), rows)


def _by_position(schema: pa.Schema) -> SortKeys:
    field = NestedField(_POSITION_ID, "position", LongType(), required=True)
    order = SortOrder(
        SortField(_POSITION_ID, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST)
    )
    return SortKeys(order, Schema(field), schema)
