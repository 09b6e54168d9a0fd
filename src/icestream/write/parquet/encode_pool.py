"""Threads that encode row groups."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from icestream.errors import WriterClosedError
from icestream.memory.budget import Lease
from icestream.memory.machine import join_started
from icestream.write.new_file import NewFile
from icestream.write.parquet.rolling_writer import RollingWriter


@dataclass(slots=True)
class _Task:
    work: Callable[[], None]
    release: Callable[[], None] = lambda: None


class EncodePool:
    """Runs writers on threads: the work of each writer in order, different writers in parallel.

    The first error ends all work: queued work is dropped, and every later call raises it. Threads
    start when there is work and end when there is none. A pool that is abandoned, for example
    because interrupts cut its clean-up short, therefore leaves no threads.

    Memory: at most `threads + 1` row groups wait or are encoded; `submit` blocks beyond that.

    Args:
        threads: Maximum number of threads.
    """

    def __init__(self, threads: int) -> None:
        self.threads = max(1, threads)
        self._changed = threading.Condition()
        self._queues: dict[RollingWriter, deque[_Task]] = {}
        self._ready: deque[RollingWriter] = deque()
        self._running: set[RollingWriter] = set()
        self._unfinished = 0
        self._error: BaseException | None = None
        self._closed = False
        self._active = 0
        self._started: list[threading.Thread] = []

    def submit(self, writer: RollingWriter, batches: Sequence[pa.RecordBatch], held: Lease) -> None:
        """Queue a row group. The lease is released when it was written or dropped.

        Drop the batches after this call, so that they are freed once they are written.

        Raises:
            Exception: The first error of earlier work, as it was.
        """
        group = list(batches)

        def write() -> None:
            writer.write_row_group(group)
            group.clear()

        self._submit(writer, _Task(write, held.release))

    def submit_close(self, writer: RollingWriter, closed: Callable[[list[NewFile]], None]) -> None:
        """Close the writer after its row groups; a thread calls `closed` with its files."""
        self._submit(writer, _Task(lambda: closed(writer.close())))

    def is_idle(self, writer: RollingWriter) -> bool:
        """Whether this writer has no queued or running work."""
        with self._changed:
            return writer not in self._queues

    def wait_idle(self, writers: Sequence[RollingWriter]) -> RollingWriter:
        """Wait until one of these writers is idle, and return it.

        Raises:
            Exception: The first error of earlier work, as it was.
        """
        with self._changed:
            while True:
                self._raise_error()
                for writer in writers:
                    if writer not in self._queues:
                        return writer
                self._changed.wait()

    def flush(self) -> None:
        """Wait for all work.

        Raises:
            Exception: The first error of it, as it was.
        """
        with self._changed:
            while self._unfinished and self._error is None:
                self._changed.wait()
            self._raise_error()

    def cancel(self) -> None:
        """Drop queued work and wait for running work. Errors are ignored."""
        with self._changed:
            self._drop_queued()
            while self._running:
                self._changed.wait()

    def close(self) -> None:
        """Drop queued work, and wait until the threads have ended."""
        with self._changed:
            self._closed = True
            self._drop_queued()
            self._changed.notify_all()
        join_started(self._started)

    def _submit(self, writer: RollingWriter, task: _Task) -> None:
        try:
            with self._changed:
                self._raise_error()
                while self._unfinished > self.threads:
                    self._changed.wait()
                    self._raise_error()
                self._enqueue(writer, task)
        except BaseException:
            task.release()
            raise

    def _enqueue(self, writer: RollingWriter, task: _Task) -> None:
        self._unfinished += 1
        if writer in self._queues:
            self._queues[writer].append(task)
        else:
            self._queues[writer] = deque([task])
            self._ready.append(writer)
        if len(self._ready) + len(self._running) > self._active < self.threads:
            worker = threading.Thread(target=self._work, name="icestream-encode", daemon=True)
            self._active += 1
            self._started = [each for each in self._started if each.is_alive()] + [worker]
            worker.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while (next_task := self._next()) is not None:
            writer, task = next_task
            error: BaseException | None = None
            try:
                task.work()
            except BaseException as raised:
                error = raised
            task.release()
            del task, next_task
            self._done(writer, error)
            del writer, error

    def _next(self) -> tuple[RollingWriter, _Task] | None:
        with self._changed:
            if not self._ready:
                self._active -= 1
                return None
            writer = self._ready.popleft()
            self._running.add(writer)
            return writer, self._queues[writer].popleft()

    def _done(self, writer: RollingWriter, error: BaseException | None) -> None:
        with self._changed:
            self._unfinished -= 1
            self._running.discard(writer)
            if error is not None and self._error is None:
                self._error = error
                self._drop_queued()
            if self._queues.get(writer):
                self._ready.append(writer)
            else:
                self._queues.pop(writer, None)
            self._changed.notify_all()

    def _drop_queued(self) -> None:
        for writer, queue in list(self._queues.items()):
            for task in queue:
                self._unfinished -= 1
                task.release()
            queue.clear()
            if writer not in self._running:
                del self._queues[writer]
        self._ready.clear()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closed:
            raise WriterClosedError("the encoding threads have ended: they take no more work")
