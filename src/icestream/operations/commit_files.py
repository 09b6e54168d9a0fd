"""`commit_files`: commit the files that workers wrote as one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation

from icestream.catalogs.lookup import resolve_table
from icestream.commit.change import SchemaChange
from icestream.commit.landing import landing_of
from icestream.commit.schema_change import evolved
from icestream.errors import InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget
from icestream.operations.overwrite import row_changes_for
from icestream.operations.row_changes import NoRowChanges
from icestream.operations.write_files import unique_files
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_options import WriteOptions
from icestream.report.write_report import WriteReport
from icestream.write.new_file import NewFile
from icestream.write.target import WriteTarget


def commit_files(
    table: str | Table | Transaction,
    files: Iterable[NewFile],
    *,
    catalog: str | Catalog | None = None,
    mode: Literal["append", "overwrite"] = "append",
    where: str | BooleanExpression | None = None,
    partitions: Literal["dynamic"] | None = None,
    target: WriteTarget | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
) -> WriteReport:
    """Commit files that any number of workers wrote with `write_files`, as exactly one snapshot.

    The same files are not committed twice: the report of a second call says `already_committed`.

    A call that fails does not delete the files. They belong to the caller, and the catalog may
    still complete the commit of an earlier call. Call it again with the same files, or let
    `icestream.orphans` delete them.

    Args:
        table: A table's name such as `"db.t"`, a PyIceberg table, or an open transaction in which
            the change is staged.
        files: The files that the workers' `write_files` returned.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        mode: `"append"`, or `"overwrite"` to replace rows.
        where: For an overwrite: replace the rows for which this filter is true. Without it, the
            whole table is replaced.
        partitions: For an overwrite: `"dynamic"` replaces the partitions that the files belong to.
        target: The result of `write_target`, if it evolved the schema.
        memory: Maximum number of bytes held if files of the table are partly rewritten.
        branch: The branch that gets the snapshot; it must exist.
        properties: Properties for the snapshot's summary.
        load_id: Identifies this write: a second call with the same id does nothing.

    Returns:
        A report.

    Raises:
        CommitConflictError: If the commit conflicts with a concurrent change.
        CommitUnknownError: If the commit may or may not have happened.
    """
    into: Table | Transaction = resolve_table(table, catalog)
    if mode not in ("append", "overwrite"):
        raise InvalidArgumentError(f"mode is {mode!r}: give 'append' or 'overwrite'")
    if mode == "append" and (where is not None or partitions is not None):
        raise InvalidArgumentError("where and partitions are for mode='overwrite'")
    landing = landing_of(into)
    listed = unique_files(files, table_uuid=str(landing.refresh().table_uuid), table=landing.name)
    schema = _evolved(target, listed)
    options = WriteOptions(memory=memory, branch=branch, properties=properties, load_id=load_id)
    is_append = mode == "append"
    operation = Operation.APPEND if is_append else Operation.OVERWRITE
    changes = NoRowChanges() if is_append else row_changes_for(into, where, partitions)
    return WriteOperation(into, operation, changes, options).run_files(listed, schema)


def _evolved(target: WriteTarget | None, files: list[NewFile]) -> SchemaChange | None:
    if target is not None and (change := evolved(target, ())) is not None:
        return change
    if any(file.schema_id is None for file in files):
        raise InvalidArgumentError(
            "the files have an evolved schema: pass the result of write_target() as target="
        )
    return None
