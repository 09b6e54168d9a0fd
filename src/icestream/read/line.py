"""The line of files and units in plan order, with the batches that wait in it for the consumer.

It has no lock of its own: whoever calls holds the lock of the merge. `is_next` alone is asked under
the budget's lock as well, and reads plain attributes only.

The head of the line is the unit whose next batch the consumer waits for. `pop` and `opened` may
move it, so whoever calls them wakes everybody who waits because they were not at the head.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

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
        done: Whether no more batches will come.
    """

    unit: Unit | None
    queue: deque[tuple[pa.RecordBatch, Lease]] = field(default_factory=deque)
    done: bool = False


@dataclass(slots=True, eq=False)
class FileSlot:
    """A split's place in the line.

    Attributes:
        split: What is read.
        opening: Whether a worker has taken it to open it.
        file: While it is open.
        units: Known once its metadata has been read.
        started: Units that workers have taken.
        decoded: Units that workers are done with.
        head: The unit that the consumer has come to.
    """

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
        while self.head < len(self.units):
            unit = self.units[self.head]
            if unit.queue:
                item = unit.queue.popleft()
                if unit.done and not unit.queue:
                    self.head += 1
                return item
            if not unit.done:
                return None
            self.head += 1
        return None

    def close(self) -> None:
        """Close the file, if it is open."""
        if self.file is not None:
            file, self.file = self.file, None
            file.close()


class Line:
    """What is to be read, in plan order, and how far workers and consumer have come.

    Args:
        splits: What to read, in plan order.
        in_order: Whether the consumer takes from the first unfinished file only.
    """

    def __init__(self, splits: Sequence[Split], *, in_order: bool) -> None:
        self.buffered_batches = 0
        self._files = [FileSlot(split) for split in splits]
        self._in_order = in_order
        self._first = 0

    @property
    def drained(self) -> bool:
        """Whether the consumer has had every batch."""
        return self._first == len(self._files)

    @property
    def opening(self) -> bool:
        """Whether a file is being opened, so that there may be more units to take soon."""
        return any(slot.opening and slot.units is None for slot in self._unfinished())

    def take(self) -> tuple[FileSlot, UnitSlot | None] | None:
        """For a worker: the next file to open, or unit of a file to decode; None if there is none.

        While `opening`, there may be one later.
        """
        for slot in self._unfinished():
            if slot.units is None:
                if not slot.opening:
                    slot.opening = True
                    return slot, None
            elif slot.started < len(slot.units):
                slot.started += 1
                return slot, slot.units[slot.started - 1]
        return None

    def opened(self, slot: FileSlot, units: Sequence[Unit]) -> None:
        """A file's units are known. The head of the line may move: wake those who wait."""
        slot.units = [UnitSlot(unit) for unit in units]
        self._advance()

    def put(self, unit: UnitSlot, batch: pa.RecordBatch, lease: Lease) -> None:
        """Queue a finished batch of a unit."""
        unit.queue.append((batch, lease))
        self.buffered_batches += 1

    def pop(self) -> tuple[pa.RecordBatch, Lease] | None:
        """For the consumer: the next batch, or None while there is none.

        Either way the head of the line may move: wake those who wait.
        """
        item = self._pop()
        if item is not None:
            self.buffered_batches -= 1
        self._advance()
        return item

    def is_next(self, slot: FileSlot, unit: UnitSlot) -> bool:
        """Whether the consumer can go on with nothing but this unit's next batch."""
        return (
            not unit.queue
            and self._first < len(self._files)
            and self._files[self._first] is slot
            and slot.units is not None
            and slot.head < len(slot.units)
            and slot.units[slot.head] is unit
        )

    def close(self) -> None:
        """Give back what waits in the queues, and close every file."""
        for slot in self._files:
            for unit in slot.units or ():
                for _, lease in unit.queue:
                    lease.release()
                unit.queue.clear()
            slot.close()

    def _pop(self) -> tuple[pa.RecordBatch, Lease] | None:
        unfinished: set[str] = set()
        for slot in self._unfinished():
            # Parts of one file may come as splits of their own: rows keep their order all the same.
            item = slot.pop() if slot.split.path not in unfinished else None
            if item is not None:
                return item
            if slot.units is None and not slot.opening:
                return None
            if not slot.drained:
                if self._in_order:
                    return None
                unfinished.add(slot.split.path)
        return None

    def _unfinished(self) -> Iterator[FileSlot]:
        return islice(self._files, self._first, None)

    def _advance(self) -> None:
        while self._first < len(self._files) and self._files[self._first].drained:
            self._first += 1
