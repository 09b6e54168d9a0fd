"""The caller's memory limit, cut among what a load does at a time."""

from __future__ import annotations

from dataclasses import dataclass

from icestream.errors import MemoryBudgetError
from icestream.memory import MemoryBudget, format_bytes

_CHUNKS_SHARE = 16  # Of the limit: what rows that wait still take when they are asked for.


@dataclass(frozen=True, slots=True)
class Budgets:
    """The caller's limit: all for writing; or half each for writing and reading; or a quarter.

    Rows that wait for others have the other half then.
    """

    write: MemoryBudget
    scan: MemoryBudget
    rows: MemoryBudget
    whole: MemoryBudget

    @classmethod
    def of(cls, budget: MemoryBudget, *, shares: int) -> Budgets:
        """Cut a limit for one, two or three things that are done at a time."""
        if shares == 1:
            return cls(budget, budget, budget, budget)
        half, quarter = (max(1, budget.limit_bytes // parts) for parts in (2, 4))
        other = half if shares == 2 else quarter
        write, scan, rows = (MemoryBudget(part, whole=budget) for part in (other, other, half))
        return cls(write, scan, rows, budget)

    def share_what_rows_left(self) -> None:
        """Give what rows that wait don't need to writing and reading, half each.

        For the moment when no more rows come, and nothing is being written or read.
        """
        spare = self.rows.free_bytes - self.whole.limit_bytes // _CHUNKS_SHARE
        if spare > 0:
            self.rows.limit_bytes -= spare
            self.write.limit_bytes += spare // 2
            self.scan.limit_bytes += spare - spare // 2

    def of_the_whole(self, error: MemoryBudgetError) -> MemoryBudgetError:
        """The error of a part that was too small, in terms of the caller's limit."""
        limit = self.whole.limit_bytes
        if error.limit_bytes >= limit:
            return error
        needed = error.needed_bytes * limit // error.limit_bytes + 1
        return MemoryBudgetError(
            f"{error}. That is about a part of the limit of {format_bytes(limit)}: as a "
            f"whole, raise memory to {format_bytes(needed)} or more",
            needed_bytes=needed,
            limit_bytes=limit,
        )
