"""The number of rows in a step and the number of streams, from file metadata and past steps.

Three numbers control a scan:

- the *fixed* bytes of a stream: buffers, pages and dictionaries that it holds between steps. They
  are known before the stream is opened.
- the bytes of a *row*, which are updated along the file.
- the *copies* factor: the peak memory of a step for each byte that it delivers.

A stream is opened when its fixed bytes, a step and the step's batch fit the budget. So the budget
alone determines the number of streams.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from icestream.memory.budget import format_bytes, over_limit

PROBE_ROWS = 8_192
_SURPRISE_ROWS = 8
_SMALLEST_STEP_BYTES = 256 << 10
_LARGEST_STEP_BYTES = 4 << 20
_COPIES = 2.0
_STEP_ROWS = 8_192
# Estimates tend to be too high, so only this share of an estimate is expected. Otherwise the
# surplus would be expected in the last rows of a file, and the steps for these would shrink.
_CERTAIN_SHARE = 0.875


@dataclass(frozen=True, slots=True)
class Estimate:
    """Predicted sizes of a stream before it is opened.

    Attributes:
        row_bytes: Arrow bytes of a row.
        fixed_bytes: Bytes of buffers, pages and dictionaries, which do not depend on the step.
        rows: Number of rows in the stream.
        longest_bytes: Upper bound for the length of a value, if known.
        surprising: Whether rows may be much longer than their stored bytes suggest. If so, the
            first step is small.
        is_bound: Whether `row_bytes` is an upper bound and not an average.
    """

    row_bytes: float
    fixed_bytes: int
    rows: int
    longest_bytes: int = 0
    surprising: bool = False
    is_bound: bool = False

    @property
    def least_bytes(self) -> int:
        """Minimum memory of the stream: with steps of one row, the longest one."""
        return self.fixed_bytes + max(self.longest_bytes, int(self.row_bytes))


class Sizing:
    """The arithmetic of one scan.

    Args:
        limit_bytes: Bytes that this scan may plan with. It changes when other scans start or end.
        batch_rows: Maximum number of rows in a batch.
    """

    def __init__(self, limit_bytes: int, batch_rows: int) -> None:
        self.batch_rows = batch_rows
        self.copies = _COPIES
        self.limit_bytes = self.step_bytes = 0
        self.plan_with(limit_bytes)

    def plan_with(self, limit_bytes: int) -> None:
        """Change the limit."""
        self.limit_bytes = limit_bytes
        self.step_bytes = max(_SMALLEST_STEP_BYTES, min(_LARGEST_STEP_BYTES, limit_bytes // 32))

    def step_target_bytes(self, row_bytes: float) -> int:
        """Arrow bytes of a step: small enough for CPU caches, but thousands of rows if they fit.

        Steps of a few MB decode as fast as large ones and hold much less memory. Very wide rows
        need larger steps, because each column adds some overhead to a step.
        """
        return max(self.step_bytes, min(int(_STEP_ROWS * row_bytes), self.limit_bytes // 16))

    def needed_bytes(self, estimate: Estimate, prefetch_bytes: int = 0) -> int:
        """Bytes that must be free to open a stream: its fixed bytes, a step, and the batch."""
        step = self.step_target_bytes(estimate.row_bytes)
        return estimate.fixed_bytes + prefetch_bytes + int(step * (self.copies + 1))

    def streams(self, estimate: Estimate, most: int) -> int:
        """Number of such streams that fit the limit."""
        step = self.step_target_bytes(estimate.row_bytes)
        one = self.needed_bytes(estimate)
        return max(1, min(most, (self.limit_bytes - step) // max(one, 1)))

    def reserve_bytes(self, estimate: Estimate, prefetch_bytes: int = 0) -> int:
        """Bytes that streams keep free when they run ahead: a step of the head, and some slack.

        The slack covers memory that is not leased: free pages of the allocator, and the batch that
        the consumer is using.
        """
        step = int(self.step_target_bytes(estimate.row_bytes) * self.copies)
        spare = self.limit_bytes - self.needed_bytes(estimate, prefetch_bytes)
        return min(max(step, min(self.limit_bytes // 5, spare // 2)), self.limit_bytes // 2)


def refuse_beyond(limit_bytes: int, needed_bytes: int, path: str) -> None:
    """Refuse a stream that does not fit the limit on its own, before it is opened.

    Raises:
        MemoryBudgetError: With a limit that is large enough.
    """
    if needed_bytes <= limit_bytes:
        return
    # Buffers and steps grow with the limit, so recommend enough for the next attempt.
    enough = max(int(needed_bytes * 1.25), needed_bytes + (1 << 20))
    raise over_limit(
        f"reading {path} needs {format_bytes(needed_bytes)}",
        needed_bytes=enough,
        limit_bytes=limit_bytes,
        otherwise="read fewer columns",
    )


class StepSizing:
    """Chooses the rows of a stream's next step, from past steps and the rest of the file."""

    def __init__(self, sizing: Sizing, estimate: Estimate) -> None:
        self._sizing = sizing
        self._recent = 0.0
        self._rows_left = estimate.rows
        self._bytes_left = estimate.row_bytes * estimate.rows * _CERTAIN_SHARE
        self._most_rows = _SURPRISE_ROWS if estimate.surprising else PROBE_ROWS
        self._guess = estimate.row_bytes
        self._is_bound = estimate.is_bound

    def row_bytes(self) -> float:
        """Bytes of a row: the larger of recent rows and the average of the rest of the file."""
        if self._is_bound:
            return max(self._recent, self._guess, 0.125)
        rest = self._bytes_left / self._rows_left if self._rows_left > 0 else 0.0
        return max(self._recent, rest, 0.125) if self._recent else max(self._guess, 0.125)

    def target_bytes(self) -> int:
        """Maximum number of Arrow bytes in a step, unless a single row is larger."""
        return self._sizing.step_target_bytes(self.row_bytes())

    def next_rows(self, free_bytes: int) -> int:
        """Rows for the next step, from the target size and free bytes, without sudden growth."""
        sizing = self._sizing
        row_bytes = self.row_bytes()
        target = sizing.step_target_bytes(row_bytes)
        rows = max(1, int(min(target, free_bytes / sizing.copies) / row_bytes))
        return min(rows, sizing.batch_rows, self._most_rows)

    def step_bytes(self, rows: int) -> int:
        """Bytes to lease for a step while it runs."""
        return int(rows * self.row_bytes() * self._sizing.copies)

    def learn(self, rows: int, delivered_bytes: int) -> None:
        """Update the estimate with the result of a step."""
        if rows == 0:
            return
        now = delivered_bytes / rows
        self._recent = now if now > self._recent else 0.75 * self._recent + 0.25 * now
        self._rows_left = max(self._rows_left - rows, 0)
        self._bytes_left = max(self._bytes_left - delivered_bytes, 0.0)
        self._most_rows = rows * 4


class Counter:
    """A number that several threads add to."""

    def __init__(self) -> None:
        self._value = 0
        self._lock = threading.Lock()

    def add(self, count: int = 1) -> None:
        """Add to it."""
        with self._lock:
            self._value += count

    @property
    def value(self) -> int:
        """The number now."""
        return self._value
