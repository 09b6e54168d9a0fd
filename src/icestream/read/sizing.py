"""How many rows a step, how many streams: a first guess from footers, then what is measured.

Three figures steer a scan:

- the *fixed* bytes of a stream: buffers, pages and dictionaries that it holds between steps;
- the bytes of a *row*, followed as they change along the file;
- the *copies* factor: how much a step takes at its worst moment for each byte it delivers.

The first stream runs alone until its first step is done. What Arrow's pool grew by in that time is
the truth about this table's files, and further streams are admitted by it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pyarrow as pa

from icestream.errors import MemoryBudgetError
from icestream.memory import format_bytes

PROBE_ROWS = 8_192
_SMALLEST_STEP_BYTES = 256 << 10
_LARGEST_STEP_BYTES = 4 << 20
_COPIES = 2.0
_MARGIN = 1.1
_STEP_ROWS = 8_192


@dataclass(frozen=True, slots=True)
class Estimate:
    """A first guess about a stream, from metadata.

    Attributes:
        row_bytes: Arrow bytes of a row.
        fixed_bytes: What the stream holds whatever the step: buffers, pages, dictionaries.
        rows: How many rows it will deliver.
    """

    row_bytes: float
    fixed_bytes: int
    rows: int


class Sizing:
    """What has been learnt about the streams of one scan.

    Args:
        limit_bytes: What they may hold together.
        batch_rows: The most rows in a batch.
        held_bytes: What others hold of the same budget, such as the plan; for messages.
    """

    def __init__(self, limit_bytes: int, batch_rows: int, held_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self._held_bytes = held_bytes
        self.batch_rows = batch_rows
        self.step_bytes = max(_SMALLEST_STEP_BYTES, min(_LARGEST_STEP_BYTES, limit_bytes // 32))
        self.copies = _COPIES
        self.measured = False
        self._fixed_scale = 1.0

    def fixed_bytes(self, estimate: Estimate) -> int:
        """What a stream is charged while it is open."""
        return int(estimate.fixed_bytes * self._fixed_scale)

    def step_target_bytes(self, row_bytes: float) -> int:
        """Arrow bytes of a step: small enough for the caches, yet thousands of rows if they fit.

        Steps of a few MB decode as fast as large ones and keep far less in flight; very wide rows
        want more, because every column costs a little each step.
        """
        return max(self.step_bytes, min(int(_STEP_ROWS * row_bytes), self.limit_bytes // 16))

    def streams(self, estimate: Estimate, most: int, prefetch_bytes: int = 0) -> int:
        """How many such streams fit the limit, beside room for their steps and finished batches."""
        step = self.step_target_bytes(estimate.row_bytes)
        one = self.fixed_bytes(estimate) + prefetch_bytes + int(step * (self.copies + 1))
        return max(1, min(most, (self.limit_bytes - step) // max(one, 1)))

    def reserve_bytes(self, estimate: Estimate, streams: int, prefetch_bytes: int = 0) -> int:
        """What streams that run ahead leave free: a step of the head of the line, and some slack.

        The slack is there because the process holds a little more than what is accounted for: the
        allocator's free pages, and the batch that the consumer has in its hands.
        """
        step = int(self.step_target_bytes(estimate.row_bytes) * self.copies)
        spare = self.limit_bytes - streams * (self.fixed_bytes(estimate) + prefetch_bytes + step)
        return min(max(step, min(self.limit_bytes // 5, spare // 2)), self.limit_bytes // 2)

    def learn(self, estimate: Estimate, probe: Probe, prefetch_bytes: int = 0) -> None:
        """Take over what the first step of the first stream cost.

        Raises:
            MemoryBudgetError: If one stream alone does not fit the limit.
        """
        needed = probe.peak_bytes + prefetch_bytes
        if needed > self.limit_bytes:
            # Buffers and steps grow with the limit: ask for enough that the next try succeeds.
            asked = max(int(needed * 1.25), needed + (1 << 20)) + self._held_bytes
            limit = self.limit_bytes + self._held_bytes
            raise MemoryBudgetError(
                f"one stream of this table needs {format_bytes(needed)} and the limit is "
                f"{format_bytes(limit)}: raise memory to {format_bytes(asked)} or more, "
                "or read fewer columns",
                needed_bytes=asked,
                limit_bytes=limit,
            )
        if estimate.fixed_bytes:
            scale = _MARGIN * probe.fixed_bytes / estimate.fixed_bytes
            self._fixed_scale = min(max(scale, 0.1), 4.0)
        self.measured = True


@dataclass(frozen=True, slots=True)
class Probe:
    """What the first stream's opening and first step did to Arrow's pool.

    Attributes:
        fixed_bytes: Still held afterwards, beside the batch.
        peak_bytes: The most at any moment.
    """

    fixed_bytes: int
    peak_bytes: int


class PoolProbe:
    """Watches Arrow's pool. It belongs to the whole process: good to calibrate, not to account."""

    def __init__(self) -> None:
        pool = pa.default_memory_pool()
        self._before = pool.bytes_allocated()
        self._watermark = pool.max_memory()

    def finish(self, delivered_bytes: int) -> Probe:
        """The growth since the start, less what was delivered."""
        pool = pa.default_memory_pool()
        held = pool.bytes_allocated() - self._before
        peak = pool.max_memory()
        highest = peak - self._before if peak > self._watermark else held
        return Probe(max(held - delivered_bytes, 0), max(highest, held))


class StepSizing:
    """The rows of a stream's next step, by what the last ones and the rest of the file cost."""

    def __init__(self, sizing: Sizing, estimate: Estimate) -> None:
        self._sizing = sizing
        self._recent = 0.0
        self._rows_left = estimate.rows
        self._bytes_left = estimate.row_bytes * estimate.rows
        self._last_rows = 0
        self._guess = estimate.row_bytes

    def row_bytes(self) -> float:
        """The larger of what rows cost lately and what the rest of the file averages."""
        rest = self._bytes_left / self._rows_left if self._rows_left > 0 else 0.0
        return max(self._recent, rest, 0.125) if self._recent else max(self._guess, 0.125)

    def next_rows(self, free_bytes: int) -> int:
        """Rows for the next step: by the target size, what is free, and no sudden growth."""
        sizing = self._sizing
        row_bytes = self.row_bytes()
        target = sizing.step_target_bytes(row_bytes)
        rows = max(1, int(min(target, free_bytes / sizing.copies) / row_bytes))
        ceiling = PROBE_ROWS if self._last_rows == 0 else self._last_rows * 4
        return min(rows, sizing.batch_rows, ceiling)

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
        self._last_rows = rows


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
