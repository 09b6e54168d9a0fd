"""The caller's memory limit, divided among the parts of an operation that run together."""

from __future__ import annotations

from dataclasses import dataclass

from icestream.errors import MemoryBudgetError
from icestream.memory.budget import MemoryBudget, format_bytes

_CHUNKS_SHARE = 16  # 1/16 of the limit stays reserved for chunks of waiting rows.


@dataclass(frozen=True, slots=True)
class Budgets:
    """The memory for each part of an operation.

    With one share, writing gets the whole limit. With two, writing and reading get half each. With
    three, they get a quarter each, and rows that wait for others get half.
    """

    write: MemoryBudget
    scan: MemoryBudget
    rows: MemoryBudget
    whole: MemoryBudget

    @classmethod
    def of(cls, budget: MemoryBudget, *, shares: int) -> Budgets:
        """Divide a limit among one, two or three parts that run together."""
        if shares == 1:
            return cls(budget, budget, budget, budget)
        half, quarter = (max(1, budget.limit_bytes // parts) for parts in (2, 4))
        other = half if shares == 2 else quarter
        write, scan, rows = (MemoryBudget(part, whole=budget) for part in (other, other, half))
        return cls(write, scan, rows, budget)

    def share_what_rows_left(self) -> None:
        """Give the memory that waiting rows do not need to writing and reading, half each.

        Call this after the last row has arrived, while nothing is being written or read.
        """
        spare = self.rows.free_bytes - self.whole.limit_bytes // _CHUNKS_SHARE
        if spare > 0:
            self.rows.limit_bytes -= spare
            self.write.limit_bytes += spare // 2
            self.scan.limit_bytes += spare - spare // 2

    def of_the_whole(self, error: MemoryBudgetError) -> MemoryBudgetError:
        """Convert the error of a part to one about the caller's limit."""
        limit = self.whole.limit_bytes
        if error.limit_bytes >= limit:
            return error
        needed = error.needed_bytes * limit // error.limit_bytes + 1
        return MemoryBudgetError(
            f"{error}. That is the limit of one part, and the whole limit is "
            f"{format_bytes(limit)}: in total, raise memory to {format_bytes(needed)} or more",
            needed_bytes=needed,
            limit_bytes=limit,
        )
