"""PyIceberg's transaction. Its writes are icestream's, and make one snapshot."""

from __future__ import annotations

from pyiceberg.table import Table

from icestream.commit.joined_transaction import JoinedCreation, JoinedTransaction
from icestream.integrations.pyiceberg_tables.writes import StreamingWrites
from icestream.memory.budget import MemoryBudget


class StreamingTransaction(StreamingWrites, JoinedTransaction):
    """A transaction whose writes stream within a memory limit.

    Args:
        table: The table.
        memory: The memory limit of each write.
    """

    def __init__(self, table: Table, memory: int | str | MemoryBudget) -> None:
        super().__init__(table)
        self.memory = memory


class StreamingCreation(StreamingWrites, JoinedCreation):
    """A transaction that creates a table, with its first rows in one snapshot.

    Args:
        table: The table, which is not in the catalog yet.
        memory: The memory limit of each write.
    """

    def __init__(self, table: Table, memory: int | str | MemoryBudget) -> None:
        super().__init__(table)
        self.memory = memory
