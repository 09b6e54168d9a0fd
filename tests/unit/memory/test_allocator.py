"""Free pages go back when the process nears its limit, whoever allocated them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from icestream.memory import allocator
from icestream.memory.allocator import ResidentSize, Watch

_MB = 1 << 20


class _Limit:
    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes


class _Process:
    """A process whose size is set, and which counts who gives pages back."""

    def __init__(self, size: int | None, freed: int = 0) -> None:
        self.size = size
        self.freed = freed
        self.released: list[str] = []
        self.watch = Watch(lambda: self.size, self._release, lambda limit: 10 * _MB)

    def _release(self) -> None:
        self.released.append(threading.current_thread().name)
        if self.size is not None:
            self.size -= self.freed


def test_pages_are_left_alone_while_the_process_is_near_its_limit() -> None:
    process, limit = _Process(100 * _MB), _Limit(50 * _MB)
    process.watch.begin(limit)
    process.size = 160 * _MB
    process.watch.leased(4 * _MB)
    assert process.released == []
    process.size = 161 * _MB
    process.watch.leased(_MB)
    assert process.released == [], "too little was leased to look"
    process.watch.leased(_MB)
    assert len(process.released) == 1


def test_pages_that_can_not_be_given_back_are_not_asked_for_again_and_again() -> None:
    process, limit = _Process(0), _Limit(10 * _MB)
    process.watch.begin(limit)
    process.size = 100 * _MB
    for _ in range(10):
        process.watch.leased(4 * _MB)
    assert len(process.released) == 1
    process.size = 120 * _MB
    process.watch.leased(4 * _MB)
    assert len(process.released) == 2


def test_what_stays_above_the_limit_is_excess_until_it_is_gone() -> None:
    process, limit = _Process(0, freed=20 * _MB), _Limit(50 * _MB)
    process.watch.begin(limit)
    process.size = 100 * _MB
    process.watch.leased(4 * _MB)
    assert process.watch.excess_bytes == 30 * _MB
    for _ in range(20):
        process.watch.leased(4 * _MB)
    assert process.watch.excess_bytes == 0


def test_every_thread_gives_its_own_pages_back_once_a_round() -> None:
    process, limit = _Process(0), _Limit(_MB)
    process.watch.begin(limit)
    process.size = 100 * _MB
    process.watch.leased(4 * _MB)
    for _ in range(2):
        thread = threading.Thread(target=lambda: [process.watch.leased(0) for _ in range(3)])
        thread.start()
        thread.join()
    assert len(process.released) == 3


def test_several_limits_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    process, first, second = _Process(0), _Limit(50 * _MB), _Limit(50 * _MB)
    for limit in (first, second):
        process.watch.begin(limit)
    process.size = 100 * _MB
    process.watch.leased(4 * _MB)
    assert process.released == []
    process.watch.end(second)
    process.watch.leased(4 * _MB)
    assert len(process.released) == 1


def test_at_the_end_pages_go_back() -> None:
    process, limit = _Process(0), _Limit(50 * _MB)
    process.watch.begin(limit)
    process.size = 50 * _MB
    process.watch.end(limit)
    assert len(process.released) == 1


def test_without_a_size_pages_go_back_by_what_was_leased() -> None:
    process, limit = _Process(None), _Limit(10 * _MB)
    process.watch.begin(limit)
    for _ in range(10):
        process.watch.leased(3 * _MB)
    assert len(process.released) == 2


def test_the_resident_size_is_read_or_none(tmp_path: Path) -> None:
    assert ResidentSize(str(tmp_path / "none"))() is None
    (tmp_path / "empty").write_text("")
    assert ResidentSize(str(tmp_path / "empty"))() is None
    (tmp_path / "statm").write_text("5 3 1 1 0 1 0")
    size = ResidentSize(str(tmp_path / "statm"))
    assert size() == size() == 3 * size._page


def test_memory_is_given_back_without_an_error() -> None:
    allocator.release_free_memory()
    allocator.trim_heap()
