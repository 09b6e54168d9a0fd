"""One byte budget that everything which holds data draws from.

A `MemoryBudget` is an account, not an allocator: whoever is about to hold bytes takes a `Lease`
first, changes it to the measured size afterwards, and gives it back when the bytes are handed over
or dropped. Whoever can't get a lease waits, which is all the back-pressure there is.

Nothing deadlocks because of the head of the line, the one thing the consumer is waiting for: it
never waits. Ordinary leases leave `reserve_bytes` free for it, so that it does not overdraw either.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa

from icestream.errors import InvalidArgumentError

DEFAULT_MEMORY = "256MB"

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_MEMORY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(value: int | str, *, name: str = "memory") -> int:
    """Turn `"64MB"`, `"1.5GiB"` or a number of bytes into bytes.

    Raises:
        InvalidArgumentError: If the value is no size, or is not positive.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidArgumentError(
            f"{name} is {value!r}: give bytes as a whole number, or a string such as '256MB'"
        )
    if isinstance(value, int):
        parsed = value
    else:
        match = _MEMORY.fullmatch(value)
        unit = _UNITS.get(match.group(2).lower()) if match else None
        if match is None or unit is None:
            raise InvalidArgumentError(
                f"{name} {value!r} is not a size: write it like '64MB', '1.5GiB' or 67108864"
            )
        parsed = int(Decimal(match.group(1)) * unit)
    if parsed <= 0:
        raise InvalidArgumentError(f"{name} is {value!r}: it must be more than zero bytes")
    return parsed


def format_bytes(count: int) -> str:
    """Write a number of bytes for people: `format_bytes(64_000_000) == "64 MB"`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            shown = f"{count / size:.1f}".removesuffix(".0")
            return f"{shown} {unit}"
    return f"{count} bytes"


class Lease:
    """Bytes taken from a budget. Give them back exactly once with `release`."""

    __slots__ = ("_budget", "held_bytes")

    def __init__(self, budget: MemoryBudget, held_bytes: int) -> None:
        self._budget = budget
        self.held_bytes = held_bytes

    def resize(self, held_bytes: int) -> None:
        """Correct the lease to what was measured; never waits, so it may overdraw."""
        self._budget._change(held_bytes - self.held_bytes)
        self.held_bytes = held_bytes

    def release(self) -> None:
        """Give the bytes back. A second call does nothing."""
        if self.held_bytes:
            self._budget._change(-self.held_bytes)
            self.held_bytes = 0


class MemoryBudget:
    """A limit in bytes that several parts of one job can share.

    Args:
        limit: Bytes, or a string such as `"256MB"`.
        whole: The budget that this one is a part of: what is held here counts there, too.
    """

    def __init__(
        self, limit: int | str = DEFAULT_MEMORY, *, whole: MemoryBudget | None = None
    ) -> None:
        self.limit_bytes = parse_bytes(limit)
        self._whole = whole
        self.reserve_bytes = 0
        self.peak_bytes = 0
        self._held_bytes = 0
        self._changed = threading.Condition()

    def __repr__(self) -> str:
        return (
            f"MemoryBudget(limit={format_bytes(self.limit_bytes)}, "
            f"held={format_bytes(self._held_bytes)}, peak={format_bytes(self.peak_bytes)})"
        )

    @property
    def held_bytes(self) -> int:
        """Bytes on lease now."""
        return self._held_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes not on lease now; below zero after an overdraft."""
        return self.limit_bytes - self._held_bytes

    def acquire(
        self,
        wanted_bytes: int,
        *,
        privileged: Callable[[], bool] = lambda: False,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Lease | None:
        """Wait until the bytes are free, and take them.

        Args:
            wanted_bytes: How much to take.
            privileged: Asked on every wake-up. When true the bytes are taken at once: the head of
                the line must not wait for bytes that only it can set free.
            cancelled: Asked on every wake-up; when true, None is returned.

        Returns:
            The lease, or None when cancelled.
        """
        with self._changed:
            while not self._fits(wanted_bytes, privileged()):
                if cancelled():
                    return None
                self._changed.wait()
            if cancelled():
                return None
            return self._take(wanted_bytes)

    def force(self, wanted_bytes: int) -> Lease:
        """Take bytes that are held already, whatever the account says."""
        with self._changed:
            return self._take(wanted_bytes)

    def wake(self) -> None:
        """Make every waiter ask `privileged` and `cancelled` again."""
        with self._changed:
            self._changed.notify_all()

    def _fits(self, wanted_bytes: int, privileged: bool) -> bool:
        if privileged:
            return True
        return self._held_bytes + wanted_bytes + self.reserve_bytes <= self.limit_bytes

    def _take(self, wanted_bytes: int) -> Lease:
        self._add(wanted_bytes)
        return Lease(self, wanted_bytes)

    def _change(self, difference: int) -> None:
        with self._changed:
            self._add(difference)
            if difference < 0:
                self._changed.notify_all()

    def _add(self, difference: int) -> None:
        self._held_bytes += difference
        self.peak_bytes = max(self.peak_bytes, self._held_bytes)
        if self._whole is not None:  # Locks are taken in this order only: the part's first.
            self._whole._change(difference)


def as_budget(memory: int | str | MemoryBudget) -> MemoryBudget:
    """A budget as it is, or a new one with that limit."""
    return memory if isinstance(memory, MemoryBudget) else MemoryBudget(memory)


def trim_heap() -> None:
    """Give the C library's free memory back to the system, where it can (glibc).

    For moments when much was freed outside Arrow's pools, such as a parsed ORC footer.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


_DECAY_MILLISECONDS = 200


def tune_allocator() -> None:
    """Have jemalloc give freed pages back after a fifth of a second instead of a second.

    `import icestream` makes jemalloc Arrow's allocator if PyArrow is not imported yet (see
    icestream/__init__.py); docs/design/0002 has the figures. Nothing is done to another allocator.
    """
    if pa.default_memory_pool().backend_name == "jemalloc":
        pa.jemalloc_set_decay_ms(_DECAY_MILLISECONDS)
