"""Matches of a stream that does not fit in memory: both sides are spilled by key.

```
stream's rows --+-- bucket 0 --+                       +-- file 0, by position
                +-- bucket 1   +-- find -- rows with --+-- file 1
table's keys  --+-- ...      --+           a position  +-- ...
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from icestream.memory import MemoryBudget
from icestream.upsert.grouped_rows import GroupedRows
from icestream.upsert.incoming import Bucket, Incoming
from icestream.upsert.key_hash import Keys
from icestream.upsert.matches import KeysOfFile, Positions, Update, chunks
from icestream.write.sort_keys import SortKeys

_POSITION_ID = 2147483645  # Of `_pos`, by the Iceberg specification.
_POSITION = pa.field(
    "icestream pos", pa.int64(), False, {b"PARQUET:field_id": str(_POSITION_ID).encode()}
)
_BUFFER_SHARE = 4


class MatchedOnDisk:
    """Joins the stream with the table's keys bucket by bucket, and sorts what matches by file.

    Memory: about three quarters of the budget's limit, and one bucket of the stream.

    Args:
        incoming: The stream.
        changes: Which rows change a row that they match.
        keys: The keys of the table's files.
        insert: Gets the rows that match nothing.
        budget: What is held is on lease from it.
    """

    def __init__(
        self,
        incoming: Incoming,
        changes: Callable[[pa.RecordBatch], npt.NDArray[np.bool_]],
        keys: Iterator[KeysOfFile],
        insert: Callable[[pa.RecordBatch], None],
        budget: MemoryBudget,
    ) -> None:
        self.rows = 0
        self.duplicates = 0
        self._incoming = incoming
        self._changes = changes
        self._insert = insert
        self._budget = budget
        self._files: set[int] = set()
        self._matched: GroupedRows | None = None
        self._waiting: Iterator[tuple[int, Iterator[pa.RecordBatch]]] | None = None
        self._keys = _StoredKeys(budget)
        try:
            for found in keys:
                self._keys.add(found)
            self._join()
        except BaseException:
            self.close()
            raise

    @property
    def spilled_bytes(self) -> int:
        """What went through temporary files, the stream's rows aside."""
        return self._keys.spilled_bytes + (self._matched.spilled_bytes if self._matched else 0)

    def files(self) -> list[int]:
        """The files with rows to change."""
        return sorted(self._files)

    def positions(self, number: int) -> None:
        """Not known: they are on disk."""
        return

    def updates(self, number: int) -> Iterator[Update]:
        """The rows to change of a file."""
        assert self._matched is not None
        if self._waiting is None:
            self._waiting = self._matched.groups()
        for found, batches in self._waiting:
            if found == number:
                yield from map(_update, batches)
                return
        raise AssertionError("files are asked for in their order")

    def keep_only(self, number: int, positions: Positions) -> None:
        """Never asked for: rows come from disk once."""
        raise AssertionError("positions are not known")

    def finish(self) -> None:
        """Nothing is left: rows that match nothing were inserted with the others of their keys."""

    def close(self) -> None:
        """Drop everything."""
        self._keys.close()
        if self._matched is not None:
            self._matched.close()

    def _join(self) -> None:
        stored = self._keys.buckets()
        number, some = next(stored, (None, None))
        for bucket in self._incoming.buckets():
            assert bucket.number is not None
            while number is not None and number < bucket.number:
                number, some = next(stored, (None, None))
            matched = np.zeros(bucket.rows.num_rows, np.bool_)
            if number == bucket.number and some is not None:
                changing = self._changes(bucket.rows)
                before = self.rows
                for keys in some:
                    self._find(bucket, keys, matched, changing)
                self.duplicates += self.rows - before - int(np.count_nonzero(matched))
            for _, rows in chunks(bucket.rows, np.flatnonzero(bucket.kept & ~matched)):
                self._insert(rows)
        self._keys.close()

    def _find(
        self,
        bucket: Bucket,
        stored: pa.RecordBatch,
        matched: npt.NDArray[np.bool_],
        changing: npt.NDArray[np.bool_],
    ) -> None:
        files, positions, keys, values = _of_stored(stored)
        found = bucket.index.find(keys, values)
        self.rows += len(found.rows)
        matched[found.rows] = True
        chosen = changing[found.rows]
        asked, rows = found.asked[chosen], found.rows[chosen]
        for part, taken in chunks(bucket.rows, rows):
            tagged = pa.RecordBatch.from_arrays(
                [*taken.columns, pa.array(positions[asked[part]])],
                schema=taken.schema.append(_POSITION),
            )
            numbers = files[asked[part]]
            self._files.update(np.unique(numbers).tolist())
            self._store(tagged.schema).add(tagged, numbers)

    def _store(self, schema: pa.Schema) -> GroupedRows:
        if self._matched is None:
            self._matched = GroupedRows(
                schema,
                budget=self._budget,
                most_bytes=self._budget.limit_bytes // _BUFFER_SHARE,
                keys=_by_position(schema),
            )
        return self._matched


class _StoredKeys:
    """Keys of the table, by bucket."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._rows: GroupedRows | None = None

    @property
    def spilled_bytes(self) -> int:
        return self._rows.spilled_bytes if self._rows is not None else 0

    def add(self, found: KeysOfFile) -> None:
        count = len(found.keys)
        columns = {
            "file": pa.array(np.full(count, found.number, np.int32)),
            "position": pa.array(found.positions),
            "first": pa.array(found.keys.first),
        }
        if found.keys.second is not None:
            columns["second"] = pa.array(found.keys.second)
            columns["values"] = found.values
        rows = pa.RecordBatch.from_pydict(columns)
        if self._rows is None:
            self._rows = GroupedRows(
                rows.schema,
                budget=self._budget,
                most_bytes=self._budget.limit_bytes // _BUFFER_SHARE,
            )
        self._rows.add(rows, found.keys.buckets)

    def buckets(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        if self._rows is not None:
            yield from self._rows.groups()

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()


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
