"""Creates the table of an audited load without rows, and drops it if the load fails.

A branch needs a table, so the table is in the catalog before its first rows are published.
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

from icestream.catalogs.redaction import error_text
from icestream.commit.new_table import NewTable, TableCreatedError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, parse_bytes
from icestream.pipeline.engines.local_rows import LocalRows
from icestream.pipeline.inputs.load_input import LoadInputs, find_inputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.reports.load_progress import LoadProgress
from icestream.pipeline.request.load_spec import LoadSpec

_RENAME_AT_ONCE = ("pyiceberg.catalog.hive", "pyiceberg.catalog.rest", "pyiceberg.catalog.sql")
_ASIDE = "icestream_drop"
_log = logging.getLogger(__name__)


def plan_new_table(target: LoadTarget, spec: LoadSpec, spark: Any) -> NewTable:
    """Plan the new table of a load. This creates only its namespace.

    Args:
        target: The target of the load.
        spec: The load.
        spark: The session for a load on Spark; by default the active session.

    Raises:
        SchemaMismatchError: If there are no columns, or Iceberg has no type for one.
        SourceError: If a source can't be read.
    """
    inputs = find_inputs(spec, target).with_columns(spec, target)
    with ExitStack() as stack:
        if spec.engine != "local":
            columns = _columns_on_spark(spec, inputs, spark, stack)
        else:
            memory = parse_bytes(DEFAULT_MEMORY)
            rows = LocalRows(spec, inputs, MemoryBudget(memory), LoadProgress(), memory)
            columns = stack.enter_context(rows.open()).schema
    return target.new_table(spec, columns)


def _columns_on_spark(
    spec: LoadSpec, inputs: LoadInputs, spark: Any, stack: ExitStack
) -> pa.Schema:
    from icestream.pipeline.engines.direct_source import NotDirectError, direct_columns
    from icestream.pipeline.engines.spark_engine import session_of
    from icestream.pipeline.engines.spark_frame import source_frame
    from icestream.spark.arrow.frame_schema import arrow_schema
    from icestream.spark.writing.written_frame import is_case_sensitive

    session = spark or session_of(spec)
    with contextlib.suppress(NotDirectError):
        columns = direct_columns(spec, inputs, is_case_sensitive(session))
        columns = spec.rules.schema(columns)
        query = spec.task_query(columns, spec.memory_bytes)
        return columns if query is None else query.schema(columns)
    source = source_frame(session, spec, inputs, None, spec.memory_bytes, stack)
    return arrow_schema(source.frame.schema)


def create_new_table(planned: NewTable, catalog: Catalog) -> Table:
    """Create a table without rows, or load it if another writer has created it.

    Raises:
        CommitError: If the catalog refused the commit, or gave no answer.
    """
    transaction = planned.transaction(catalog)
    with contextlib.suppress(TableCreatedError):
        planned.create(transaction, catalog, None)
    return catalog.load_table(planned.identifier)  # `planned` only has a staged table


def drop_new_table(table: Table, created_uuid: str | None, branch: str) -> bool:
    """Drop a table and its files, if this load created it and nobody else uses it.

    The table is renamed so that nobody can commit to it, and then checked again. This way, no
    commit after the first check is lost.

    Args:
        table: The table.
        created_uuid: UUID of the table that the load created, if any.
        branch: The audit branch. Other branches, tags, or rows on main belong to others.

    Returns:
        Whether it was dropped. A table that can't be dropped stays without rows, with a warning.
    """
    if created_uuid is None:
        return False
    catalog, name = table.catalog, table.name()
    try:
        if not _is_unused(table.refresh().metadata, created_uuid, branch):
            return False
        if not _renames_at_once(catalog):
            _log.warning(
                "%s was created by a load that failed. It stays without rows: this catalog can't "
                "drop it without a risk of losing rows that another writer adds now",
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
    """Rename a table. Ignore an error if the table was renamed nevertheless."""
    try:
        catalog.rename_table(name, new_name)
    except Exception:
        if catalog.table_exists(name):
            raise


def _drop_renamed(
    catalog: Catalog, name: Identifier, aside: Identifier, created_uuid: str, branch: str
) -> bool:
    """Drop a renamed table if nobody uses it; otherwise restore its name."""
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
            "%s has rows that were added just before it was dropped. It is now called %s, and "
            "renaming it back failed: %s",
            ".".join(name),
            ".".join(aside),
            error_text(error, catalog.properties),
        )
    return False


def _is_unused(metadata: TableMetadata, created_uuid: str, branch: str) -> bool:
    """Whether this load created the table, and only this load has written to it."""
    if str(metadata.table_uuid) != created_uuid:
        return False
    if not set(metadata.refs) <= {MAIN_BRANCH, branch}:
        return False
    start = metadata.snapshot_by_name(MAIN_BRANCH)
    return start is None or not (start.parent_snapshot_id or _rows_of(start.summary))


def _renames_at_once(catalog: Catalog) -> bool:
    """Whether the catalog renames a table atomically.

    PyIceberg's other catalogs copy the entry and then delete the old one. A commit in between
    would be lost.
    """
    modules = {kind.__module__ for kind in type(catalog).__mro__}
    return not modules.isdisjoint(_RENAME_AT_ONCE)


def _say_left(name: Identifier, error: BaseException) -> None:
    _log.warning(
        "%s was created by a load that failed, and could not be dropped: %s", ".".join(name), error
    )


def _rows_of(summary: object) -> bool:
    properties = getattr(summary, "additional_properties", {})
    return str(properties.get("total-records", "0")) != "0"
