"""The line: who takes what, what the consumer gets, and who is at its head."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from icestream.memory.budget import MemoryBudget
from icestream.read.deliver.file_queue import FileSlot, Line, UnitSlot
from icestream.read.split import Split

_budget = MemoryBudget("1MB")


def _split(path: str) -> Split:
    nothing: Any = None
    return Split(path, 1, 1, "parquet", None, False, (), (), nothing)


def _line(*paths: str, in_order: bool = True) -> Line:
    """A line whose plan has been read to its end."""
    line = Line([_split(path) for path in paths], in_order=in_order)
    line.ahead = len(paths) + 1
    _plan(line)
    return line


def _plan(line: Line) -> None:
    while line.wants_split():
        line.add(line.next_split())


def _start_next(line: Line, units: int) -> FileSlot:
    """Open the next file and take all its units, as workers do."""
    slot, unit = line.take()
    assert unit is None
    line.opened(slot, [None] * units)
    assert [line.take() for _ in range(units)] == [(slot, unit) for unit in slot.units]
    return slot


def _put(line: Line, unit: UnitSlot, *values: int) -> None:
    for value in values:
        batch = pa.record_batch({"value": [value]})
        line.put(unit, batch, _budget.force(batch.nbytes))


def _pop(line: Line) -> int | None:
    item = line.pop()
    if item is None:
        return None
    batch, lease = item
    lease.release()
    return batch.column("value")[0].as_py()


def test_units_of_open_files_are_taken_before_the_next_file_is_opened() -> None:
    line = _line("a", "b", "c")
    first, second = (line.take()[0] for _ in range(2))
    line.opened(second, [None])
    line.opened(first, [None, None])
    taken = [line.take() for _ in range(3)]
    assert taken == [(first, first.units[0]), (first, first.units[1]), (second, second.units[0])]
    third, unit = line.take()
    assert (third.split.path, unit) == ("c", None)


def test_a_worker_with_nothing_to_take_can_tell_whether_more_may_come() -> None:
    line = _line("a")
    assert not line.more_to_come
    slot, _ = line.take()
    assert line.take() is None
    assert line.more_to_come
    line.opened(slot, [None])
    assert not line.more_to_come
    assert line.take() == (slot, slot.units[0])
    assert line.take() is None


def test_in_order_the_consumer_takes_from_the_first_unfinished_file_only() -> None:
    line = _line("a", "b")
    first, second = _start_next(line, 1), _start_next(line, 1)
    _put(line, second.units[0], 10)
    assert _pop(line) is None
    _put(line, first.units[0], 1, 2)
    assert [_pop(line) for _ in range(3)] == [1, 2, None]
    line.ended(first, first.units[0])
    assert _pop(line) == 10


def test_out_of_order_the_consumer_takes_what_is_there_but_rows_of_a_file_in_order() -> None:
    line = _line("a", "a", "b", in_order=False)
    slots = [_start_next(line, 1) for _ in range(3)]
    _put(line, slots[1].units[0], 5)
    _put(line, slots[2].units[0], 10)
    assert [_pop(line) for _ in range(2)] == [10, None]
    _put(line, slots[0].units[0], 1)
    line.ended(slots[0], slots[0].units[0])
    assert [_pop(line) for _ in range(3)] == [1, 5, None]


def test_the_head_moves_on_as_units_and_files_end() -> None:
    line = _line("a", "empty", "b")
    first = _start_next(line, 2)
    one, two = first.units
    assert line.is_next(first, one)
    assert not line.is_next(first, two)
    _put(line, one, 1)
    assert not line.is_next(first, one), "the consumer has a batch to take"
    line.ended(first, one)
    assert _pop(line) == 1
    assert line.is_next(first, two)
    line.ended(first, two)
    assert _pop(line) is None
    assert not line.is_next(first, two)
    _start_next(line, 0)
    last = _start_next(line, 1)
    assert line.is_next(last, last.units[0]), "a file without units holds nobody up"
    assert not line.drained
    line.ended(last, last.units[0])
    assert _pop(line) is None
    assert line.drained


def test_closing_gives_back_what_nobody_took() -> None:
    held = _budget.held_bytes
    line = _line("a", "b", in_order=False)
    first, second = _start_next(line, 1), _start_next(line, 1)
    _put(line, first.units[0], 1, 2)
    _put(line, second.units[0], 3)
    assert line.buffered_batches == 3
    assert _pop(line) == 1
    assert line.buffered_batches == 2
    line.close()
    assert _budget.held_bytes == held


def test_splits_are_taken_from_the_plan_one_by_one_as_files_are_opened() -> None:
    taken = []

    def plan() -> Iterator[Split]:
        for number in range(100):
            taken.append(number)
            yield _split(f"file-{number}")

    line = Line(plan(), in_order=True)
    line.ahead = 2
    _plan(line)
    assert taken == [0, 1]
    assert not line.wants_split(), "there are enough in the line"
    line.take()
    _plan(line)
    assert taken == [0, 1, 2]


def test_only_one_worker_at_a_time_takes_a_split_from_the_plan() -> None:
    line = Line([_split("a")], in_order=True)
    assert line.wants_split()
    assert not line.wants_split()
    assert line.more_to_come
    line.add(line.next_split())
    assert not line.more_to_come


def test_the_line_is_drained_only_when_the_plan_is_at_its_end() -> None:
    line = Line([], in_order=True)
    assert not line.drained
    _plan(line)
    assert line.drained
    assert not line.wants_split()


@pytest.mark.parametrize("in_order", [True, False])
def test_finished_files_leave_the_line_also_behind_an_unfinished_one(in_order: bool) -> None:
    splits = [_split("slow"), *(_split(f"file-{n}") for n in range(50))]
    line = Line(splits, in_order=in_order)
    _plan(line)
    first = _start_next(line, 1)
    for _ in range(50):
        _plan(line)
        slot = _start_next(line, 1)
        line.ended(slot, slot.units[0])
        del slot
    gc.collect()
    assert [kept for kept in gc.get_objects() if isinstance(kept, FileSlot)] == [first]


def test_closing_ends_the_plan() -> None:
    ended = []

    def plan() -> Iterator[Split]:
        try:
            yield _split("a")
            yield _split("b")
        finally:
            ended.append(True)

    line = Line(plan(), in_order=True)
    _plan(line)
    line.close()
    assert ended
