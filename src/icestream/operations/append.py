"""`append`: add the rows of a stream to a table."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation

from icestream.catalogs.lookup import resolve_table
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget
from icestream.operations.row_changes import NoRowChanges
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_options import WriteOptions
from icestream.report.write_report import WriteReport
from icestream.write.schema.schema_plan import SchemaMode


def append(
    table: str | Table | Transaction,
    source: object,
    *,
    catalog: str | Catalog | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
) -> WriteReport:
    """Append a stream to a table, as exactly one snapshot, inside a memory limit.

    Args:
        table: A table's name such as `"db.t"`, a PyIceberg table, or an open transaction in which
            the append is staged.
        source: Any Arrow stream: a table, reader, iterator of batches, dataset scanner, anything
            with `__arrow_c_stream__` (Polars, DuckDB, pandas), or a callable that opens one.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        memory: Maximum number of bytes that the write holds: `"256MB"`, a number, or a budget
            shared with the scan that feeds it.
        schema_mode: What to do if the stream's columns differ from the table's: `"freeze"` refuses
            the stream, `"evolve"` changes the table in the same commit, `"discard"` drops unknown
            columns.
        branch: The branch that gets the snapshot; it must exist.
        properties: Properties for the snapshot's summary.
        load_id: Identifies this write: a second call with the same id does nothing.

    Returns:
        A report. An empty stream creates a snapshot only if there is a load id to record.

    Raises:
        SchemaMismatchError: If the stream does not fit the table; nothing was written.
        InvalidDataError: If a value can't be stored.
        CommitConflictError: If the commit was refused.
        CommitUnknownError: If the commit may or may not have happened.

    Memory: Arrow bytes held stay within `memory`, whatever the length of the stream.
    """
    into: Table | Transaction = resolve_table(table, catalog)
    options = WriteOptions(
        memory=memory,
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
    )
    return WriteOperation(into, Operation.APPEND, NoRowChanges(), options).run(source)
