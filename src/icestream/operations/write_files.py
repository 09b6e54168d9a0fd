"""`write_files`: write files in the workers of any framework, for `commit_files` to commit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from icestream.catalogs.lookup import resolve_table
from icestream.commit.in_flight import InFlightWrite
from icestream.errors import InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.write.new_file import NewFile
from icestream.write.schema.schema_plan import SchemaMode, plan_schema
from icestream.write.sources.arrow_source import open_source
from icestream.write.table_writer import TableWriter, Written, refuse_unwritable
from icestream.write.target import WriteTarget


def write_target(
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    schema: pa.Schema | None = None,
    schema_mode: SchemaMode = "freeze",
) -> WriteTarget:
    """A picklable description of a table that the workers of one write share.

    Args:
        table: The table, or its name such as `"db.t"`.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        schema: The schema of the stream that the workers will write, to check it once.
        schema_mode: What to do if the stream's columns differ from the table's. With `"evolve"`
            the files get the evolved schema, and `commit_files(target=...)` changes the table.

    Raises:
        SchemaMismatchError: If the stream does not fit the table.
    """
    target = WriteTarget.of(resolve_table(table, catalog))
    refuse_unwritable(target)
    if schema is None:
        return target
    return target.with_schema(plan_schema(target, schema, mode=schema_mode).schema)


def write_files(
    table: str | Table | WriteTarget,
    source: object,
    *,
    catalog: str | Catalog | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    schema_mode: Literal["freeze", "discard"] = "freeze",
    task: int = 0,
    attempt: int = 0,
) -> tuple[NewFile, ...]:
    """Write a stream to data files of a table without committing them.

    Args:
        table: The table, or its name such as `"db.t"`; or, in a worker of a larger write, the
            result of `write_target`.
        source: Any Arrow stream, or a callable that opens one.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        memory: Maximum number of bytes that the write holds.
        schema_mode: `"freeze"` or `"discard"`; for `"evolve"` see `write_target`.
        task: The number of this worker. It becomes part of the file names.
        attempt: The number of this worker's attempt. It becomes part of the file names.

    Returns:
        Picklable descriptions of the files, for `commit_files`. After an error, no file is left.
    """
    if schema_mode not in ("freeze", "discard"):
        raise InvalidArgumentError(
            f"schema_mode is {schema_mode!r}: write_files() takes 'freeze' or 'discard'. To evolve "
            "the table, make a target with icestream.write_target(table, schema=..., "
            "schema_mode='evolve') and pass it to every worker and to commit_files()"
        )
    into: Table | WriteTarget = resolve_table(table, catalog)
    shared = isinstance(into, WriteTarget)
    target = into if isinstance(into, WriteTarget) else WriteTarget.of(into)
    return write_stream(
        target.for_task(task, attempt),
        source,
        budget=as_budget(memory),
        schema_mode=schema_mode,
        shared=shared,
    ).files


def write_stream(
    target: WriteTarget,
    source: object,
    *,
    budget: MemoryBudget,
    schema_mode: SchemaMode,
    shared: bool,
) -> Written:
    """Write a stream to data files of a target.

    Args:
        target: The table, with the schema for the new files.
        source: Any Arrow stream, or a callable that opens one.
        budget: The memory budget for Arrow data.
        schema_mode: What to do if the stream's columns differ from the target's. With `"evolve"`
            the result lists required fields that hold nulls; the commit makes them optional.
        shared: Whether other workers write under the same id.

    Returns:
        The files written. After an error, no file is left.
    """
    refuse_unwritable(target)
    in_flight = InFlightWrite(target, operation="write", shared=shared)
    with open_source(source) as stream:
        if stream.schema is None:
            return Written()
        writer = TableWriter(
            target,
            arrow_schema=stream.schema,
            schema_mode=schema_mode,
            budget=budget,
            before_write=in_flight.mark,
        )
        try:
            for batch in stream:
                writer.write(batch)
                del batch  # before the next one is made
            written = writer.close()
        except BaseException:
            writer.abort()
            in_flight.abandon()
            raise
    if target.schema == target.metadata.schema():
        return written
    return replace(written, files=tuple(replace(f, schema_id=None) for f in written.files))


def unique_files(files: Iterable[NewFile], *, table_uuid: str, table: str) -> list[NewFile]:
    """Check that all files belong to this table and that none is repeated.

    Raises:
        InvalidArgumentError: Naming the first problem.
    """
    listed = list(files)
    for file in listed:
        if not isinstance(file, NewFile):
            raise InvalidArgumentError(
                f"commit_files() takes the results of write_files(), not {type(file).__name__}"
            )
        if file.table_uuid != table_uuid:
            raise InvalidArgumentError(
                f"{file.path} was written for a table other than {table}: commit it to that one"
            )
    if len({file.path for file in listed}) < len(listed):
        raise InvalidArgumentError("the same file is given twice: pass each worker's files once")
    return listed
