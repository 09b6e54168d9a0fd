"""Return free memory to the system when the process comes near its limit.

Arrow's allocators keep freed pages for later use. That is harmless while the process is within its
limit. `Watch` reads the resident size after every few MB of leases, in the thread that leases them.
When the process has grown close to the limit, it asks Arrow's pool to return free pages. mimalloc
and the C library do that. jemalloc returns pages by itself after a short time. So the limit holds
with every allocator, even if PyArrow was imported before icestream.

Without `/proc` the resident size is unknown. Free pages are then returned each time the leased
bytes add up to the limit.
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

from icestream.memory.machine import DECAY_MILLISECONDS

_LOOK_BYTES = 2 << 20  # Leased bytes between two readings of the resident size.
_ALLOWANCE_BYTES = 24 << 20  # jemalloc: bytes above the limit before pages are returned.
_MARGIN_SHARE = 5  # Others return only some free pages: start a fifth below the limit.
# Growth after which returning pages is tried again: with jemalloc, and with others.
_GAIN_BYTES = 8 << 20
_SMALL_GAIN_BYTES = 1 << 20
_LEFT_BYTES = 16 << 20  # Growth that is tolerated when the last budget ends.
_TRIM_SECONDS = 0.25
_PAUSE_SECONDS = 1.0  # A budget that is used again within this time has not ended.


class ResidentSize:
    """Reads the resident size of this process; None if it is unknown. Takes microseconds."""

    def __init__(self, path: str = "/proc/self/statm") -> None:
        self._path = path
        self._page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
        self._file: int | None = None
        self._owner = 0

    def __call__(self) -> int | None:
        try:
            # After a fork, the file is the parent's.
            if self._file is None or self._owner != os.getpid():
                self._file, self._owner = os.open(self._path, os.O_RDONLY), os.getpid()
            return int(os.pread(self._file, 128, 0).split()[1]) * self._page
        except (OSError, IndexError, ValueError, AttributeError):
            return None


class Limit(Protocol):
    """The part of a budget that `Watch` uses."""

    @property
    def limit_bytes(self) -> int: ...


class Watch:
    """Keeps the process near the limits that are in use.

    Args:
        resident_size: Reads the resident size.
        release: Makes the allocators return free pages.
        allowance: Takes the limit. Returns how far above it the process may grow before pages are
            returned.

    Attributes:
        excess_bytes: How far the process is above its limit after free pages were returned,
            because pages are partly in use. Budgets lend that much less.
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
        """A budget has its first lease. Growth counts from here if no other budget is in use."""
        with self._lock:
            paused = time.monotonic() - self._ended_at > _PAUSE_SECONDS
            if not self._limits and paused:
                self._base_bytes = self._resident_size()
                self._leased_bytes = self._after_bytes = self.excess_bytes = 0
            self._limits.add(limit)

    def end(self, limit: Limit) -> None:
        """A budget has released its last lease."""
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
        """Count `count` more leased bytes. This may take long, so call it without a lock."""
        if self._seen.round != self._round:  # mimalloc returns only pages of the calling thread.
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
            self.excess_bytes = 0 if base is None else max(left - base - limits, 0)
        elif self.excess_bytes:
            self.excess_bytes = max(self.excess_bytes - _LOOK_BYTES, 0)


class _Seen(threading.local):
    """The last round of returning pages in which a thread took part."""

    round = 0


_trimmed_at = 0.0


def release_free_memory() -> None:
    """Make Arrow's pool return free memory, and occasionally the C library."""
    global _trimmed_at
    pa.default_memory_pool().release_unused()
    now = time.monotonic()
    if now - _trimmed_at > _TRIM_SECONDS:
        _trimmed_at = now
        trim_heap()


def trim_heap() -> None:
    """Return free memory of the C library to the system, if it is glibc.

    Call it after freeing much memory outside Arrow's pools, such as a parsed ORC footer.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _allowance(limit_bytes: int) -> int:
    """How much of the promised 64 MB above the limit to use before pages are returned."""
    if pa.default_memory_pool().backend_name == "jemalloc":
        return _ALLOWANCE_BYTES
    return -limit_bytes // _MARGIN_SHARE


watch = Watch(ResidentSize(), release_free_memory, _allowance)


def shorten_decay() -> None:
    """Make jemalloc return freed pages after a fifth of a second instead of a second.

    `release_unused` has no effect on jemalloc (PyArrow 26). `import icestream` sets this, too,
    unless PyArrow was imported first.
    """
    if pa.default_memory_pool().backend_name == "jemalloc":
        pa.jemalloc_set_decay_ms(DECAY_MILLISECONDS)
