"""All rows of a scan as one Arrow table, inside the memory limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from icestream.errors import MemoryBudgetError
from icestream.memory.budget import MemoryBudget, format_bytes, over_limit

_OTHERWISE = "read fewer columns or rows, or iterate over the scan batch by batch"


@dataclass(frozen=True, slots=True)
class Collection:
    """What to collect, and the memory that it may take.

    Attributes:
        schema: The schema of the batches.
        name: The table's name, for messages.
        kind: What the rows become, for messages: `"an Arrow table"`.
        budget: The budget of the scan. The collected rows count towards it, too.
        added_bytes: The bytes that a conversion of a batch adds. The batch stays in memory.
        rows_at_least: Number of rows that the scan surely returns; 0 if unknown.
        rows_at_most: Number of rows according to metadata. Called before an error is raised.
    """

    schema: pa.Schema
    name: str
    kind: str
    budget: MemoryBudget
    added_bytes: Callable[[pa.RecordBatch], int]
    rows_at_least: int
    rows_at_most: Callable[[], int]

    def surely_exceeds(self, *, unread: bool) -> bool:
        """Whether the rows that the scan surely returns are too large for the limit.

        Args:
            unread: Whether nothing was read yet. Then only columns of a fixed width are judged,
                because a limit that is large enough can't be computed for others.
        """
        widths = [least_width(field.type) for field in self.schema]
        if unread and not all(map(is_fixed, self.schema.types)):
            return False
        most_rows = self.budget.limit_bytes / max(sum(widths), 1)
        # Summaries of snapshots are not always right, so the manifests must agree.
        return self.rows_at_least > most_rows and self.rows_at_most() > most_rows

    def refusal(self, rows: int, rows_bytes: float) -> MemoryBudgetError:
        """The error for rows that do not fit. The limit in it is estimated from some rows.

        Args:
            rows: Number of rows read so far.
            rows_bytes: Bytes that these rows take.
        """
        working_bytes = max(self.budget.held_bytes - rows_bytes, 0)
        total_bytes = rows_bytes / max(rows, 1) * max(self.rows_at_most(), rows)
        # Batches differ in size, and the buffers of the scan grow with the limit.
        needed_bytes = int(1.25 * (1.05 * total_bytes + working_bytes)) + (1 << 20)
        return over_limit(
            f"the rows of {self.name} take about {format_bytes(int(total_bytes))} as {self.kind}",
            needed_bytes=needed_bytes,
            limit_bytes=self.budget.limit_bytes,
            otherwise=_OTHERWISE,
        )


def collect(batches: Iterator[pa.RecordBatch], wanted: Collection) -> pa.Table:
    """All batches as one table.

    Args:
        batches: The batches of a scan that uses the same budget.
        wanted: What to collect.

    Raises:
        MemoryBudgetError: If the rows and the scan's own memory do not fit the limit together. If
            that is sure, it is raised before anything is read or after the first batch.

    Memory: the limit. The table no longer counts when it is returned.
    """
    if wanted.surely_exceeds(unread=True):
        raise wanted.refusal(8, sum(8 * least_width(kind) for kind in wanted.schema.types))
    budget, kept, rows = wanted.budget, list[pa.RecordBatch](), 0
    too_large = wanted.surely_exceeds(unread=False)
    lease = budget.force(0)
    try:
        for batch in batches:
            # The scan holds the lease of this batch until it is asked for the next one.
            held_bytes = lease.held_bytes + batch.get_total_buffer_size()
            held_bytes += wanted.added_bytes(batch)
            rows += batch.num_rows
            if too_large or max(held_bytes, budget.held_bytes) > budget.limit_bytes:
                raise wanted.refusal(rows, held_bytes)
            kept.append(batch)
            lease.resize(held_bytes)
            del batch
        return pa.Table.from_batches(kept, wanted.schema)
    finally:
        getattr(batches, "close", lambda: None)()
        lease.release()


def is_fixed(kind: pa.DataType) -> bool:
    """Whether all values of this type take the same number of bytes."""
    try:
        return bool(kind.bit_width)
    except ValueError:
        return False


def least_width(kind: pa.DataType) -> float:
    """Bytes that a value of this type takes at least, even a null."""
    if isinstance(kind, pa.ExtensionType):
        return least_width(kind.storage_type)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_list(kind):
        return 4.0
    try:
        return float(kind.bit_width / 8)
    except ValueError:
        return 0.0
