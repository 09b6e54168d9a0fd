"""Many streams become one, in order or as they come, inside the byte budget.

Worker threads decode units (files, or runs of row groups) in plan order and put finished batches
into their unit's queue. The consumer takes from the first unfinished file only (`TaskOrder`), or
from any file (`ArrivalOrder`); within a file always in row order. Every queued batch, every open
decoder and every step under way is on lease from the budget, so that a slow consumer stops the
workers, and workers run ahead exactly as far as the limit allows.

The unit at the head of the line never waits for bytes while its queue is empty: the consumer would
otherwise wait for a batch whose room is taken by batches that come later. With `ArrivalOrder` the
file at the head may be slow to answer. So any unit may go on without waiting when the consumer has
no batch to take and no worker is decoding one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

import pyarrow as pa

from icestream.machine import cores, join_started
from icestream.memory import Lease, MemoryBudget
from icestream.read.deletes import DeletedPositions
from icestream.read.files import RetryPolicy
from icestream.read.line import FileSlot, Line, UnitSlot
from icestream.read.order import ArrivalOrder, Order, most_streams
from icestream.read.prefetch import Fetcher
from icestream.read.sizing import Estimate, Sizing, StepSizing, refuse_beyond
from icestream.read.split import Split
from icestream.read.stream import Step, UnitStream
from icestream.read.units import Counters, Environment, OpenFile
from icestream.report import ScanReport


class BatchMerge:
    """Reads splits with several threads and hands out one batch at a time.

    Args:
        splits: What to read, in plan order; taken one by one, while others are read already.
        budget: Where every byte held is charged.
        order: How batches are ordered.
        batch_rows: The most rows in a batch.
        policy: Retries.
        stopped: Set when nothing more is to be read; planning may wait for it, too.
    """

    def __init__(
        self,
        splits: Iterable[Split],
        *,
        budget: MemoryBudget,
        order: Order,
        batch_rows: int,
        policy: RetryPolicy,
        stopped: threading.Event | None = None,
    ) -> None:
        arrival = order if isinstance(order, ArrivalOrder) else None
        self._line = Line(splits, in_order=arrival is None)
        self._budget = budget
        self._order = order
        self._arriving = arrival is not None
        self._most_buffered = arrival.max_buffered_batches if arrival is not None else None
        self._share = budget.share()
        self._entering = threading.Lock()
        self._closing = threading.Lock()
        self._entered = False
        self._held_before = self._share.held_otherwise_bytes
        self._stopped = stopped if stopped is not None else threading.Event()
        counters = Counters()
        self._environment = Environment(
            share=self._share,
            sizing=Sizing(self._share.part_bytes, batch_rows),
            policy=policy,
            deletes=DeletedPositions(budget, policy, self._stopped, counters.retries.add),
            fetcher=Fetcher(),
            counters=counters,
            stopped=self._stopped,
        )
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._turn: tuple[int, int] | None = None
        self._decoding = 0
        self._stepping = 0
        self._peak_streams = 0
        self._promised = 0
        self._delivered: Lease | None = None
        self._started_at = time.perf_counter()
        self._ended_at: float | None = None
        self._first_batch_at: float | None = None
        self._rows = self._batches = self._bytes = 0
        self._finished = False

    def next(self) -> pa.RecordBatch | None:
        """The next batch, or None at the end.

        Raises:
            IcestreamError: The first error of any worker, once; nothing is read after it.
        """
        self._share.consumed()
        if not self._threads and not self._line.drained:
            self._start_worker(1)
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                item = self._line.pop()
                if item is not None:
                    self._changed.notify_all()  # a place in the buffer, perhaps a new head
                    break
                if self._line.drained or self._stopped.is_set():
                    break
                # Looking for a batch may have moved the head of the line: whoever is there now need
                # not wait any longer, neither for bytes nor for a place in the buffer.
                self._budget.wake()
                self._changed.notify_all()
                self._changed.wait()
        self._let_go()
        if item is None:
            self._finished = not self._stopped.is_set()
            return None
        batch, self._delivered = item
        # The head of the line may have changed, and with it who need not wait.
        self._budget.wake()
        self._rows += batch.num_rows
        self._batches += 1
        self._bytes += self._delivered.held_bytes
        if self._first_batch_at is None:
            self._first_batch_at = time.perf_counter()
        return batch

    def finish_early(self, rows_cut: int) -> None:
        """A limit was reached: the scan is complete, without so many rows of its last batch."""
        self._finished = True
        self._rows -= rows_cut

    def close(self) -> None:
        """Stop the workers, wait for them, close files, give every byte back."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        self._budget.wake()
        join_started(self._threads)
        with self._closing:  # The consumer and whoever closes the scan may both come here.
            self._environment.fetcher.close()  # before the files that it reads
            self._let_go()
            self._line.close()
            self._environment.deletes.close()
            self._share.close()
            if self._ended_at is None:
                self._ended_at = time.perf_counter()

    def report(self) -> ScanReport:
        """What has happened so far."""
        counters = self._environment.counters
        ended = self._ended_at if self._ended_at is not None else time.perf_counter()
        first = self._first_batch_at
        return ScanReport(
            rows=self._rows,
            batches=self._batches,
            bytes=self._bytes,
            files=counters.opened.value,
            files_planned=counters.planned.value,
            row_groups_skipped=counters.row_groups_skipped.value,
            retries=counters.retries.value,
            seconds=ended - self._started_at,
            seconds_to_first_batch=None if first is None else first - self._started_at,
            peak_bytes_held=self._budget.peak_bytes,
            memory_limit_bytes=self._budget.limit_bytes,
            streams=self._peak_streams,
            finished=self._finished,
        )

    def _let_go(self) -> None:
        """The batch before has left the account: its consumer has asked for the next one."""
        if self._delivered is not None:
            self._delivered.release()
            self._delivered = None

    # The workers' side.

    def _start_worker(self, most: int) -> None:
        """One more worker, unless there are so many already or the scan is stopped."""
        with self._changed:
            if len(self._threads) >= most or self._stopped.is_set():
                return
            name = f"icestream-read-{len(self._threads)}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            self._line.ahead = max(1, len(self._threads) - 1)
        thread.start()

    def _work(self) -> None:
        try:
            while (task := self._take()) is not None:
                slot, unit = task
                if slot is None:
                    self._plan()
                    continue
                # Each worker that has something to do starts the next, before it gets to I/O that
                # may take long: the first file must not hold the others back.
                self._start_worker(self._most_workers(slot))
                if unit is None:
                    self._open(slot)
                else:
                    self._run(slot, unit)
        except BaseException as error:
            with self._changed:
                if not self._stopped.is_set():  # what fails after a stop is of no interest
                    self._error = error
                self._stopped.set()
                self._changed.notify_all()
            self._budget.wake()

    def _take(self) -> tuple[FileSlot | None, UnitSlot | None] | None:
        """The next file to open or unit to decode, in plan order; None when there is none left.

        Without a file, the next split of the plan is to be put into the line.
        """
        with self._changed:
            while not self._stopped.is_set():
                if len(self._threads) > 1 and self._line.wants_split():
                    return None, None
                task = self._line.take()
                if task is not None:
                    return task
                if self._line.wants_split():
                    return None, None
                if not self._line.more_to_come:
                    return None
                self._changed.wait()
            return None

    def _most_workers(self, slot: FileSlot) -> int:
        """As many as there are streams worth having, among all scans on this budget."""
        least = 2 if self._arriving else 1
        most = most_streams(self._order, slot.split.path)
        return min(most, max(least, most // self._share.users))

    def _plan(self) -> None:
        split = self._line.next_split()
        if split is not None:
            self._environment.counters.planned.add(split)
        with self._changed:
            self._line.add(split)
            self._turn = self._line.turn()
            self._changed.notify_all()

    def _open(self, slot: FileSlot) -> None:
        file = OpenFile(slot.split, self._environment)
        slot.file = file
        units = file.units(lambda: self._line.is_first(slot))
        if not units:
            slot.close()
        with self._changed:
            self._line.opened(slot, units)
            self._turn = self._line.turn()
            self._changed.notify_all()
        self._budget.wake()

    def _run(self, slot: FileSlot, unit: UnitSlot) -> None:
        work = unit.unit
        assert work is not None
        layout = work.layout
        estimate, ahead = layout.estimate, layout.prefetch_bytes
        needed = estimate.least_bytes + ahead + self._held_before
        refuse_beyond(self._share.limit_bytes, needed, work.file.split.path)
        if not self._enter(estimate, ahead):
            return
        fixed = self._acquire_fixed(slot, unit, estimate, ahead)
        if fixed is None:
            return
        stream = UnitStream(work)
        try:
            self._decode(slot, unit, estimate, stream, fixed)
        finally:
            stream.close()
            fixed.release()
            unit.unit = None
            with self._changed:
                self._decoding -= 1
                last = slot.unit_decoded()
            self._budget.wake()  # Whoever waits to be opened may be alone now.
            if last:
                slot.close()

    def _acquire_fixed(
        self, slot: FileSlot, unit: UnitSlot, estimate: Estimate, ahead: int
    ) -> Lease | None:
        """Wait until the stream fits with a step and its batch.

        Streams are opened in plan order: a later one in the place of the one that the consumer
        comes to next would have that one overdraw. If batches are taken as they come, others that
        decode will make room.
        """
        assert slot.units is not None
        taken = estimate.fixed_bytes + ahead
        place = (slot.number, slot.units.index(unit))

        def has_turn() -> bool:
            return self._turn is None or place <= self._turn

        def privileged() -> bool:
            if self._arriving:
                return self._decoding == 0 and self._line.buffered_batches == 0 and has_turn()
            return self._line.is_next(slot, unit)

        lease = self._share.acquire(
            taken,
            privileged=privileged,
            cancelled=self._stopped.is_set,
            ready=has_turn,
            spare_bytes=self._environment.sizing.needed_bytes(estimate, ahead) - taken,
        )
        with self._changed:
            unit.opened = True
            self._turn = self._line.turn()
            if lease is not None:
                self._decoding += 1
                self._peak_streams = max(self._peak_streams, self._decoding)
        self._budget.wake()
        return lease

    def _enter(self, estimate: Estimate, ahead: int) -> bool:
        """The first unit says what this scan needs: wait until there is room beside other scans."""
        sizing = self._environment.sizing
        with self._entering:
            if not self._entered:
                needed = min(sizing.needed_bytes(estimate, ahead), self._share.limit_bytes)
                if not self._share.enter(needed, self._stopped.is_set):
                    return False
                sizing.plan_with(self._share.part_bytes)
                self._share.reserve_bytes = sizing.reserve_bytes(estimate, ahead)
                self._entered = True
        return not self._stopped.is_set()

    def _decode(
        self,
        slot: FileSlot,
        unit: UnitSlot,
        estimate: Estimate,
        stream: UnitStream,
        fixed: Lease,
    ) -> None:
        sizing = StepSizing(self._environment.sizing, estimate)
        fixed_bytes = fixed.held_bytes
        while not self._stopped.is_set():
            rows = sizing.next_rows(max(self._share.open_bytes, self._share.reserve_bytes))
            if not self._wait_for_a_place(slot, unit):
                return
            lease = self._acquire(sizing.step_bytes(rows), slot, unit)
            if lease is None:
                return
            try:
                step = self._step(stream, rows, sizing.target_bytes())
                if step is None:
                    lease.release()
                    break
                sizing.learn(step.rows, step.decoded_bytes)
                self._put(unit, step, fixed, fixed_bytes, lease)
                del step
            except BaseException:
                lease.release()
                raise
            finally:
                self._give_place_back()
        rest = stream.flush()
        # Before the next unit is at the head of the line, and takes what it needs without waiting.
        stream.close()
        fixed.release()
        with self._changed:
            for batch in rest:
                self._line.put(unit, batch, self._lease_for(batch))
            self._line.ended(slot, unit)
            self._changed.notify_all()
        self._budget.wake()  # the head of the line may have moved

    def _step(self, stream: UnitStream, rows: int, most_bytes: int) -> Step | None:
        """One step; its columns are decoded in parallel while other cores have nothing to do."""
        with self._changed:
            self._stepping += 1
            use_threads = self._stepping < cores()
        try:
            return stream.step(rows, use_threads, most_bytes)
        finally:
            with self._changed:
                self._stepping -= 1

    def _put(
        self, unit: UnitSlot, step: Step, fixed: Lease, fixed_bytes: int, lease: Lease
    ) -> None:
        """Queue what a step delivered; its lease goes over to the first batch, at its real size."""
        fixed.resize(fixed_bytes + step.waiting_bytes)
        if not step.batches:
            lease.release()
            return
        lease.resize(step.batches[0].get_total_buffer_size())
        with self._changed:
            self._line.put(unit, step.batches[0], lease)
            for batch in step.batches[1:]:
                self._line.put(unit, batch, self._lease_for(batch))
            self._changed.notify_all()

    def _lease_for(self, batch: pa.RecordBatch) -> Lease:
        return self._share.force(batch.get_total_buffer_size())

    def _acquire(self, wanted: int, slot: FileSlot, unit: UnitSlot) -> Lease | None:
        def privileged() -> bool:
            if self._line.is_next(slot, unit):
                return True
            return self._arriving and self._line.buffered_batches == 0 and self._stepping == 0

        return self._share.acquire(wanted, privileged=privileged, cancelled=self._stopped.is_set)

    def _wait_for_a_place(self, slot: FileSlot, unit: UnitSlot) -> bool:
        """Wait while as many batches are buffered as the caller allows; False when stopped."""
        if self._most_buffered is None:
            return not self._stopped.is_set()
        with self._changed:
            while (
                self._line.buffered_batches + self._promised >= self._most_buffered
                and not self._line.is_next(slot, unit)
                and not self._stopped.is_set()
            ):
                self._changed.wait()
            self._promised += 1
        return not self._stopped.is_set()

    def _give_place_back(self) -> None:
        if self._most_buffered is not None:
            with self._changed:
                self._promised -= 1
                self._changed.notify_all()
