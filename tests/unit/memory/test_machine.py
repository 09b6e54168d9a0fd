"""What is known about the machine and the process."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from icestream.memory.machine import allocator_variables, cores, join_started, resident_bytes


def test_at_least_one_core_is_there_and_no_more_than_the_machine_has() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_resident_size_is_at_most_the_peak() -> None:
    now, peak = resident_bytes("self", "VmRSS"), resident_bytes(os.getpid(), "VmHWM")
    assert now is not None
    assert peak is not None
    assert 1 << 20 < now <= peak


def test_a_process_that_has_ended_has_no_resident_size() -> None:
    assert resident_bytes(2**22 + 1, "VmRSS") is None


@pytest.mark.skipif(sys.platform == "win32", reason="Arrow has no jemalloc there")
def test_the_allocator_keeps_free_pages_in_few_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icestream.memory.machine.cores", lambda: 16)
    variables = allocator_variables()
    assert variables["ARROW_DEFAULT_MEMORY_POOL"] == "jemalloc"
    assert "narenas:8" in variables["JE_ARROW_MALLOC_CONF"]


def test_threads_that_never_ran_are_not_waited_for() -> None:
    def nothing() -> None:
        """Ends at once."""

    started, never = (threading.Thread(target=nothing) for _ in range(2))
    started.start()
    join_started([never, started])
    assert not started.is_alive()
