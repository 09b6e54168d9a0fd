"""One byte budget that everything which holds data draws from.

A `MemoryBudget` is an account, not an allocator: whoever is about to hold bytes takes a `Lease`
first, changes it to the measured size afterwards, and gives it back when the bytes are handed over
or dropped. Whoever can't get a lease waits, which is all the back-pressure there is.

Several scans may use one budget at a time. Each has a `Share`: it waits until there is room for
what it needs at least, then runs ahead as far as its part of the limit allows.

Nothing deadlocks because of the head of the line, the one thing a scan's consumer is waiting for:
it never waits. Ordinary leases leave the `reserve_bytes` of every share free for it, so that it
does not overdraw either.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from decimal import Decimal

from icestream.allocator import watch
from icestream.errors import InvalidArgumentError

DEFAULT_MEMORY = "256MB"

# Users that wait to enter take it that the others have stopped after so long without a change.
_STALL_SECONDS = 5.0

# By how much one stream may overdraw a part of a budget.
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

    __slots__ = ("_budget", "_share", "held_bytes")

    def __init__(self, budget: MemoryBudget, held_bytes: int, share: Share | None = None) -> None:
        self._budget = budget
        self._share = share
        self.held_bytes = held_bytes

    def resize(self, held_bytes: int) -> None:
        """Correct the lease to what was measured; never waits, so it may overdraw."""
        self._budget._change(held_bytes - self.held_bytes, self._share)
        self.held_bytes = held_bytes

    def release(self) -> None:
        """Give the bytes back. A second call does nothing."""
        if self.held_bytes:
            self._budget._change(-self.held_bytes, self._share)
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
        """Bytes on lease now."""
        return self._held_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes not on lease now; below zero after an overdraft."""
        return self.limit_bytes - self._held_bytes

    def share(self) -> Share:
        """A part of the limit for one more user; it must be closed."""
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

        Args:
            wanted_bytes: How much to take.
            ready: Asked on every wake-up. While it is false, somebody else is to have the bytes.
            spare_bytes: How much more must be free, and is left so.
            privileged: Asked on every wake-up. When true the bytes are taken at once: the head of
                the line must not wait for bytes that only it can set free.
            cancelled: Asked on every wake-up; when true, None is returned.
            share: Whose bytes they are.

        Returns:
            The lease, or None when cancelled.
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
        """Take bytes that are held already, whatever the account says."""
        with self._changed:
            lease = self._take(wanted_bytes, share)
        watch.leased(wanted_bytes)
        return lease

    def wake(self) -> None:
        """Make every waiter ask `privileged` and `cancelled` again."""
        with self._changed:
            self._changed.notify_all()

    def _open_to(self, share: Share | None) -> int:
        """Bytes that an ordinary lease can have now: the reserves stay free."""
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
        if self._whole is not None:  # Locks are taken in this order only: the part's first.
            with self._whole._changed:
                self._whole._add(difference, None)
                if difference < 0:
                    self._whole._changed.notify_all()


class _Here(threading.local):
    """This thread, as a token of its own.

    Python would keep a thread object for each thread of another library that is asked for one, and
    gives the number of a thread that has ended to the next.
    """

    def __init__(self) -> None:
        self.token = object()


_here = _Here()


class Share:
    """One user's part of a budget: what it needs at least, keeps free, and holds.

    A user enters once it knows what it needs, and waits until that fits beside the others. It does
    not wait for a user whose consumer is this user's consumer, nor for users that hold everything
    and have stopped: what one of them waits for may be this one.

    Attributes:
        reserve_bytes: What ordinary leases of all users leave free for this one.
        held_bytes: What it has on lease.
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
        """The most that one stream may need; a stream that needs more is refused.

        A budget that is a part of another one lets a stream overdraw it, because the other parts
        seldom need all of theirs at the same time. The overdraft is bounded: by the part itself,
        by a few megabytes, and by the limit of the whole.
        """
        budget = self._budget
        if budget._whole is None:
            return budget.limit_bytes
        overdraft = min(budget.limit_bytes, _OVERDRAFT_BYTES)
        return min(budget.limit_bytes + overdraft, budget._whole.limit_bytes)

    @property
    def held_otherwise_bytes(self) -> int:
        """What is held beside the shares, such as the plan of a scan."""
        with self._budget._changed:
            shares = sum(share.held_bytes for share in self._budget._shares)
            return self._budget._held_bytes - shares

    @property
    def part_bytes(self) -> int:
        """What this user may plan with: what is not held otherwise, among those who have entered.

        A quarter of the limit at least, so that steps stay worth their while.
        """
        budget = self._budget
        with budget._changed:
            shares = budget._shares
            otherwise = budget._held_bytes - sum(share.held_bytes for share in shares)
            users = 1 + sum(share._entered for share in shares if share is not self)
            part = (budget.limit_bytes - otherwise) // users
            return max(part, budget.limit_bytes // 4, 1)

    @property
    def open_bytes(self) -> int:
        """What an ordinary lease can have now; below zero when it would have to wait for any."""
        with self._budget._changed:
            return self._budget._open_to(self)

    @property
    def users(self) -> int:
        """How many users the budget has now, those that wait to enter among them."""
        return len(self._budget._shares)

    def consumed(self) -> None:
        """This thread asks for the next batch: it is the consumer."""
        self._consumer = _here.token

    def enter(self, needed_bytes: int, cancelled: Callable[[], bool]) -> bool:
        """Wait until what this user needs at least fits beside the needs of the others.

        Returns:
            Whether it has entered; False when cancelled.
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
        """Take bytes that are held already, whatever the account says."""
        return self._budget.force(wanted_bytes, share=self)

    def close(self) -> None:
        """Leave, and let others enter. A second call does nothing."""
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
    """A budget as it is, or a new one with that limit."""
    return memory if isinstance(memory, MemoryBudget) else MemoryBudget(memory)
