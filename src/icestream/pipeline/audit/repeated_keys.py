"""Finds duplicate keys within a memory limit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from icestream.memory.budget import MemoryBudget
from icestream.operations.merge.intake.grouped_rows import GroupedRows
from icestream.operations.merge.keys.key_hash import KeyHash, Keys
from icestream.read.distant_years import shown_values
from icestream.write.rules.stream_filter import decoded
from icestream.write.spill.sort_keys import SortKeys

_NAMES = ("first", "second")
_SCHEMA = pa.schema(
    pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})
    for number, name in enumerate(_NAMES)
)
_Pairs = npt.NDArray[np.void]
_PAIR = np.dtype([(name, np.int64) for name in _NAMES])


class RepeatedKeys:
    """Collects the hashes of keys and finds duplicates. Keys with a null are ignored.

    Memory: `most_bytes`, and the memory in which `GroupedRows` sorts, leased from the budget.

    Args:
        budget: The memory budget.
        most_bytes: Maximum size of the hashes in memory. The rest is on disk.
        kept: Number of duplicate keys to keep as examples.
    """

    def __init__(self, budget: MemoryBudget, *, most_bytes: int, kept: int) -> None:
        self._hash = KeyHash()
        self._rows = GroupedRows(budget=budget, most_bytes=most_bytes, keys=_in_order)
        self._kept = kept
        self._examples = np.zeros(0, _PAIR)

    def __enter__(self) -> RepeatedKeys:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def add(self, columns: list[pa.Array]) -> None:
        """Add the keys of some rows."""
        keys = self._hash([decoded(column) for column in columns])
        if keys.nulls is not None:
            keys = keys.where(~keys.nulls)
        if not len(keys):
            return
        pairs = _pairs(keys)
        columns = [pa.array(np.ascontiguousarray(pairs[name])) for name in _NAMES]
        self._rows.add(pa.record_batch(columns, schema=_SCHEMA), keys.buckets)

    def count(self) -> int:
        """The number of duplicate keys. No key can be added afterwards."""
        count = 0
        for _, batches in self._rows.groups():
            for repeated in _repeated(batches):
                count += len(repeated)
                if len(self._examples) < self._kept:
                    room = self._kept - len(self._examples)
                    self._examples = np.concatenate([self._examples, repeated[:room]])
        return count

    def examples_in(self, columns: list[pa.Array]) -> Iterator[tuple[object, ...]]:
        """The duplicate keys among rows that were added before, as values, each once."""
        keys = self._hash([decoded(column) for column in columns])
        pairs = _pairs(keys)
        is_example = np.isin(pairs, self._examples)
        if keys.nulls is not None:
            is_example &= ~keys.nulls
        for number in np.flatnonzero(is_example):
            left = self._examples != pairs[number]
            if left.all():
                continue  # shown before
            self._examples = self._examples[left]
            yield tuple(shown_values(column.slice(int(number), 1))[0] for column in columns)

    @property
    def are_shown(self) -> bool:
        """Whether all examples have been returned."""
        return not len(self._examples)


def _in_order(schema: pa.Schema) -> SortKeys:
    fields = [
        NestedField(number, name, LongType(), required=True) for number, name in enumerate(_NAMES)
    ]
    order = SortOrder(*(SortField(field.field_id, IdentityTransform()) for field in fields))
    return SortKeys(order, Schema(*fields), schema)


def _pairs(keys: Keys) -> _Pairs:
    pairs = np.zeros(len(keys), _PAIR)
    pairs["first"] = keys.first.view(np.int64)
    if keys.second is not None:
        pairs["second"] = keys.second.view(np.int64)
    return pairs


def _repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[_Pairs]:
    """The duplicates among sorted keys, each once."""
    before = np.zeros(0, _PAIR)  # the last two of the previous batch
    for batch in batches:
        here = np.zeros(batch.num_rows, _PAIR)
        for name in _NAMES:
            here[name] = batch.column(name).to_numpy()
        keys = np.concatenate([before, here])
        same = keys[1:] == keys[:-1]
        is_second = same.copy()
        is_second[1:] &= ~same[:-1]
        second = np.flatnonzero(is_second) + 1
        yield keys[second[second >= len(before)]]
        before = keys[-2:]
