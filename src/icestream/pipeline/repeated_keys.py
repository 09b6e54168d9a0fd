"""Which keys are there more than once, inside a memory limit."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from icestream.memory import MemoryBudget
from icestream.upsert.grouped_rows import GroupedRows
from icestream.upsert.key_hash import KeyHash, Keys
from icestream.upsert.own_columns import decoded
from icestream.write.sort_keys import SortKeys

_NAMES = ("first", "second")
_SCHEMA = pa.schema(
    pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})
    for number, name in enumerate(_NAMES)
)
_Pairs = npt.NDArray[np.void]
_PAIR = np.dtype([(name, np.int64) for name in _NAMES])


class RepeatedKeys:
    """Takes keys, as numbers, and tells which came twice. A key with a null is left out.

    Memory: `most_bytes` and what `GroupedRows` takes to sort them, on lease from the budget.

    Args:
        budget: What keys are on lease from.
        most_bytes: What is held before they go to disk.
        kept: How many of the keys that came twice are kept for examples.
    """

    def __init__(self, budget: MemoryBudget, *, most_bytes: int, kept: int) -> None:
        self._hash = KeyHash()
        self._rows = GroupedRows(_SCHEMA, budget=budget, most_bytes=most_bytes, keys=_in_order())
        self._kept = kept
        self._examples = np.zeros(0, _PAIR)

    def __enter__(self) -> RepeatedKeys:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._rows.close()

    def add(self, columns: list[pa.Array]) -> None:
        """Take the keys of some rows."""
        keys = self._of(columns)
        if not len(keys):
            return
        pairs = _pairs(keys)
        columns = [pa.array(np.ascontiguousarray(pairs[name])) for name in _NAMES]
        self._rows.add(pa.record_batch(columns, schema=_SCHEMA), keys.buckets)

    def count(self) -> int:
        """How many keys came more than once. No more can be added."""
        found = 0
        for _, batches in self._rows.groups():
            for repeated in _repeated(batches):
                found += len(repeated)
                if len(self._examples) < self._kept:
                    room = self._kept - len(self._examples)
                    self._examples = np.concatenate([self._examples, repeated[:room]])
        return found

    def examples_in(self, columns: list[pa.Array]) -> Iterator[tuple[object, ...]]:
        """Of some rows that were added before: keys that came twice, each once, as values."""
        rows = [decoded(column) for column in columns]
        keys = self._hash(rows)
        pairs = _pairs(keys)
        found = np.isin(pairs, self._examples)
        if keys.nulls is not None:
            found &= ~keys.nulls
        for number in np.flatnonzero(found):
            left = self._examples != pairs[number]
            if left.all():
                continue  # shown before
            self._examples = self._examples[left]
            yield tuple(column[int(number)].as_py() for column in columns)

    @property
    def are_shown(self) -> bool:
        """Whether all examples have been given."""
        return not len(self._examples)

    def _of(self, columns: list[pa.Array]) -> Keys:
        keys = self._hash([decoded(column) for column in columns])
        return keys if keys.nulls is None else keys.where(~keys.nulls)


def _in_order() -> SortKeys:
    fields = [
        NestedField(number, name, LongType(), required=True) for number, name in enumerate(_NAMES)
    ]
    order = SortOrder(*(SortField(field.field_id, IdentityTransform()) for field in fields))
    return SortKeys(order, Schema(*fields), _SCHEMA)


def _pairs(keys: Keys) -> _Pairs:
    pairs = np.zeros(len(keys), _PAIR)
    pairs["first"] = keys.first.view(np.int64)
    if keys.second is not None:
        pairs["second"] = keys.second.view(np.int64)
    return pairs


def _repeated(batches: Iterator[pa.RecordBatch]) -> Iterator[_Pairs]:
    """Of keys in order: those that are there twice, each once."""
    before = np.zeros(0, _PAIR)  # the last two of the batch before
    for batch in batches:
        here = np.zeros(batch.num_rows, _PAIR)
        for name in _NAMES:
            here[name] = batch.column(name).to_numpy()
        keys = np.concatenate([before, here])
        same = keys[1:] == keys[:-1]
        is_second = same.copy()
        is_second[1:] &= ~same[:-1]
        found = np.flatnonzero(is_second) + 1
        yield keys[found[found >= len(before)]]
        before = keys[-2:]
