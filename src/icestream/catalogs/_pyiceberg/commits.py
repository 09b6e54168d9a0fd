"""Commits: one request to the catalog, and schema evolution without a catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from pydantic_core import PydanticSerializationError
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.table.update.schema import UpdateSchema


@contextmanager
def interrupts() -> Iterator[None]:
    """Raise an interrupt that pydantic has turned into an error of its own.

    PyIceberg writes JSON with pydantic. Pydantic wraps every exception that is raised while it
    serializes, including Ctrl-C.

    Raises:
        KeyboardInterrupt: If Ctrl-C was pressed in that moment.
        SystemExit: If a signal handler ended the program in that moment.
    """
    try:
        yield
    except PydanticSerializationError as error:
        for kind in (KeyboardInterrupt, SystemExit):
            if f": {kind.__name__}" in str(error):
                raise kind from error
        raise


def commit_to_catalog(
    table: Table, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]
) -> None:
    """Commit once, without retries. The table object then has the new metadata.

    `Table` has no public method that also deletes old metadata files if the table's properties
    request it.
    """
    with interrupts():
        table._do_commit(updates, requirements)


def evolved_schema(
    metadata: TableMetadata, base: Schema, changes: Iterable[Callable[[UpdateSchema], object]]
) -> Schema:
    """The schema that an update of `base` would commit, computed without a catalog.

    Args:
        metadata: The table, with its last column id, all schemas and all partition specs.
        base: The schema to change: the table's current one, or one evolved from it.
        changes: The changes, applied in order.

    Raises:
        ValueError: If PyIceberg rejects a change.
    """
    schemas = [*metadata.schemas]
    if base not in schemas:
        schemas.append(base)
    as_if = SimpleNamespace(schema=lambda: base, schemas=schemas)
    as_if.partition_specs = metadata.partition_specs
    as_if.last_column_id = max(metadata.last_column_id, base.highest_field_id)
    transaction: Any = SimpleNamespace(table_metadata=as_if)
    update = UpdateSchema(transaction)
    for change in changes:
        change(update)
    return update._apply()


def schema_updates(
    table: Table, changes: Iterable[Callable[[UpdateSchema], object]]
) -> tuple[Schema, tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """The schema after some changes, and the updates and requirements that commit it.

    Args:
        table: The table.
        changes: The changes, applied in order.

    Raises:
        ValueError: If PyIceberg rejects a change.
    """
    update = UpdateSchema(Transaction(table, autocommit=False))
    for change in changes:
        change(update)
    updates, requirements = update._commit()
    return update._apply(), updates, requirements
