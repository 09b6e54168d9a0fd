"""A DataFrame becomes one snapshot: tasks write files, the caller's process commits them."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from icestream.commit.commit_files import commit_files
from icestream.commit.landing import TableLanding, check_branch
from icestream.commit.load import check_properties
from icestream.commit.load_id import check_load_id, find_load
from icestream.commit.write_files import write_files, write_target
from icestream.memory import DEFAULT_MEMORY, MemoryBudget, parse_bytes
from icestream.report import WriteReport
from icestream.spark.installed import pyspark_module
from icestream.spark.session import MEMORY_SETTING
from icestream.spark.tables import load_table
from icestream.upkeep.orphans import delete_write
from icestream.write.schema import SchemaMode, plan_schema
from icestream.write.target import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RESULT = "result binary"
# Spark tells of a failed job while other tasks of it still run, for a moment.
_CLEAN_UP_WAITS = (0.0, 0.5, 1.0)


def append(
    frame: DataFrame,
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    memory: int | str | None = None,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
) -> WriteReport:
    """Append a DataFrame to a table, as exactly one snapshot.

    The executors' Python workers write the data files; their descriptions come back, and the
    commit happens in this process.

    Args:
        frame: The rows.
        table: A name such as `"db.t"`, or a PyIceberg table.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default one.
        memory: What each task may hold; what `icestream.spark.session` was given by default.
        schema_mode: As in `icestream.append`; likewise branch, properties and load_id.

    Raises:
        SchemaMismatchError: If the frame does not fit the table; nothing was written.
        CatalogError: If the catalog can't be reached, or has no such table.
        CommitConflictError: If the commit was refused.

    Memory: each running task stays within `memory`, beside Python and Spark themselves.
    """
    began = time.monotonic()
    check_load_id(load_id)
    check_properties(properties)
    loaded = load_table(table, catalog)
    landing = TableLanding(loaded)
    metadata = landing.refresh()
    check_branch(metadata, branch or MAIN_BRANCH, table=landing.name)
    if find_load(metadata, branch or MAIN_BRANCH, load_id) is not None:
        return commit_files(loaded, (), branch=branch, load_id=load_id)
    target = write_target(loaded)
    plan = plan_schema(target, _arrow_schema(frame), mode=schema_mode)
    target = target.with_schema(plan.schema)
    memory_bytes = parse_bytes(
        memory or frame.sparkSession.conf.get(MEMORY_SETTING, None) or DEFAULT_MEMORY
    )
    mode = "discard" if schema_mode == "discard" else "freeze"
    try:
        rows = frame.mapInArrow(_task(target, memory_bytes, mode), _RESULT).collect()
    except BaseException:
        for seconds in _CLEAN_UP_WAITS:
            time.sleep(seconds)
            delete_write(target)
        raise
    results = [pickle.loads(row[0]) for row in rows]
    report = commit_files(
        loaded,
        [file for files, _ in results for file in files],
        target=target,
        branch=branch,
        properties=properties,
        load_id=load_id,
    )
    peak_bytes = max((peak for _, peak in results), default=0)
    return replace(
        report,
        schema_changes=() if report.already_committed else plan.changes,
        columns_discarded=() if report.already_committed else plan.discarded,
        peak_bytes_held=peak_bytes,
        memory_limit_bytes=memory_bytes,
        seconds=time.monotonic() - began,
    )


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    types = pyspark_module("pyspark.sql.pandas.types")
    return types.to_arrow_schema(frame.schema, timezone="UTC")


def _task(
    target: WriteTarget, memory_bytes: int, schema_mode: Any
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does: write its rows, and answer with one row that describes the files."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        budget = MemoryBudget(memory_bytes)
        files = write_files(
            target,
            batches,
            memory=budget,
            schema_mode=schema_mode,
            task=context.partitionId() if context else 0,
            attempt=context.taskAttemptId() if context else 0,
        )
        answer = pickle.dumps((files, budget.peak_bytes))
        yield pa.record_batch([pa.array([answer], pa.binary())], names=["result"])

    return write
