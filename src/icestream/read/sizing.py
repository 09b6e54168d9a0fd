"""How many rows a step, how many streams: from what files say of themselves, and what steps cost.

Three figures steer a scan:

- the *fixed* bytes of a stream: buffers, pages and dictionaries that it holds between steps, known
  before it is opened;
- the bytes of a *row*, followed as they change along the file;
- the *copies* factor: how much a step takes at its worst moment for each byte it delivers.

A stream is opened when its fixed bytes, a step and the step's batch fit beside what is held, so
that the account alone decides how many streams there are.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from icestream.errors import MemoryBudgetError
from icestream.memory import format_bytes

PROBE_ROWS = 8_192
_SURPRISE_ROWS = 8
_SMALLEST_STEP_BYTES = 256 << 10
_LARGEST_STEP_BYTES = 4 << 20
_COPIES = 2.0
_STEP_ROWS = 8_192
# Estimates are too high rather than too low, so that only this share of one is expected to come.
# Otherwise the surplus would be expected in the last rows of a file, and their steps would shrink.
_CERTAIN_SHARE = 0.875


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known about a stream before it is opened.

    Attributes:
        row_bytes: Arrow bytes of a row.
        fixed_bytes: What the stream holds whatever the step: buffers, pages, dictionaries.
        rows: How many rows it will deliver.
        longest_bytes: No value of it is longer, as far as that is known.
        surprising: Whether rows may be far longer than their stored bytes tell, so that the first
            step is to be a small one.
    """

    row_bytes: float
    fixed_bytes: int
    rows: int
    longest_bytes: int = 0
    surprising: bool = False

    @property
    def least_bytes(self) -> int:
        """What the stream takes at least: with steps of a single row, the longest there is."""
        return self.fixed_bytes + max(self.longest_bytes, int(self.row_bytes))


class Sizing:
    """The arithmetic of one scan.

    Args:
        limit_bytes: What this scan may plan with; another number later, if others come or leave.
        batch_rows: The most rows in a batch.
    """

    def __init__(self, limit_bytes: int, batch_rows: int) -> None:
        self.batch_rows = batch_rows
        self.copies = _COPIES
        self.limit_bytes = self.step_bytes = 0
        self.plan_with(limit_bytes)

    def plan_with(self, limit_bytes: int) -> None:
        """Work with another limit from now on."""
        self.limit_bytes = limit_bytes
        self.step_bytes = max(_SMALLEST_STEP_BYTES, min(_LARGEST_STEP_BYTES, limit_bytes // 32))

    def step_target_bytes(self, row_bytes: float) -> int:
        """Arrow bytes of a step: small enough for the caches, yet thousands of rows if they fit.

        Steps of a few MB decode as fast as large ones and keep far less in flight; very wide rows
        want more, because every column costs a little each step.
        """
        return max(self.step_bytes, min(int(_STEP_ROWS * row_bytes), self.limit_bytes // 16))

    def needed_bytes(self, estimate: Estimate, prefetch_bytes: int = 0) -> int:
        """What a stream is opened with: its fixed bytes, a step, and the step's batch."""
        step = self.step_target_bytes(estimate.row_bytes)
        return estimate.fixed_bytes + prefetch_bytes + int(step * (self.copies + 1))

    def streams(self, estimate: Estimate, most: int) -> int:
        """How many such streams fit the limit."""
        step = self.step_target_bytes(estimate.row_bytes)
        one = self.needed_bytes(estimate)
        return max(1, min(most, (self.limit_bytes - step) // max(one, 1)))

    def reserve_bytes(self, estimate: Estimate, prefetch_bytes: int = 0) -> int:
        """What streams that run ahead leave free: a step of the head of the line, and some slack.

        The slack is there because the process holds a little more than what is accounted for: the
        allocator's free pages, and the batch that the consumer has in its hands.
        """
        step = int(self.step_target_bytes(estimate.row_bytes) * self.copies)
        spare = self.limit_bytes - self.needed_bytes(estimate, prefetch_bytes)
        return min(max(step, min(self.limit_bytes // 5, spare // 2)), self.limit_bytes // 2)


def refuse_beyond(limit_bytes: int, needed_bytes: int, path: str) -> None:
    """Refuse a stream that does not fit the limit even alone, before it is opened.

    Raises:
        MemoryBudgetError: With the bytes that it needs.
    """
    if needed_bytes <= limit_bytes:
        return
    # Buffers and steps grow with the limit: ask for enough that the next try succeeds.
    asked = max(int(needed_bytes * 1.25), needed_bytes + (1 << 20))
    raise MemoryBudgetError(
        f"one stream of this table needs {format_bytes(needed_bytes)} to read {path}, and the "
        f"limit is {format_bytes(limit_bytes)}: raise memory to {format_bytes(asked)} or more, or "
        "read fewer columns",
        needed_bytes=asked,
        limit_bytes=limit_bytes,
    )


class StepSizing:
    """The rows of a stream's next step, by what the last ones and the rest of the file cost."""

    def __init__(self, sizing: Sizing, estimate: Estimate) -> None:
        self._sizing = sizing
        self._recent = 0.0
        self._rows_left = estimate.rows
        self._bytes_left = estimate.row_bytes * estimate.rows * _CERTAIN_SHARE
        self._most_rows = _SURPRISE_ROWS if estimate.surprising else PROBE_ROWS
        self._guess = estimate.row_bytes

    def row_bytes(self) -> float:
        """The larger of what rows cost lately and what the rest of the file averages."""
        rest = self._bytes_left / self._rows_left if self._rows_left > 0 else 0.0
        return max(self._recent, rest, 0.125) if self._recent else max(self._guess, 0.125)

    def target_bytes(self) -> int:
        """Arrow bytes that a step is to deliver at most, a row of more than that apart."""
        return self._sizing.step_target_bytes(self.row_bytes())

    def next_rows(self, free_bytes: int) -> int:
        """Rows for the next step: by the target size, what is free, and no sudden growth."""
        sizing = self._sizing
        row_bytes = self.row_bytes()
        target = sizing.step_target_bytes(row_bytes)
        rows = max(1, int(min(target, free_bytes / sizing.copies) / row_bytes))
        return min(rows, sizing.batch_rows, self._most_rows)

    def step_bytes(self, rows: int) -> int:
        """What such a step is charged while it runs."""
        return int(rows * self.row_bytes() * self._sizing.copies)

    def learn(self, rows: int, delivered_bytes: int) -> None:
        """Take over what a step of so many rows came to."""
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
