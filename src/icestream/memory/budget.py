"""The byte budget for all code that holds data.

A `MemoryBudget` counts bytes but does not allocate them. Code takes a `Lease` before it holds
bytes, resizes the lease to the measured size, and releases it when it passes the bytes on or drops
them. If no lease is available, the code waits. This waiting is the only back-pressure.

Several scans can use one budget at the same time. Each has a `Share`: it waits until its minimum
fits, and then runs ahead as far as its part of the limit allows.

The head of the line is the unit that the consumer of a scan waits for. It never waits for a lease,
which prevents deadlocks. Other leases keep the `reserve_bytes` of every share free for it, so that
it stays within the limit, too.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from decimal import Decimal

from icestream.errors import InvalidArgumentError, MemoryBudgetError
from icestream.memory.allocator import watch

DEFAULT_MEMORY = "256MB"

# After this time without a change, users that wait to enter assume that the others have stopped.
_STALL_SECONDS = 5.0

# How far one stream may exceed a part of a budget.
_OVERDRAFT_BYTES = 16_000_000

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
    """Parse a size such as `"64MB"`, `"1.5GiB"` or a number of bytes.

    Raises:
        InvalidArgumentError: If the value is not a size, or is not positive.
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


def format_bytes(count: int, *, up: bool = False) -> str:
    """Format a number of bytes as text: `format_bytes(64_000_000) == "64 MB"`.

    Args:
        count: The number.
        up: Whether to round up, for a limit that must be large enough.
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            tenths = -(-count * 10 // size) / 10 if up else count / size
            shown = f"{tenths:.1f}".removesuffix(".0")
            return f"{shown} {unit}"
    return f"{count} bytes"


def over_limit(
    problem: str, *, needed_bytes: int, limit_bytes: int, otherwise: str = ""
) -> MemoryBudgetError:
    """The error for work that does not fit the memory limit.

    Args:
        problem: What does not fit, as a clause: `"a row of db.t takes 70 MB"`.
        needed_bytes: A limit that is large enough.
        limit_bytes: The limit.
        otherwise: What to do instead of raising the limit: `"read fewer columns"`.
    """
    alternative = f", or {otherwise}" if otherwise else ""
    return MemoryBudgetError(
        f"{problem}, and the memory limit is {format_bytes(limit_bytes)}: raise memory to "
        f"{format_bytes(needed_bytes, up=True)} or more{alternative}",
        needed_bytes=needed_bytes,
        limit_bytes=limit_bytes,
    )


class Lease:
    """Bytes taken from a budget until `release`."""

    __slots__ = ("_budget", "_share", "held_bytes")

    def __init__(self, budget: MemoryBudget, held_bytes: int, share: Share | None = None) -> None:
        self._budget = budget
        self._share = share
        self.held_bytes = held_bytes

    def resize(self, held_bytes: int) -> None:
        """Correct the lease to the measured size. Never waits, so it may exceed the limit."""
        self._budget._change(held_bytes - self.held_bytes, self._share)
        self.held_bytes = held_bytes

    def release(self) -> None:
        """Return the bytes to the budget. A second call does nothing."""
        if self.held_bytes:
            self._budget._change(-self.held_bytes, self._share)
            self.held_bytes = 0


class MemoryBudget:
    """A memory limit that several scans and writes can share.

    Args:
        limit: A number of bytes, or a string such as `"256MB"`.
        whole: A larger budget that contains this one. Bytes held here count there, too.
    """

    def __init__(
        self, limit: int | str = DEFAULT_MEMORY, *, whole: MemoryBudget | None = None
    ) -> None:
        self.limit_bytes = parse_bytes(limit)
        self._whole = whole
        self.peak_bytes = 0
        self._held_bytes = 0
        self._shares: list[Share] = []
        self._changed = threading.Condition()
        self._changed_at = time.monotonic()

    def __repr__(self) -> str:
        return (
            f"MemoryBudget(limit={format_bytes(self.limit_bytes)}, "
            f"held={format_bytes(self._held_bytes)}, peak={format_bytes(self.peak_bytes)})"
        )

    @property
    def held_bytes(self) -> int:
        """Bytes that are leased now."""
        return self._held_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes that are not leased now. Negative while the limit is exceeded."""
        return self.limit_bytes - self._held_bytes

    def share(self) -> Share:
        """Add a user to the budget. The caller must close the returned share."""
        with self._changed:
            share = Share(self)
            self._shares.append(share)
            return share

    def acquire(
        self,
        wanted_bytes: int,
        *,
        privileged: Callable[[], bool] = lambda: False,
        cancelled: Callable[[], bool] = lambda: False,
        ready: Callable[[], bool] = lambda: True,
        spare_bytes: int = 0,
        share: Share | None = None,
    ) -> Lease | None:
        """Wait until the bytes are free, and take them.

        The three functions are called on every wake-up.

        Args:
            wanted_bytes: Number of bytes to take.
            privileged: If it returns true, take the bytes at once. The head of the line must
                not wait for bytes that only it can release.
            cancelled: If it returns true, stop waiting and return None.
            ready: While it returns false, keep waiting and leave the bytes to others.
            spare_bytes: Number of additional bytes that must be free and stay free.
            share: The share to count the bytes for.

        Returns:
            The lease, or None if cancelled.
        """
        with self._changed:
            needed_bytes = wanted_bytes + spare_bytes
            while not (privileged() or (ready() and needed_bytes <= self._open_to(share))):
                if cancelled():
                    return None
                self._changed.wait()
            if cancelled():
                return None
            lease = self._take(wanted_bytes, share)
        watch.leased(wanted_bytes)
        return lease

    def force(self, wanted_bytes: int, *, share: Share | None = None) -> Lease:
        """Lease bytes that are already held, even beyond the limit."""
        with self._changed:
            lease = self._take(wanted_bytes, share)
        watch.leased(wanted_bytes)
        return lease

    def wake(self) -> None:
        """Make every waiter call `privileged`, `ready` and `cancelled` again."""
        with self._changed:
            self._changed.notify_all()

    def _open_to(self, share: Share | None) -> int:
        """Bytes that an ordinary lease can take now. The reserves stay free."""
        reserved = sum(other.reserve_bytes for other in self._shares)
        excess = min(watch.excess_bytes, self.limit_bytes // 2)
        free = self.limit_bytes - self._held_bytes - reserved - excess
        users = sum(other._entered for other in self._shares)
        if share is None or users <= 1:
            return free
        return min(free, self.limit_bytes // users - share.held_bytes)

    def _take(self, wanted_bytes: int, share: Share | None) -> Lease:
        self._add(wanted_bytes, share)
        return Lease(self, wanted_bytes, share)

    def _change(self, difference: int, share: Share | None = None) -> None:
        with self._changed:
            self._add(difference, share)
            if difference < 0:
                self._changed.notify_all()
        watch.leased(max(difference, 0))

    def _add(self, difference: int, share: Share | None) -> None:
        held = self._held_bytes
        self._held_bytes += difference
        if self._whole is None and bool(held) != bool(self._held_bytes):
            (watch.end if held else watch.begin)(self)
        self._changed_at = time.monotonic()
        self.peak_bytes = max(self.peak_bytes, self._held_bytes)
        if share is not None:
            share.held_bytes += difference
        # Locks are always taken in this order: first the part, then the whole.
        if self._whole is not None:
            with self._whole._changed:
                self._whole._add(difference, None)
                if difference < 0:
                    self._whole._changed.notify_all()


class _Here(threading.local):
    """A token that identifies this thread.

    `threading.current_thread()` would keep an object for each thread that another library started.
    Thread ids do not work either: Python reuses those of threads that have ended.
    """

    def __init__(self) -> None:
        self.token = object()


_here = _Here()


class Share:
    """One user's part of a budget: its minimum, its reserve and the bytes that it holds.

    A user enters when its minimum is known and fits next to the other users. It does not wait for
    users that have the same consumer, or that hold all bytes and have stopped: they may be waiting
    for this one.

    Attributes:
        reserve_bytes: Bytes that ordinary leases, of any user, keep free for this one.
        held_bytes: Bytes that this user has leased.
    """

    def __init__(self, budget: MemoryBudget) -> None:
        self.reserve_bytes = 0
        self.held_bytes = 0
        self._budget = budget
        self._needed_bytes = 0
        self._entered = False
        self._consumer: object | None = None

    @property
    def limit_bytes(self) -> int:
        """Maximum number of bytes that one stream may need. A larger stream is refused.

        A stream may exceed a budget that is part of a larger one, because the other parts seldom
        need all their bytes at the same time. The excess is at most the size of the part, at most
        16 MB, and never takes the stream beyond the limit of the whole.
        """
        budget = self._budget
        if budget._whole is None:
            return budget.limit_bytes
        overdraft = min(budget.limit_bytes, _OVERDRAFT_BYTES)
        return min(budget.limit_bytes + overdraft, budget._whole.limit_bytes)

    @property
    def held_otherwise_bytes(self) -> int:
        """Bytes that are held outside the shares, such as the plan of a scan."""
        with self._budget._changed:
            shares = sum(share.held_bytes for share in self._budget._shares)
            return self._budget._held_bytes - shares

    @property
    def part_bytes(self) -> int:
        """Bytes that this user may plan with: an equal part of the bytes not held elsewhere.

        It is at least a quarter of the limit, because small steps are inefficient.
        """
        budget = self._budget
        with budget._changed:
            users = 1 + sum(share._entered for share in budget._shares if share is not self)
            part = (budget.limit_bytes - self.held_otherwise_bytes) // users
            return max(part, budget.limit_bytes // 4, 1)

    @property
    def open_bytes(self) -> int:
        """Bytes that an ordinary lease can take now. Negative if every lease would have to wait."""
        with self._budget._changed:
            return self._budget._open_to(self)

    @property
    def users(self) -> int:
        """Number of users of the budget, including those that wait to enter."""
        return len(self._budget._shares)

    def consumed(self) -> None:
        """Record this thread, which requests the next batch, as the consumer."""
        self._consumer = _here.token

    def enter(self, needed_bytes: int, cancelled: Callable[[], bool]) -> bool:
        """Wait until this user's minimum fits next to the minimums of the other users.

        Returns:
            Whether it has entered; False if cancelled.
        """
        budget = self._budget
        self._needed_bytes = needed_bytes
        with budget._changed:
            while not self._may_enter():
                if cancelled():
                    return False
                budget._changed.wait(_STALL_SECONDS / 4)
            self._entered = True
            budget._changed.notify_all()
            return not cancelled()

    def acquire(
        self,
        wanted_bytes: int,
        *,
        privileged: Callable[[], bool],
        cancelled: Callable[[], bool],
        ready: Callable[[], bool] = lambda: True,
        spare_bytes: int = 0,
    ) -> Lease | None:
        """Wait until the bytes are free within this user's part, and take them."""
        return self._budget.acquire(
            wanted_bytes,
            privileged=privileged,
            cancelled=cancelled,
            ready=ready,
            spare_bytes=spare_bytes,
            share=self,
        )

    def force(self, wanted_bytes: int) -> Lease:
        """Lease bytes that are already held, even beyond the limit."""
        return self._budget.force(wanted_bytes, share=self)

    def close(self) -> None:
        """Leave the budget, and let others enter. A second call does nothing."""
        with self._budget._changed:
            if self in self._budget._shares:
                self._budget._shares.remove(self)
            self._budget._changed.notify_all()

    def _may_enter(self) -> bool:
        budget = self._budget
        others = [share for share in budget._shares if share is not self and share._entered]
        if not others or any(share._consumer is self._consumer for share in others):
            return True
        taken = sum(max(share._needed_bytes, share.held_bytes) for share in others)
        if taken + self._needed_bytes <= budget.limit_bytes:
            ahead = budget._shares[: budget._shares.index(self)]
            return all(share._entered or not share._needed_bytes for share in ahead)
        return time.monotonic() - budget._changed_at > _STALL_SECONDS


def as_budget(memory: int | str | MemoryBudget) -> MemoryBudget:
    """Return a budget unchanged, or create one with the given limit."""
    return memory if isinstance(memory, MemoryBudget) else MemoryBudget(memory)
