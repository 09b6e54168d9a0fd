"""`delete`: delete the rows that match a filter."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation

from icestream.catalogs.lookup import resolve_table
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget
from icestream.operations.row_changes import MatchingRemoved
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_options import WriteOptions
from icestream.report.write_report import WriteReport


def delete(
    table: str | Table | Transaction,
    where: str | BooleanExpression,
    *,
    catalog: str | Catalog | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
    dry_run: bool = False,
) -> WriteReport:
    """Delete the rows for which a filter is true, as exactly one snapshot.

    Rows for which the filter is null stay. Files whose rows all match are removed without being
    read. Other files with matching rows are rewritten without them. If the table property
    `write.delete.mode` is `merge-on-read`, these files stay, and position delete files mark the
    deleted rows. If no row matches, there is no snapshot.

    Args:
        table: A table's name such as `"db.t"`, a PyIceberg table, or an open transaction in which
            the delete is staged.
        where: A filter string or a PyIceberg expression.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        memory: Maximum number of bytes held.
        branch: The branch that gets the snapshot; it must exist.
        properties: Properties for the snapshot's summary.
        load_id: Identifies this delete: a second call with the same id does nothing.
        dry_run: Whether to count what would change, and write and commit nothing. The report has
            the rows to delete and the files to remove or rewrite.

    Returns:
        A report.

    Raises:
        CommitConflictError: If concurrent commits added or deleted rows that affect this delete.
    """
    into: Table | Transaction = resolve_table(table, catalog)
    options = WriteOptions(
        memory=memory, branch=branch, properties=properties, load_id=load_id, dry_run=dry_run
    )
    return WriteOperation(into, Operation.DELETE, MatchingRemoved(where), options).run(iter(()))
