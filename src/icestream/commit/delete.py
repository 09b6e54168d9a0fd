"""`delete`: rows go, in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation

from icestream.commit.load import Load
from icestream.commit.removal import MatchingRemoved
from icestream.memory import DEFAULT_MEMORY, MemoryBudget
from icestream.report import WriteReport


def delete(
    table: Table | Transaction,
    where: str | BooleanExpression,
    *,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
) -> WriteReport:
    """Delete the rows for which a filter is true, as exactly one snapshot.

    Rows for which it is null stay. Files whose rows all match are removed without being read; of
    the others only those with matching rows are written again. Where the table property
    `write.delete.mode` is `merge-on-read` they stay as they are, and position delete files say
    which rows are gone. Nothing to delete, no snapshot.

    Args:
        table: A PyIceberg table; or an open transaction, in which the delete is staged.
        where: A filter string or a PyIceberg expression.
        memory: The most bytes held.
        branch: The branch that gets the snapshot; it must exist.
        properties: For the snapshot's summary.
        load_id: Names this delete: a second call with the same id does nothing.

    Returns:
        What happened.

    Raises:
        CommitConflictError: If rows were added or deleted meanwhile that this change would have had
            to see.
    """
    load = Load(
        table,
        Operation.DELETE,
        MatchingRemoved(where),
        memory=memory,
        branch=branch,
        properties=properties,
        load_id=load_id,
    )
    return load.run(iter(()))
