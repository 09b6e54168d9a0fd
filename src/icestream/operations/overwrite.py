"""`overwrite`: replace rows of a table with those of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation

from icestream.catalogs.lookup import resolve_table
from icestream.commit.landing import landing_of
from icestream.errors import InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget
from icestream.operations.row_changes import (
    EverythingRemoved,
    MatchingRemoved,
    Workers,
    WrittenPartitionsRemoved,
    is_partitioned,
)
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_options import WriteOptions
from icestream.operations.write_parts import RowChanges
from icestream.report.write_report import WriteReport
from icestream.write.schema.schema_plan import SchemaMode


def overwrite(
    table: str | Table | Transaction,
    source: object,
    *,
    catalog: str | Catalog | None = None,
    where: str | BooleanExpression | None = None,
    partitions: Literal["dynamic"] | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
) -> WriteReport:
    """Replace rows of a table with those of a stream, as exactly one snapshot.

    Args:
        table: A table's name such as `"db.t"`, a PyIceberg table, or an open transaction in which
            the overwrite is staged.
        source: Any Arrow stream, or a callable that opens one, see `append`.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        where: Replace the rows for which this filter is true. Rows for which it is null stay.
            Without it, the whole table is replaced.
        partitions: `"dynamic"` replaces the partitions present in the stream.
        memory: Maximum number of bytes held. Half is for reading if files are partly rewritten.
        schema_mode: What to do if the stream's columns differ from the table's, see `append`.
        branch: The branch that gets the snapshot; it must exist.
        properties: Properties for the snapshot's summary.
        load_id: Identifies this write: a second call with the same id does nothing.

    Returns:
        A report.

    Raises:
        SchemaMismatchError: If the stream does not fit the table; nothing was written.
        InvalidDataError: If a value can't be stored.
        CommitConflictError: If concurrent commits added or deleted rows that affect this overwrite.
        CommitUnknownError: If the commit may or may not have happened.
    """
    into: Table | Transaction = resolve_table(table, catalog)
    options = WriteOptions(
        memory=memory,
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
    )
    changes = row_changes_for(into, where, partitions)
    return WriteOperation(into, Operation.OVERWRITE, changes, options).run(source)


def row_changes_for(
    table: Table | Transaction,
    where: str | BooleanExpression | None,
    partitions: Literal["dynamic"] | None,
    workers: Workers | None = None,
) -> RowChanges:
    """The row changes of an overwrite with these arguments.

    Args:
        table: The table, or a transaction.
        where: The filter of the rows to replace.
        partitions: `"dynamic"` replaces the partitions that the stream has rows for.
        workers: Read manifests, and rewrite files that keep rows. By default this process does.

    Raises:
        InvalidArgumentError: If the arguments are invalid or exclude each other.
    """
    if partitions not in (None, "dynamic"):
        raise InvalidArgumentError(f"partitions is {partitions!r}: give 'dynamic' or leave it out")
    if where is not None and partitions is not None:
        raise InvalidArgumentError(
            "where and partitions both say what to replace: give one of them"
        )
    if partitions is not None:
        landing = landing_of(table)
        if not is_partitioned(landing.refresh().spec()):
            raise InvalidArgumentError(
                f"{landing.name} is not partitioned: leave partitions='dynamic' out to replace "
                "the whole table, or give where="
            )
        return WrittenPartitionsRemoved(workers)
    return EverythingRemoved(workers) if where is None else MatchingRemoved(where, workers)
