"""`load` reads sources and writes them to a table as one snapshot, on Spark or in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from icestream.errors import InvalidArgumentError
from icestream.operations.merge.merge_options import (
    Isolation,
    NullKeys,
    OnDuplicate,
    WhenMatched,
    WhenNotMatched,
    WriteMode,
)
from icestream.pipeline.inputs.load_identity import Naming
from icestream.pipeline.load_execution import Gate, LoadRun
from icestream.pipeline.load_plan import LoadPlan, plan_load
from icestream.pipeline.reports.load_progress import LoadProgress, checked_progress
from icestream.pipeline.reports.load_report import LoadReport
from icestream.pipeline.reports.state_folder import StateFolder
from icestream.pipeline.request.load_spec import (
    LOAD_OPTIONS,
    BadRecords,
    EngineName,
    LoadMode,
    LoadSpec,
    Transform,
    TransformEngine,
)
from icestream.write.schema.schema_plan import SchemaMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load(
    sources: object,
    into: str | Table,
    *,
    mode: LoadMode = "append",
    keys: Sequence[str] | str | None = None,
    schema_mode: SchemaMode = "freeze",
    select: Sequence[str | Mapping[str, Any]] | str | None = None,
    where: str | None = None,
    transform: Transform | None = None,
    transform_engine: TransformEngine = "spark",
    schema: pa.Schema | Mapping[str, Any] | None = None,
    partition_by: Sequence[str] | str = (),
    sort_by: Sequence[str] | str = (),
    table_properties: Mapping[str, str] | None = None,
    create: bool = True,
    catalog: str | Catalog | None = None,
    memory: int | str | None = None,
    engine: EngineName = "auto",
    master: str | None = None,
    remote: str | None = None,
    spark: SparkSession | None = None,
    branch: str | None = None,
    load_id: str | None = None,
    properties: Mapping[str, str] | None = None,
    bad_records: BadRecords = "fail",
    quarantine: str | None = None,
    incremental: bool = False,
    checkpoint: str | Path | None = None,
    again: bool = False,
    watch: float | None = None,
    dry_run: bool = False,
    when_matched: WhenMatched = "update",
    when_not_matched: WhenNotMatched = "insert",
    update_columns: Sequence[str] | None = None,
    delete_when: str | None = None,
    on_duplicate: OnDuplicate = "error",
    last_by: str | None = None,
    null_keys: NullKeys = "error",
    skip_unchanged: bool = True,
    write_mode: WriteMode | None = None,
    isolation: Isolation | None = None,
    name: str | None = None,
    state: str | os.PathLike[str] | None = None,
    progress: LoadProgress | None = None,
    on_report: Callable[[LoadReport], None] | None = None,
) -> LoadReport | LoadPlan:
    """Load sources into a table, as exactly one snapshot.

    A second append of the same files or table snapshots with the same options does nothing. Its
    report has the status `"already loaded"`. Files are the same if path, size and modification time
    are equal. Databases, streams, DataFrames and loads with a Python transform run each time.

    Args:
        sources: A path, glob or folder of Parquet, ORC, CSV, JSON or Arrow files
            (`"data/*.parquet"`, `"s3://bucket/x/*.csv.gz"`), `"table:db.t"`, a database
            (`"sqlite:///x.db?table=orders"`, `"duckdb:///x.duckdb?table=orders"`,
            `"postgresql://host/db?table=orders"`, `"adbc:DRIVER:URI?table=orders"`, or
            `"jdbc:..."` on Spark), a mapping with options
            (`{"path": ..., "format": "csv", "options": {"delimiter": ";"}}`,
            `{"spark_format": "avro", "path": ...}`), a PyIceberg table, an Arrow stream or a
            function that opens one, or a Spark DataFrame. A list is read as the union of its
            sources, with columns matched by name.
        into: The table to write: a name such as `"db.t"`, or a PyIceberg table.
        mode: `"append"` adds rows, `"replace"` replaces all existing rows, `"merge"` updates and
            inserts rows by key.
        keys: Key columns of a merge; by default the table's identifier fields.
        schema_mode: What to do if the columns differ from the table's: `"freeze"` refuses,
            `"evolve"` changes the table in the same commit, `"discard"` drops unknown columns.
        select: The columns of the sources to load, in this order; by default all. An entry is a
            name, a mapping that renames or casts a column
            (`{"name": "price", "from": "amount", "type": "decimal(10,2)"}`), or a constant
            (`{"name": "country", "value": "NO"}`). `from` may name a field of a struct
            (`"address.city"`). A value that does not fit the type is an error.
        where: The rows of the sources to load, as a filter over the sources' columns:
            `"amount > 0 and country = 'NO'"`. It applies before `select`, and both before
            `transform`.
        transform: SQL that reads the view `source`, or a function. On Spark the function takes a
            DataFrame. On the local engine it takes a `pa.RecordBatchReader`, and DuckDB runs SQL.
        transform_engine: What runs SQL on Spark: `"spark"`, or `"duckdb"` to run it in the tasks
            that read and write, each over its own rows. Only expressions and filters are accepted
            then: no joins, aggregates, windows, `DISTINCT`, `ORDER BY`, `LIMIT` or subqueries. Half
            of `memory` is for DuckDB.
        schema: Column types of CSV and JSON files; by default the table's, or types inferred from
            the first lines.
        partition_by: Partition fields of a new table, such as `["day(ts)", "bucket(16, id)"]`.
        sort_by: Sort order of a new table, such as `["price desc"]`.
        table_properties: Properties of a new table.
        create: Whether to create the table, in the same commit, if it does not exist.
        catalog: A PyIceberg catalog, or its name in PyIceberg's configuration. If no catalog is
            configured, `./icestream_warehouse` is used.
        memory: Memory limit in bytes, or text such as `"256MB"`. On Spark it applies to each task.
        engine: `"spark"`, `"local"` for this process, or `"iceberg-jar"` to write with Iceberg's
            own runtime for Spark, which must be on Spark's class path. `"auto"` chooses Spark if
            PySpark and Java are installed or the load needs them, as for a function in
            `transform`, else this process. The report says which, and why.
        master: Spark's master URL; `"local[*]"` by default.
        remote: A Spark Connect address, instead of `master`.
        spark: A session to use, instead of `master` and `remote`.
        branch: An existing branch to write to.
        load_id: An id for this load. A second load with the same id does nothing.
        properties: Properties for the snapshot's summary.
        bad_records: What to do with CSV and JSON lines that can't be read: `"fail"`, or
            `"quarantine"` to store them in a separate table, with the reason.
        quarantine: The table for bad records; by default the table's name with `_quarantine`.
        incremental: Whether to load only files or table rows that no earlier run has loaded.
        checkpoint: Folder for the progress of incremental loads; by default in the state folder.
        again: Whether to append inputs even if they were loaded before.
        watch: Repeat an incremental load after this many seconds, until interrupted.
        dry_run: Whether to return a plan instead of loading. A dry run changes nothing.
        when_matched: This option and those up to `isolation` are for merges: see `icestream.merge`.
        name: The load's name in reports and checkpoints; by default the table's name.
        state: Folder for reports and checkpoints; by default the value of the environment variable
            `ICESTREAM_STATE`, or `./icestream_state`. Give `""` to store nothing.
        progress: An object that the load updates while it runs.
        on_report: Called with the report; with `watch`, after each repetition.

    Returns:
        The report of the load; with `dry_run`, a plan.

    Raises:
        InvalidArgumentError: If an argument is invalid. Nothing was read.
        SourceError: If a source can't be read, or has bad records. Nothing was changed.
        InvalidDataError: If a value does not fit its type in `select`. Nothing was changed.
        SchemaMismatchError: If the columns do not fit the table.
        DuplicateKeysError: If several rows of a merge have the same key.
        CommitConflictError: If another writer changed the same rows.
        StreamError: If the checkpoint belongs to another load, or new rows can't be determined.

    Memory: Arrow data stays within `memory`. On Spark this holds for each task.
    """
    arguments = locals()
    spec = LoadSpec.of(sources, into, **{name: arguments[name] for name in LOAD_OPTIONS})
    if watch is not None and not spec.incremental:
        raise InvalidArgumentError("watch repeats an incremental load: give incremental=True, too")
    if watch is not None and not 0 <= watch < threading.TIMEOUT_MAX:
        raise InvalidArgumentError(
            f"watch is {watch!r}: give seconds between two loads, such as 60"
        )
    if dry_run:
        return plan_load(spec, state=_state(state), spark=spark)

    def run() -> LoadReport:
        return run_load(spec, state=state, spark=spark, progress=progress, on_report=on_report)

    if watch is None:
        return run()
    pause = threading.Event()
    while True:
        run()
        pause.wait(watch)


def run_load(
    spec: LoadSpec,
    *,
    state: str | os.PathLike[str] | None = None,
    spark: SparkSession | None = None,
    progress: LoadProgress | None = None,
    on_report: Callable[[LoadReport], None] | None = None,
    gate: Gate | None = None,
    naming: Naming | None = None,
) -> LoadReport:
    """Run one load.

    Args:
        spec: The load; `dataclasses.replace` sets another branch or load_id.
        state: The state folder, as in `load`.
        spark: The session, as in `load`.
        progress: Updated while the load runs.
        on_report: Called with the report.
        gate: Decides whether to publish the load, for example by testing its result.
        naming: Chooses the load id, if the load has none.
    """
    watched = checked_progress(progress)
    report = LoadRun(spec, _state(state), spark, watched, gate, naming).run()
    if on_report is not None:
        on_report(report)
    return report


def _state(state: str | os.PathLike[str] | None) -> StateFolder | None:
    return None if state is not None and not os.fspath(state) else StateFolder(state)
