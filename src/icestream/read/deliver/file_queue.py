"""The line: files and units in plan order, with the batches that wait for the consumer.

Splits come from an iterator while others are read. If the line has too few splits, a worker takes
the next one from the plan. A file leaves the line when the consumer has taken its last batch, so
the size of the line does not depend on the number of files.

The line has no lock. Callers hold the lock of `BatchMerge`, with these exceptions: one worker at a
time calls `next_split` without a lock, because it may read metadata. `is_first`, `is_next` and
`buffered_batches` are also used under the budget's lock. They only read plain attributes.

The head of the line is the unit whose next batch the consumer waits for. `pop`, `opened` and
`ended` may move it. Their callers then wake the threads that wait because they were not at the
head.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from icestream.memory.budget import Lease
from icestream.read.deliver.units import OpenFile, Unit
from icestream.read.split import Split


@dataclass(slots=True, eq=False)
class UnitSlot:
    """A unit's place in the line, and its finished batches.

    Attributes:
        unit: The unit. None after decoding, because a unit holds the file's footer.
        queue: Batches that wait for the consumer, each with its lease.
        opened: Whether the fixed bytes of its stream are leased.
        done: Whether all batches are in the queue or taken.
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
        split: The split to read.
        opening: Whether a worker has started to open it.
        file: The file, while it is open.
        units: The units, after the metadata has been read.
        started: Number of units that workers have taken.
        decoded: Number of units that workers have finished.
        head: Index of the unit that the consumer reads next.
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
        """Whether the consumer has taken all batches of the file."""
        return self.units is not None and self.head == len(self.units)

    def unit_decoded(self) -> bool:
        """Count a finished unit. Returns whether it was the last."""
        self.decoded += 1
        return self.units is not None and self.decoded == len(self.units)

    def pop(self) -> tuple[pa.RecordBatch, Lease] | None:
        """Take the next batch in row order; None if it is not ready, or at the end."""
        if self.units is None:
            return None
        self.advance()
        if self.drained or not self.units[self.head].queue:
            return None
        item = self.units[self.head].queue.popleft()
        self.advance()
        return item

    def advance(self) -> None:
        """Skip units that are done and have no batch left."""
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
    """Files to read in plan order, with the progress of workers and consumer.

    Args:
        splits: The splits in plan order. Its method `close`, if any, is called at the end.
        in_order: Whether the consumer takes batches only from the first unfinished file.

    Attributes:
        ahead: Number of unopened files to keep in the line.
        buffered_batches: Number of batches that wait for the consumer.

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
        """Whether the consumer has taken all batches."""
        return self._planned and not self._files

    @property
    def more_to_come(self) -> bool:
        """Whether a worker plans or opens a file, so that more work may follow."""
        return self._planning or self._opening > 0

    def wants_split(self) -> bool:
        """For a worker: whether to take the next split from the plan.

        If so, the worker calls `next_split` without the lock, and then `add`.
        """
        if self._planned or self._planning or len(self._unopened) >= self.ahead:
            return False
        self._planning = True
        return True

    def next_split(self) -> Split | None:
        """Take the next split from the plan, which may read metadata; None at the end."""
        return next(self._splits, None)

    def add(self, split: Split | None) -> None:
        """Add a split to the end of the line. None marks the end of the plan."""
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
        """For a worker: the next file to open, or the next unit to decode; None if there is none.

        If `more_to_come`, there may be one later.
        """
        # Files are opened in plan order, so open files come before unopened ones.
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
        """Set the units of an opened file. The head may move: wake the threads that wait."""
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
        """Mark a unit as done. The head may move: wake the threads that wait."""
        unit.done = True
        slot.advance()
        self._leave_if_drained(slot)

    def pop(self) -> tuple[pa.RecordBatch, Lease] | None:
        """For the consumer: the next batch, or None if it is not ready.

        In both cases the head may move: wake the threads that wait.
        """
        slot, item = self._pop()
        if slot is not None:
            self.buffered_batches -= 1
            self._leave_if_drained(slot)
        return item

    def turn(self) -> tuple[int, int] | None:
        """The first unit in plan order whose stream is not open, as file number and unit number.

        If batches are taken in order, this may be a file that is still being opened.
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
        """Whether the consumer can continue only with this file."""
        return self._head is slot

    def is_next(self, slot: FileSlot, unit: UnitSlot) -> bool:
        """Whether the consumer can continue only with this unit's next batch."""
        return (
            not unit.queue
            and self._head is slot
            and slot.units is not None
            and slot.head < len(slot.units)
            and slot.units[slot.head] is unit
        )

    def close(self) -> None:
        """Release all queued batches, close all files, and end the plan."""
        for slot in self._files.values():
            for unit in slot.units or ():
                for _, lease in unit.queue:
                    lease.release()
                unit.queue.clear()
            slot.close()
        for plan in (self._splits, self._source):  # The iterator may hold manifests.
            close = getattr(plan, "close", None)
            if close is not None:
                close()

    def _pop(self) -> tuple[FileSlot, tuple[pa.RecordBatch, Lease]] | tuple[None, None]:
        unfinished: set[str] = set()
        for slot in self._files.values():
            # Several splits may belong to one file, whose rows keep their order.
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
