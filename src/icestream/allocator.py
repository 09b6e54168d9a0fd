"""Free memory goes back to the system when the process nears its limit.

Arrow's allocators keep pages that were freed, to use them again. They are welcome to it while the
process is inside its limit. `Watch` looks at the resident size each time a few MB more have been
leased, in whichever thread that is, and has Arrow's pool give free pages back when the growth comes
near the limit: mimalloc and the C library do so; jemalloc gives its pages back by the clock, soon.
So it does not matter which allocator PyArrow took, or whether it was imported before icestream.

Where the resident size can't be read (no /proc), pages go back each time as many bytes have been
leased as the limit allows.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from icestream.machine import DECAY_MILLISECONDS

_LOOK_BYTES = 2 << 20  # Leased between two looks.
_ALLOWANCE_BYTES = 24 << 20  # jemalloc: beside the limit, before pages go back.
_MARGIN_SHARE = 5  # Others give back less than what is free: of the limit, below it.
_EXCESS_BYTES = 0  # Beside the limit, after pages went back: less is run ahead beyond that.
# What must have been taken since pages went back, to try again: jemalloc, and others.
_GAIN_BYTES = 8 << 20
_SMALL_GAIN_BYTES = 1 << 20
_LEFT_BYTES = 16 << 20  # Growth that is left alone at the end.
_TRIM_SECONDS = 0.25
_PAUSE_SECONDS = 1.0  # Budgets that are in use again within that have not really ended.


class ResidentSize:
    """Reads the resident size of this process, in microseconds; None where it can't be read."""

    def __init__(self, path: str = "/proc/self/statm") -> None:
        self._path = path
        self._page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        self._file: int | None = None
        self._owner = 0

    def __call__(self) -> int | None:
        try:
            if self._file is None or self._owner != os.getpid():  # Of the parent, after a fork.
                self._file, self._owner = os.open(self._path, os.O_RDONLY), os.getpid()
            return int(os.pread(self._file, 128, 0).split()[1]) * self._page
        except (OSError, IndexError, ValueError, AttributeError):
            return None


class Limit(Protocol):
    """A budget, as far as it matters here."""

    @property
    def limit_bytes(self) -> int: ...


class Watch:
    """Keeps the process near the limits that are in use.

    Args:
        resident_size: Reads the resident size.
        release: Has the allocators give free pages back.
        allowance: How far beyond the limit, given that, pages are left alone.

    Attributes:
        excess_bytes: What the process has taken too much, in pages that are partly in use: budgets
            run ahead by so much less.
    """

    def __init__(
        self,
        resident_size: Callable[[], int | None],
        release: Callable[[], None],
        allowance: Callable[[int], int],
    ) -> None:
        self._allowance = allowance
        self.excess_bytes = 0
        self._seen = _Seen()
        self._round = 0
        self._resident_size = resident_size
        self._release = release
        self._lock = threading.Lock()
        self._limits: weakref.WeakSet[Limit] = weakref.WeakSet()
        self._base_bytes: int | None = None
        self._leased_bytes = 0
        self._after_bytes = 0
        self._ended_at = -_PAUSE_SECONDS

    def begin(self, limit: Limit) -> None:
        """A budget has its first lease: growth counts from here, unless others are in use."""
        with self._lock:
            paused = time.monotonic() - self._ended_at > _PAUSE_SECONDS
            if not self._limits and paused:
                self._base_bytes = self._resident_size()
                self._leased_bytes = self._after_bytes = self.excess_bytes = 0
            self._limits.add(limit)

    def end(self, limit: Limit) -> None:
        """A budget has given its last lease back."""
        with self._lock:
            self._limits.discard(limit)
            now = time.monotonic()
            recent = now - self._ended_at < _PAUSE_SECONDS
            if self._limits or recent or self._base_bytes is None:
                return
            self._ended_at = now
            grown = (self._resident_size() or 0) - self._base_bytes
        if grown > _LEFT_BYTES:
            self._release()

    def leased(self, count: int) -> None:
        """So many bytes more are about to be held. Call it without a lock: it may take a while."""
        if self._seen.round != self._round:  # mimalloc gives back what the calling thread has only.
            self._seen.round = self._round
            self._release()
        with self._lock:
            self._leased_bytes += count
            if self._leased_bytes < _LOOK_BYTES:
                return
            limits = sum(limit.limit_bytes for limit in list(self._limits))
            blind = self._base_bytes is None
            if blind and self._leased_bytes < limits:
                return
            self._leased_bytes = 0
            allowed = (self._base_bytes or 0) + limits + self._allowance(limits)
        size = self._resident_size()
        if blind or (size is not None and size > max(allowed, self._after_bytes)):
            self._round += 1
            self._seen.round = self._round
            self._release()
            left = self._resident_size() or 0
            self._after_bytes = left + (
                _GAIN_BYTES if self._allowance(limits) > 0 else _SMALL_GAIN_BYTES
            )
            base = self._base_bytes
            self.excess_bytes = 0 if base is None else max(left - base - limits - _EXCESS_BYTES, 0)
        elif self.excess_bytes:
            self.excess_bytes = max(self.excess_bytes - _LOOK_BYTES, 0)


class _Seen(threading.local):
    """The last round of giving back that a thread has taken part in."""

    round = 0


_trimmed_at = 0.0


def release_free_memory() -> None:
    """Have Arrow's pool and, now and then, the C library give back what is free."""
    global _trimmed_at
    pa.default_memory_pool().release_unused()
    now = time.monotonic()
    if now - _trimmed_at > _TRIM_SECONDS:
        _trimmed_at = now
        trim_heap()


def trim_heap() -> None:
    """Give the C library's free memory back to the system, where it can (glibc).

    For moments when much was freed outside Arrow's pools, such as a parsed ORC footer.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _allowance(limit_bytes: int) -> int:
    """64 MB beside the limit are promised; how much of that to use before pages go back."""
    if pa.default_memory_pool().backend_name == "jemalloc":
        return _ALLOWANCE_BYTES
    return -limit_bytes // _MARGIN_SHARE


watch = Watch(ResidentSize(), release_free_memory, _allowance)


def shorten_decay() -> None:
    """Have jemalloc give freed pages back after a fifth of a second instead of a second.

    Its pages can't be asked back: `release_unused` has no effect on it (PyArrow 26). `import
    icestream` has set this already, if PyArrow was not imported before.
    """
    if pa.default_memory_pool().backend_name == "jemalloc":
        pa.jemalloc_set_decay_ms(DECAY_MILLISECONDS)
