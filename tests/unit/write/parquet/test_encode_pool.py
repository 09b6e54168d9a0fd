"""Encoding threads: a writer's groups in order, several writers at once, errors once and whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from icestream.errors import WriterClosedError
from icestream.memory.budget import MemoryBudget
from icestream.write.new_file import NewFile
from icestream.write.parquet.encode_pool import EncodePool
from tests.support.leaks import assert_no_leaks

_WAIT_SECONDS = 10


class _Writer:
    """Stands in for a rolling writer: notes what it is given, and does as it is told."""

    def __init__(self, act: Callable[[int], None] = lambda number: None) -> None:
        self.numbers: list[int] = []
        self.threads: set[str] = set()
        self.most_at_once = 0
        self._at_once = 0
        self._act = act

    def write_row_group(self, batches: list[pa.RecordBatch]) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self.threads.add(threading.current_thread().name)
        (batch,) = batches
        number = batch["n"][0].as_py()
        self._act(number)
        self.numbers.append(number)
        self._at_once -= 1

    def close(self) -> list[NewFile]:
        self.numbers.append(-1)
        return []


def _group(number: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": [number]})]


class _Pool(EncodePool):
    """A pool, with the budget of the row groups that tests submit."""

    def __init__(self, threads: int, budget: MemoryBudget) -> None:
        super().__init__(threads)
        self.budget = budget


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget("1MB")


@pytest.fixture
def pool(budget: MemoryBudget) -> Iterator[_Pool]:
    with assert_no_leaks():
        pool = _Pool(2, budget)
        yield pool
        pool.close()


def _submit(pool: _Pool, writer: Any, number: int, held_bytes: int = 100) -> None:
    pool.submit(writer, _group(number), pool.budget.force(held_bytes))


def test_groups_of_a_writer_are_written_one_at_a_time_and_in_order(pool: _Pool) -> None:
    writers = [_Writer(lambda _: time.sleep(0.0005)) for _ in range(3)]
    for number in range(60):
        for writer in writers:
            _submit(pool, writer, number)
    pool.flush()
    for writer in writers:
        assert writer.numbers == list(range(60))
        assert writer.most_at_once == 1


def test_different_writers_run_side_by_side(pool: _Pool) -> None:
    both = threading.Barrier(2, timeout=_WAIT_SECONDS)
    writers = [_Writer(lambda _: both.wait()) for _ in range(2)]
    for writer in writers:
        _submit(pool, writer, 0)
    pool.flush()
    assert [writer.numbers for writer in writers] == [[0], [0]]


def test_threads_are_daemons_and_start_with_the_work(pool: _Pool) -> None:
    def ours() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t.name == "icestream-encode"]

    assert ours() == []
    seen: list[threading.Thread] = []
    writer = _Writer(lambda number: seen.extend(ours()))
    _submit(pool, writer, 0)
    _submit(pool, writer, 1)
    pool.flush()
    assert seen
    assert all(thread.daemon for thread in seen)
    assert writer.threads == {"icestream-encode"}


def test_an_abandoned_pool_leaves_no_threads(budget: MemoryBudget) -> None:
    with assert_no_leaks():
        pool = _Pool(2, budget)
        writers = [_Writer(), _Writer()]
        for number in range(3):
            for writer in writers:
                _submit(pool, writer, number)
        pool.flush()  # It is never closed, and never collected.
    _submit(pool, writers[0], 3)  # It starts threads again.
    pool.flush()
    assert writers[0].numbers == [0, 1, 2, 3]


def test_a_lease_is_given_back_when_its_group_is_written(pool: _Pool, budget: MemoryBudget) -> None:
    go = threading.Event()
    writer = _Writer(lambda _: go.wait(_WAIT_SECONDS) and None)
    _submit(pool, writer, 0, held_bytes=300)
    _submit(pool, writer, 1, held_bytes=500)
    assert budget.held_bytes == 800
    go.set()
    pool.flush()
    assert budget.held_bytes == 0


def test_batches_are_let_go_when_they_are_written(pool: _Pool) -> None:
    before = pa.total_allocated_bytes()
    group = [pa.concat_batches([pa.record_batch({"n": range(100_000)})])]
    pool.submit(_Writer(), group, pool.budget.force(1))  # type: ignore[arg-type]
    del group
    pool.flush()
    assert pa.total_allocated_bytes() - before < 100_000


def test_submit_waits_while_more_groups_than_threads_are_under_way(pool: _Pool) -> None:
    go = threading.Event()
    writers = [_Writer(lambda _: go.wait(_WAIT_SECONDS) and None) for _ in range(4)]
    for writer in writers[:3]:
        _submit(pool, writer, 0)
    fourth = threading.Thread(target=_submit, args=(pool, writers[3], 0))
    fourth.start()
    fourth.join(0.1)
    assert fourth.is_alive()
    go.set()
    fourth.join(_WAIT_SECONDS)
    assert not fourth.is_alive()
    pool.flush()


def _fail(number: int) -> None:
    if number == 1:
        raise OSError("disk gone")


def test_the_first_error_is_raised_as_it_was_by_every_later_call(
    pool: _Pool, budget: MemoryBudget
) -> None:
    writer = _Writer(_fail)
    _submit(pool, writer, 0)
    _submit(pool, writer, 1)
    with pytest.raises(OSError, match="disk gone") as first:
        pool.flush()
    with pytest.raises(OSError, match="disk gone") as second:
        _submit(pool, _Writer(), 2)
    with pytest.raises(OSError, match="disk gone"):
        pool.wait_idle([writer])  # type: ignore[list-item]
    assert first.value is second.value
    assert budget.held_bytes == 0


def test_after_an_error_queued_groups_are_dropped(pool: _Pool, budget: MemoryBudget) -> None:
    go = threading.Event()

    def fail_first(number: int) -> None:
        go.wait(_WAIT_SECONDS)
        if number == 0:
            raise OSError("disk gone")

    writer = _Writer(fail_first)
    for number in range(3):
        _submit(pool, writer, number)
    go.set()
    with pytest.raises(OSError, match="disk gone"):
        pool.flush()
    time.sleep(0.05)
    assert writer.numbers == []
    assert budget.held_bytes == 0


def test_a_submit_that_waits_is_told_of_the_error(pool: _Pool, budget: MemoryBudget) -> None:
    go = threading.Event()

    def fail_later(number: int) -> None:
        go.wait(_WAIT_SECONDS)
        raise OSError("disk gone")

    for _ in range(3):
        _submit(pool, _Writer(fail_later), 0)
    threading.Timer(0.05, go.set).start()
    with pytest.raises(OSError, match="disk gone"):
        _submit(pool, _Writer(), 0)
    pool.cancel()
    assert budget.held_bytes == 0


def test_cancel_drops_what_is_queued_and_waits_for_what_runs(
    pool: _Pool, budget: MemoryBudget
) -> None:
    started, go = threading.Event(), threading.Event()

    def wait(number: int) -> None:
        started.set()
        go.wait(_WAIT_SECONDS)

    writer = _Writer(wait)
    for number in range(3):
        _submit(pool, writer, number)
    started.wait(_WAIT_SECONDS)
    threading.Timer(0.05, go.set).start()
    pool.cancel()
    assert writer.numbers == [0]
    assert budget.held_bytes == 0
    pool.flush()


def test_wait_idle_returns_a_writer_without_work(pool: _Pool) -> None:
    go = threading.Event()
    busy, other = _Writer(lambda _: go.wait(_WAIT_SECONDS) and None), _Writer()
    _submit(pool, busy, 0)
    assert pool.is_idle(other)  # type: ignore[arg-type]
    assert not pool.is_idle(busy)  # type: ignore[arg-type]
    assert pool.wait_idle([busy, other]) is other  # type: ignore[list-item]
    threading.Timer(0.05, go.set).start()
    assert pool.wait_idle([busy]) is busy  # type: ignore[list-item]
    assert busy.numbers == [0]


def test_a_writer_is_closed_after_its_groups(pool: _Pool) -> None:
    writer, closed = _Writer(lambda _: time.sleep(0.01)), []
    for number in range(3):
        _submit(pool, writer, number)
    pool.submit_close(writer, closed.append)  # type: ignore[arg-type]
    pool.flush()
    assert writer.numbers == [0, 1, 2, -1]
    assert closed == [[]]


def test_a_pool_that_is_closed_takes_no_work(budget: MemoryBudget) -> None:
    with assert_no_leaks(grace_seconds=0.0):
        pool = _Pool(2, budget)
        for _ in range(5):
            _submit(pool, _Writer(), 0)
        pool.close()
        pool.close()
    with pytest.raises(WriterClosedError):
        _submit(pool, _Writer(), 0)
    assert budget.held_bytes == 0
