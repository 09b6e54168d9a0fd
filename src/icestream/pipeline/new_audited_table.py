"""A table that an audited load creates: without rows first, and gone again if the load fails.

A branch needs a table, so that such a table is in the catalog before its first rows are published.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.typedef import Identifier

from icestream.commit.new_table import NewTable, TableCreatedError
from icestream.errors import SchemaMismatchError
from icestream.memory import DEFAULT_MEMORY, MemoryBudget, parse_bytes
from icestream.pipeline.load_input import LoadInputs, find_inputs
from icestream.pipeline.load_progress import LoadProgress
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.load_target import LoadTarget
from icestream.pipeline.local_rows import LocalRows
from icestream.redaction import error_text

_RENAME_AT_ONCE = ("pyiceberg.catalog.hive", "pyiceberg.catalog.rest", "pyiceberg.catalog.sql")
_ASIDE = "icestream_drop"
_log = logging.getLogger(__name__)


def plan_new_table(target: LoadTarget, spec: LoadSpec, spark: Any) -> NewTable:
    """The table as a load is to create it; nothing is created yet but its namespace.

    Args:
        target: Where the table is going to be.
        spec: The load.
        spark: The session, if the load is for Spark; the one that runs if None.

    Raises:
        SchemaMismatchError: If Iceberg has no type for a column, or there is none.
        SourceError: If the sources can't be read.
    """
    inputs = find_inputs(spec, target).with_columns(spec, target)
    with ExitStack() as stack:
        if spec.engine == "spark":
            columns = _columns_on_spark(spec, inputs, spark, stack)
        else:
            memory = parse_bytes(DEFAULT_MEMORY)
            rows = LocalRows(spec, inputs, MemoryBudget(memory), LoadProgress(), memory)
            columns = stack.enter_context(rows.open()).schema
    if columns is None:
        raise SchemaMismatchError(
            f"{target.name} can't be created: the sources have no columns",
            differences=("there is no column",),
        )
    return target.new_table(spec, columns)


def _columns_on_spark(
    spec: LoadSpec, inputs: LoadInputs, spark: Any, stack: ExitStack
) -> pa.Schema:
    from icestream.pipeline.spark_engine import session_of
    from icestream.pipeline.spark_frame import source_frame
    from icestream.spark.frame_schema import arrow_schema

    memory = parse_bytes(spec.memory or DEFAULT_MEMORY)
    made = source_frame(spark or session_of(spec), spec, inputs, None, memory, stack)
    return arrow_schema(made.frame.schema)


def create_new_table(planned: NewTable, catalog: Catalog) -> Table:
    """Create a table without rows; or take the one that somebody else created meanwhile.

    Raises:
        CommitError: If the catalog refused, or gave no answer.
    """
    transaction = planned.transaction(catalog)
    with contextlib.suppress(TableCreatedError):
        planned.create(transaction, catalog, None)
    return catalog.load_table(planned.identifier)  # what was created stays a staged table


def drop_new_table(table: Table, created_uuid: str | None, branch: str) -> bool:
    """Drop a table and its files, if it is the one that was created here and nobody uses it yet.

    It is renamed first, so that nobody can commit to it any more, and looked at once more: what
    was committed after the first look is not lost.

    Args:
        table: The table.
        created_uuid: Of the table that was created here; None if none was.
        branch: The audit branch: other branches and tags, or rows on main, are somebody's.

    Returns:
        Whether it was dropped. What can't be dropped stays, without rows, and a line is logged.
    """
    if created_uuid is None:
        return False
    catalog, name = table.catalog, table.name()
    try:
        if not _is_unused(table.refresh().metadata, created_uuid, branch):
            return False
        if not _renames_at_once(catalog):
            _log.warning(
                "%s was created by a load that failed. It has no rows and stays: in this catalog "
                "it can't be dropped without a chance that rows are lost which others add now",
                ".".join(name),
            )
            return False
        aside = (*name[:-1], f"{name[-1]}_{_ASIDE}_{uuid.uuid4().hex}")
        _rename(catalog, name, aside)
    except NoSuchTableError:
        return True
    except Exception as error:
        _say_left(name, error)
        return False
    return _drop_renamed(catalog, name, aside, created_uuid, branch)


def _rename(catalog: Catalog, name: Identifier, new_name: Identifier) -> None:
    """Rename a table; an error after it was renamed does not count."""
    try:
        catalog.rename_table(name, new_name)
    except Exception:
        if catalog.table_exists(name):
            raise


def _drop_renamed(
    catalog: Catalog, name: Identifier, aside: Identifier, created_uuid: str, branch: str
) -> bool:
    """Drop a table that nobody else can commit to any more; or give it its name back."""
    try:
        if _is_unused(catalog.load_table(aside).metadata, created_uuid, branch):
            catalog.purge_table(aside)
            return True
    except BaseException as error:
        _say_left(aside, error)
        if not isinstance(error, Exception):
            raise
        return False
    try:
        _rename(catalog, aside, name)
    except Exception as error:
        _log.error(
            "%s has rows that were added while it was about to be dropped. It is called %s now, "
            "and could not be given its name back: %s",
            ".".join(name),
            ".".join(aside),
            error_text(error, catalog.properties),
        )
    return False


def _is_unused(metadata: TableMetadata, created_uuid: str, branch: str) -> bool:
    """Whether a table is the one that was created here, and only its own load was there."""
    if str(metadata.table_uuid) != created_uuid:
        return False
    if not set(metadata.refs) <= {MAIN_BRANCH, branch}:
        return False
    start = metadata.snapshot_by_name(MAIN_BRANCH)
    return start is None or not (start.parent_snapshot_id or _rows_of(start.summary))


def _renames_at_once(catalog: Catalog) -> bool:
    """Whether a table has its new name in the same moment in which the old one is gone.

    PyIceberg's other catalogs copy the entry and then delete the old one: what is committed in
    between is lost.
    """
    modules = {kind.__module__ for kind in type(catalog).__mro__}
    return not modules.isdisjoint(_RENAME_AT_ONCE)


def _say_left(name: Identifier, error: BaseException) -> None:
    _log.warning("%s was created by a load that failed, and not dropped: %s", ".".join(name), error)


def _rows_of(summary: object) -> bool:
    told = getattr(summary, "additional_properties", {})
    return str(told.get("total-records", "0")) != "0"
