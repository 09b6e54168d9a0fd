"""A table that an audited load creates: without rows first, and gone again if the load fails.

A branch needs a table, so that such a table is in the catalog before its first rows are published.
"""

from __future__ import annotations

import contextlib
import logging
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from icestream.commit.new_table import NewTable, TableCreatedError
from icestream.errors import SchemaMismatchError
from icestream.memory import DEFAULT_MEMORY, MemoryBudget, parse_bytes
from icestream.pipeline.load_input import LoadInputs, find_inputs
from icestream.pipeline.load_progress import LoadProgress
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.load_target import LoadTarget
from icestream.pipeline.local_rows import LocalRows

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

    Args:
        table: The table.
        created_uuid: Of the table that was created here; None if none was.
        branch: The audit branch: other branches and tags, or rows on main, are somebody's.

    Returns:
        Whether it was dropped. What can't be dropped stays, without rows, and a line is logged.
    """
    if created_uuid is None:
        return False
    name = ".".join(table.name())
    try:
        metadata = table.refresh().metadata
        if str(metadata.table_uuid) != created_uuid or not set(metadata.refs) <= {
            MAIN_BRANCH,
            branch,
        }:
            return False
        start = metadata.snapshot_by_name(MAIN_BRANCH)
        if start is not None and (start.parent_snapshot_id or _rows_of(start.summary)):
            return False
        table.catalog.purge_table(table.name())
    except NoSuchTableError:
        return True
    except Exception as error:
        _log.warning("%s was created by a load that failed, and not dropped: %s", name, error)
        return False
    return True


def _rows_of(summary: object) -> bool:
    told = getattr(summary, "additional_properties", {})
    return str(told.get("total-records", "0")) != "0"
