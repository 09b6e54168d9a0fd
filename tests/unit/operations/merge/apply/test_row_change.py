"""Updates in the order of a file, and the rows that they replace."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from icestream.errors import InvalidArgumentError
from icestream.operations.merge.apply.row_change import UpdatesInOrder, places, replaced
from icestream.operations.merge.match.matches import Update


def _update(positions: list[int]) -> Update:
    rows = pa.RecordBatch.from_pydict({"n": positions})
    return Update(np.array(positions, np.int64), rows)


def test_updates_are_taken_as_far_as_the_file_was_read() -> None:
    updates = UpdatesInOrder(iter([_update([1, 4]), _update([5]), _update([7, 9, 12])]))
    taken = []
    for position in (0, 3, 4, 8, 8, 11, 12, 99):
        part = updates.up_to(position)
        assert all(u.positions.tolist() == u.rows["n"].to_pylist() for u in part)
        taken.append([n for update in part for n in update.positions.tolist()])
    assert taken == [[], [1], [4], [5, 7], [], [9], [12], []]


def test_places_are_those_of_the_positions() -> None:
    positions = np.array([2, 3, 7, 11])
    assert places(positions, np.array([2, 7, 11])).tolist() == [0, 2, 3]
    assert places(positions, np.array([], np.int64)).tolist() == []
    with pytest.raises(InvalidArgumentError, match="order"):
        places(positions, np.array([4]))
    with pytest.raises(InvalidArgumentError, match="order"):
        places(positions, np.array([12]))


@pytest.mark.parametrize("null", [False, True], ids=["values", "a null"])
@pytest.mark.parametrize("start", [0, 2], ids=["whole", "slice"])
def test_new_values_replace_old_ones_in_the_updated_columns_only(start: int, null: bool) -> None:
    """Columns of numbers are copied as words; others are taken from old and new rows."""

    def batch(numbers: list[int | None]) -> pa.RecordBatch:
        array = pa.array(numbers, pa.int64())
        kinds = [pa.int32(), pa.float64(), pa.timestamp("us"), pa.string(), pa.int64()]
        return pa.RecordBatch.from_arrays([array.cast(kind) for kind in kinds], names=[*"abcde"])

    rows = batch(list(range(8))).slice(start)
    new = batch([70, None if null else 80])
    changed = replaced(rows, np.array([1, 4]), new, frozenset(range(4)))
    before = list(range(start, 8))
    expected = [*before[:1], 70, *before[2:4], None if null else 80, *before[5:]]
    assert changed.select([*"abcd"]) == batch(expected).select([*"abcd"])
    assert changed["e"].to_pylist() == before
