"""Merge many streams into one, in plan order or arrival order, within the byte budget.

Worker threads decode units (files, or runs of row groups) in plan order and put finished batches
into the queue of their unit. The consumer takes batches only from the first unfinished file
(`TaskOrder`) or from any file (`ArrivalOrder`), and within a file always in row order. All queued
batches, open decoders and running steps are leased from the budget. So a slow consumer stops the
workers, and the workers run ahead as far as the limit allows.

The unit at the head of the line never waits for bytes while its queue is empty. Otherwise later
batches could take the memory of the batch that the consumer waits for. With `ArrivalOrder` the
storage may be slow for the file at the head. So any unit may continue without waiting if the
consumer has no batch to take and no worker is decoding one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from icestream.memory.budget import Lease, MemoryBudget
from icestream.memory.machine import cores, join_started
from icestream.read.decode.files import RetryPolicy
from icestream.read.decode.prefetch import Fetcher
from icestream.read.decode.sizing import Estimate, Sizing, StepSizing, refuse_beyond
from icestream.read.deletes.delete_files import DeletedPositions
from icestream.read.deliver.at_exit import close_at_exit
from icestream.read.deliver.file_queue import FileSlot, Line, UnitSlot
from icestream.read.deliver.stream import Step, UnitStream
from icestream.read.deliver.units import Counters, Environment, OpenFile
from icestream.read.order import ArrivalOrder, Order, most_streams
from icestream.read.project.reshape import Reshaper
from icestream.read.split import Split
from icestream.report.scan_report import ScanReport


class BatchMerge:
    """Reads splits with several threads and returns one batch at a time.

    Args:
        splits: The splits in plan order. They are taken one by one while others are read.
        budget: The budget for all bytes that are held.
        order: The order of batches.
        batch_rows: Maximum number of rows in a batch.
        policy: The policy for retries.
        stopped: Set to stop reading. Planning may wait for it, too.
        reshaper: The masks and the transform of the scan. The caller closes it.
    """

    def __init__(
        self,
        splits: Iterable[Split],
        *,
        budget: MemoryBudget,
        order: Order,
        batch_rows: int,
        policy: RetryPolicy,
        stopped: threading.Event,
        reshaper: Reshaper | None = None,
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
        self._stopped = stopped
        counters = Counters()
        self._environment = Environment(
            share=self._share,
            sizing=Sizing(self._share.part_bytes, batch_rows),
            policy=policy,
            deletes=DeletedPositions(budget, policy, self._stopped, counters.retries.add),
            fetcher=Fetcher(),
            counters=counters,
            stopped=self._stopped,
            reshaper=reshaper,
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
            IcestreamError: The first error of any worker. Nothing is read after it.
        """
        self._share.consumed()
        if not self._threads and not self._line.drained:
            close_at_exit(self)
            self._start_worker(1)
        with self._changed:
            while True:
                if self._error is not None:
                    raise self._error
                item = self._line.pop()
                if item is not None:
                    self._changed.notify_all()  # A place is free, and the head may be new.
                    break
                if self._line.drained or self._stopped.is_set():
                    break
                # `pop` may have moved the head of the line. The unit at the new head need not wait
                # for bytes or for a place in the buffer.
                self._budget.wake()
                self._changed.notify_all()
                self._changed.wait()
        self._let_go()
        if item is None:
            self._finished = not self._stopped.is_set()
            return None
        batch, self._delivered = item
        # The unit at the new head of the line need not wait.
        self._budget.wake()
        self._rows += batch.num_rows
        self._batches += 1
        self._bytes += self._delivered.held_bytes
        if self._first_batch_at is None:
            self._first_batch_at = time.perf_counter()
        return batch

    def finish_early(self, rows_cut: int) -> None:
        """Complete the scan at its row limit, without `rows_cut` rows of the last batch."""
        self._finished = True
        self._rows -= rows_cut

    def close(self) -> None:
        """Stop the workers, wait for them, close all files and release all bytes."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        self._budget.wake()
        join_started(self._threads)
        # Two threads may call this: the consumer, and one that closes the scan.
        with self._closing:
            self._environment.fetcher.close()  # Close it before the files that it reads.
            self._let_go()
            self._line.close()
            self._environment.deletes.close()
            self._share.close()
            if self._ended_at is None:
                self._ended_at = time.perf_counter()

    def report(self) -> ScanReport:
        """The report of the scan so far."""
        counters = self._environment.counters
        ended = self._ended_at if self._ended_at is not None else time.perf_counter()
        first = self._first_batch_at
        return ScanReport(
            rows=self._rows,
            batches=self._batches,
            bytes=self._bytes,
            files=counters.opened.value,
            compressed_bytes=counters.opened.bytes,
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
        """Release the previous batch, because the consumer has asked for the next one."""
        if self._delivered is not None:
            self._delivered.release()
            self._delivered = None

    # Called by the workers.

    def _start_worker(self, most: int) -> None:
        """Start another worker, unless there are `most` of them or the scan is stopped."""
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
                # Each worker with work starts the next one before its own I/O, which may take long.
                # Otherwise the first file would delay the others.
                self._start_worker(self._most_workers(slot))
                if unit is None:
                    self._open(slot)
                else:
                    self._run(slot, unit)
        except BaseException as error:
            with self._changed:
                if not self._stopped.is_set():  # Errors after a stop are ignored.
                    self._error = error
                self._stopped.set()
                self._changed.notify_all()
            self._budget.wake()

    def _take(self) -> tuple[FileSlot | None, UnitSlot | None] | None:
        """The next file to open or unit to decode, in plan order; None at the end.

        Without a file, the worker adds the next split of the plan to the line.
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
        """Maximum number of workers, considering all scans that share the budget."""
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
            self._budget.wake()  # A unit that waits to be opened may be the only one now.
            if last:
                slot.close()

    def _acquire_fixed(
        self, slot: FileSlot, unit: UnitSlot, estimate: Estimate, ahead: int
    ) -> Lease | None:
        """Wait until the stream fits with a step and its batch.

        Streams are opened in plan order. If a later stream took the bytes of the one that the
        consumer needs next, that one would exceed the limit. With `ArrivalOrder`, other streams
        release bytes as their batches are taken.
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
        """Wait until the scan fits next to other scans. The first unit defines its minimum."""
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
        if self._environment.reshaper is not None:  # Its results may be larger than its input.
            estimate = replace(estimate, surprising=True)
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
        # Release bytes before the next unit becomes the head and takes its bytes without waiting.
        stream.close()
        fixed.release()
        with self._changed:
            for batch in rest:
                self._line.put(unit, batch, self._lease_for(batch))
            self._line.ended(slot, unit)
            self._changed.notify_all()
        self._budget.wake()  # The head of the line may have moved.

    def _step(self, stream: UnitStream, rows: int, most_bytes: int) -> Step | None:
        """Run one step. Its columns are decoded in parallel while other cores are idle."""
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
        """Queue the batches of a step. The first one takes over its lease, at the real size."""
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
        """Wait while the maximum number of batches is buffered; False if stopped."""
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
