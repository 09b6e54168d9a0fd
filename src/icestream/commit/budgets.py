"""The caller's memory limit, cut among what a load does at a time."""

from __future__ import annotations

from dataclasses import dataclass

from icestream.errors import MemoryBudgetError
from icestream.memory import MemoryBudget, format_bytes


@dataclass(frozen=True, slots=True)
class Budgets:
    """The caller's limit: all for writing; or half each for writing and reading; or a quarter.

    Rows that wait for others have the other half then.
    """

    write: MemoryBudget
    scan: MemoryBudget
    rows: MemoryBudget
    limit_bytes: int

    @classmethod
    def of(cls, budget: MemoryBudget, *, shares: int) -> Budgets:
        """Cut a limit for one, two or three things that are done at a time."""
        if shares == 1:
            return cls(budget, budget, budget, budget.limit_bytes)
        half, quarter = (max(1, budget.limit_bytes // parts) for parts in (2, 4))
        other = half if shares == 2 else quarter
        return cls(MemoryBudget(other), MemoryBudget(other), MemoryBudget(half), budget.limit_bytes)

    def of_the_whole(self, error: MemoryBudgetError) -> MemoryBudgetError:
        """The error of a part that was too small, in terms of the caller's limit."""
        if error.limit_bytes >= self.limit_bytes:
            return error
        needed = error.needed_bytes * self.limit_bytes // error.limit_bytes + 1
        return MemoryBudgetError(
            f"{error}. That is about a part of the limit of {format_bytes(self.limit_bytes)}: as a "
            f"whole, raise memory to {format_bytes(needed)} or more",
            needed_bytes=needed,
            limit_bytes=self.limit_bytes,
        )

    @property
    def peak_bytes(self) -> int:
        """The most that was held, of all parts together."""
        if self.write is self.scan:
            return self.write.peak_bytes
        return self.write.peak_bytes + self.scan.peak_bytes + self.rows.peak_bytes
