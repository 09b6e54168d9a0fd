"""The line of files and units in plan order, with the batches that wait in it for the consumer.

Splits come from an iterator while others are read already: a worker that finds too few of them in
the line takes the next one from the plan. A file leaves the line as soon as the consumer has had
its last batch, so that the line's size does not depend on the number of files.

It has no lock of its own: whoever calls holds the lock of the merge. Three methods are the
exception: `next_split`, which may read metadata and is called by one worker at a time without any
lock, and `is_first` and `is_next`, which are asked under the budget's lock as well, as is
`buffered_batches`: they read plain attributes only.

The head of the line is the unit whose next batch the consumer waits for. `pop`, `opened` and
`ended` may move it, so whoever calls them wakes everybody who waits because they were not at the
head.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from icestream.memory import Lease
from icestream.read.split import Split
from icestream.read.units import OpenFile, Unit


@dataclass(slots=True, eq=False)
class UnitSlot:
    """A unit's place in the line, and its finished batches.

    Attributes:
        unit: None once it is decoded: it holds the file's footer.
        queue: Batches that wait for the consumer, each on lease.
        opened: Whether its stream has the bytes that it holds between steps.
        done: Whether no more batches will come.
    """

    unit: Unit | None
    queue: deque[tuple[pa.RecordBatch, Lease]] = field(default_factory=deque)
    opened: bool = False
    done: bool = False


@dataclass(slots=True, eq=False)
class FileSlot:
    """A split's place in the line.

    Attributes:
        number: Its place in plan order.
        split: What is read.
        opening: Whether a worker has taken it to open it.
        file: While it is open.
        units: Known once its metadata has been read.
        started: Units that workers have taken.
        decoded: Units that workers are done with.
        head: The unit that the consumer has come to.
    """

    number: int
    split: Split
    opening: bool = False
    file: OpenFile | None = None
    units: list[UnitSlot] | None = None
    started: int = 0
    decoded: int = 0
    head: int = 0

    @property
    def drained(self) -> bool:
        """Whether the consumer has had every batch of it."""
        return self.units is not None and self.head == len(self.units)

    def unit_decoded(self) -> bool:
        """A worker is done with one more unit: whether it was the last."""
        self.decoded += 1
        return self.units is not None and self.decoded == len(self.units)

    def pop(self) -> tuple[pa.RecordBatch, Lease] | None:
        """Take the next batch in row order; None while there is none, or at the end."""
        if self.units is None:
            return None
        self.advance()
        if self.drained or not self.units[self.head].queue:
            return None
        item = self.units[self.head].queue.popleft()
        self.advance()
        return item

    def advance(self) -> None:
        """Leave units behind that are done and have no batch left."""
        assert self.units is not None
        while not self.drained:
            unit = self.units[self.head]
            if unit.queue or not unit.done:
                return
            self.head += 1

    def close(self) -> None:
        """Close the file, if it is open."""
        if self.file is not None:
            file, self.file = self.file, None
            file.close()


class Line:
    """What is to be read, in plan order, and how far workers and consumer have come.

    Args:
        splits: What to read, in plan order. If it has a method `close`, that is called at the end.
        in_order: Whether the consumer takes from the first unfinished file only.

    Attributes:
        ahead: How many files that nobody has opened yet are kept in the line, if the plan has them.
        buffered_batches: Batches that wait for the consumer.

    Memory: the unfinished files, and `ahead` more.
    """

    def __init__(self, splits: Iterable[Split], *, in_order: bool) -> None:
        self.ahead = 1
        self.buffered_batches = 0
        self._source = splits
        self._splits = iter(splits)
        self._in_order = in_order
        self._planned = False
        self._planning = False
        self._count = 0
        self._files: OrderedDict[int, FileSlot] = OrderedDict()
        self._unopened: deque[FileSlot] = deque()
        self._opening = 0
        self._undecoded: list[tuple[int, FileSlot]] = []
        self._head: FileSlot | None = None

    @property
    def drained(self) -> bool:
        """Whether the consumer has had every batch."""
        return self._planned and not self._files

    @property
    def more_to_come(self) -> bool:
        """Whether a worker plans or opens a file, so that there may be more to take soon."""
        return self._planning or self._opening > 0

    def wants_split(self) -> bool:
        """For a worker: whether it is to take the next split from the plan.

        If so, the worker calls `next_split`, without the lock, and then `add`.
        """
        if self._planned or self._planning or len(self._unopened) >= self.ahead:
            return False
        self._planning = True
        return True

    def next_split(self) -> Split | None:
        """Take the next split from the plan, which may read metadata; None at the end."""
        return next(self._splits, None)

    def add(self, split: Split | None) -> None:
        """Put a split at the end of the line; None says that there are no more."""
        self._planning = False
        if split is None:
            self._planned = True
            return
        slot = FileSlot(self._count, split)
        self._count += 1
        self._files[slot.number] = slot
        self._unopened.append(slot)
        if self._head is None:
            self._head = slot

    def take(self) -> tuple[FileSlot, UnitSlot | None] | None:
        """For a worker: the next file to open, or unit of a file to decode; None if there is none.

        While `more_to_come`, there may be one later.
        """
        # Files are opened in plan order: those that are open come before those that are not.
        if self._undecoded:
            slot = self._undecoded[0][1]
            assert slot.units is not None
            slot.started += 1
            if slot.started == len(slot.units):
                heapq.heappop(self._undecoded)
            return slot, slot.units[slot.started - 1]
        if self._unopened:
            slot = self._unopened.popleft()
            slot.opening = True
            self._opening += 1
            return slot, None
        return None

    def opened(self, slot: FileSlot, units: Sequence[Unit]) -> None:
        """A file's units are known. The head of the line may move: wake those who wait."""
        slot.units = [UnitSlot(unit) for unit in units]
        self._opening -= 1
        if units:
            heapq.heappush(self._undecoded, (slot.number, slot))
        self._leave_if_drained(slot)

    def put(self, unit: UnitSlot, batch: pa.RecordBatch, lease: Lease) -> None:
        """Queue a finished batch of a unit."""
        unit.queue.append((batch, lease))
        self.buffered_batches += 1

    def ended(self, slot: FileSlot, unit: UnitSlot) -> None:
        """No more batches of a unit will come. The head may move: wake those who wait."""
        unit.done = True
        slot.advance()
        self._leave_if_drained(slot)

    def pop(self) -> tuple[pa.RecordBatch, Lease] | None:
        """For the consumer: the next batch, or None while there is none.

        Either way the head of the line may move: wake those who wait.
        """
        slot, item = self._pop()
        if slot is not None:
            self.buffered_batches -= 1
            self._leave_if_drained(slot)
        return item

    def turn(self) -> tuple[int, int] | None:
        """The first unit in plan order whose stream is not open: its file's number, and its own.

        A file that is still being opened has its turn, too, unless batches are taken as they come.
        """
        for slot in self._files.values():
            if slot.units is None:
                if self._in_order:
                    return slot.number, 0
                continue
            for number in range(slot.head, len(slot.units)):
                if not slot.units[number].opened:
                    return slot.number, number
        return None

    def is_first(self, slot: FileSlot) -> bool:
        """Whether the consumer can go on with nothing but this file."""
        return self._head is slot

    def is_next(self, slot: FileSlot, unit: UnitSlot) -> bool:
        """Whether the consumer can go on with nothing but this unit's next batch."""
        return (
            not unit.queue
            and self._head is slot
            and slot.units is not None
            and slot.head < len(slot.units)
            and slot.units[slot.head] is unit
        )

    def close(self) -> None:
        """Give back what waits in the queues, close every file, and end the plan."""
        for slot in self._files.values():
            for unit in slot.units or ():
                for _, lease in unit.queue:
                    lease.release()
                unit.queue.clear()
            slot.close()
        close = getattr(self._source, "close", None)
        if close is not None:
            close()

    def _pop(self) -> tuple[FileSlot, tuple[pa.RecordBatch, Lease]] | tuple[None, None]:
        unfinished: set[str] = set()
        for slot in self._files.values():
            # Parts of one file may come as splits of their own: rows keep their order all the same.
            item = slot.pop() if slot.split.path not in unfinished else None
            if item is not None:
                return slot, item
            if self._in_order or not slot.opening:
                break
            unfinished.add(slot.split.path)
        return None, None

    def _leave_if_drained(self, slot: FileSlot) -> None:
        if slot.drained:
            self._files.pop(slot.number, None)
            if self._head is slot:
                self._head = next(iter(self._files.values()), None)
