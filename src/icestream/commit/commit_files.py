"""`commit_files`: files that workers wrote become one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation

from icestream.commit.change import SchemaChange
from icestream.commit.landing import landing_of
from icestream.commit.load import Load
from icestream.commit.overwrite import removal_of
from icestream.commit.removal import NothingRemoved
from icestream.commit.schema_change import evolved
from icestream.commit.write_files import unique_files
from icestream.errors import InvalidArgumentError
from icestream.memory import DEFAULT_MEMORY, MemoryBudget
from icestream.report import WriteReport
from icestream.write.new_file import NewFile
from icestream.write.target import WriteTarget


def commit_files(
    table: Table | Transaction,
    files: Iterable[NewFile],
    *,
    mode: Literal["append", "overwrite"] = "append",
    where: str | BooleanExpression | None = None,
    partitions: Literal["dynamic"] | None = None,
    target: WriteTarget | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
) -> WriteReport:
    """Commit files from `write_files`, of any number of workers, as exactly one snapshot.

    The same files are not committed twice: a second call says `already_committed`.

    Args:
        table: The table; or an open transaction, in which the change is staged.
        files: What the workers' `write_files` returned.
        mode: `"append"`, or `"overwrite"` with where and partitions as of `overwrite`.
        target: What `write_target` made, if it evolved the schema.
        memory: The most bytes held, where files of the table are partly rewritten.
        branch: As of `append`; likewise properties and load_id.

    Returns:
        What happened.

    Raises:
        CommitConflictError: If it was refused beside another change; the files are deleted.
        CommitUnknownError: If it is not known whether the commit happened.
    """
    if mode not in ("append", "overwrite"):
        raise InvalidArgumentError(f"mode is {mode!r}: give 'append' or 'overwrite'")
    if mode == "append" and (where is not None or partitions is not None):
        raise InvalidArgumentError("where and partitions are for mode='overwrite'")
    landing = landing_of(table)
    listed = unique_files(files, table_uuid=str(landing.refresh().table_uuid), table=landing.name)
    schema = _evolved(target, listed)
    load = Load(
        table,
        Operation.APPEND if mode == "append" else Operation.OVERWRITE,
        NothingRemoved() if mode == "append" else removal_of(table, where, partitions),
        memory=memory,
        branch=branch,
        properties=properties,
        load_id=load_id,
    )
    return load.run_files(listed, schema)


def _evolved(target: WriteTarget | None, files: list[NewFile]) -> SchemaChange | None:
    if target is not None and (change := evolved(target, ())) is not None:
        return change
    if any(file.schema_id is None for file in files):
        raise InvalidArgumentError(
            "the files have an evolved schema: pass target= what write_target() returned"
        )
    return None
