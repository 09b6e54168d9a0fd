"""`append`: rows of a stream become one snapshot on top of what is there."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation

from icestream.commit.load import Load
from icestream.commit.removal import NothingRemoved
from icestream.memory import DEFAULT_MEMORY, MemoryBudget
from icestream.report import WriteReport
from icestream.write.schema import SchemaMode


def append(
    table: Table | Transaction,
    source: object,
    *,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
) -> WriteReport:
    """Append a stream to a table, as exactly one snapshot, inside a memory limit.

    Args:
        table: A PyIceberg table; or an open transaction, in which the append is staged.
        source: Any Arrow stream: a table, reader, iterator of batches, dataset scanner, anything
            with `__arrow_c_stream__` (Polars, DuckDB, pandas), or a callable that opens one.
        memory: The most bytes that the write holds: `"256MB"`, bytes, or a budget shared with the
            scan that feeds it.
        schema_mode: Where the stream's columns are not the table's: `"freeze"` refuses, `"evolve"`
            changes the table in the same commit, `"discard"` drops unknown columns.
        branch: The branch that gets the snapshot; it must exist.
        properties: For the snapshot's summary.
        load_id: Names this load: a second call with the same id does nothing.

    Returns:
        What happened. An empty stream makes no snapshot, unless there is a load id to remember.

    Raises:
        SchemaMismatchError: If the stream does not fit the table; nothing was written.
        InvalidDataError: If a value can't be stored.
        CommitConflictError: If the commit was refused.
        CommitUnknownError: If it is not known whether the commit happened.

    Memory: Arrow bytes held stay within `memory`, whatever the length of the stream.
    """
    load = Load(
        table,
        Operation.APPEND,
        NothingRemoved(),
        memory=memory,
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
    )
    return load.run(source)
