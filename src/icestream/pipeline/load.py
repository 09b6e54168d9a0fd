"""`load`: sources become one snapshot of a table, by Spark or in this process."""

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
from icestream.pipeline.load_identity import Naming
from icestream.pipeline.load_plan import LoadPlan, plan_load
from icestream.pipeline.load_progress import LoadProgress
from icestream.pipeline.load_report import LoadReport
from icestream.pipeline.load_run import Gate, LoadRun
from icestream.pipeline.load_spec import (
    LOAD_OPTIONS,
    BadRecords,
    Engine,
    LoadMode,
    LoadSpec,
    Transform,
)
from icestream.pipeline.state_folder import StateFolder
from icestream.upsert.options import (
    Isolation,
    NullKeys,
    OnDuplicate,
    WhenMatched,
    WhenNotMatched,
    WriteMode,
)
from icestream.write.schema import SchemaMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load(
    sources: object,
    into: str | Table,
    *,
    mode: LoadMode = "append",
    keys: Sequence[str] | str | None = None,
    schema_mode: SchemaMode = "freeze",
    transform: Transform | None = None,
    schema: pa.Schema | Mapping[str, Any] | None = None,
    partition_by: Sequence[str] | str = (),
    sort_by: Sequence[str] | str = (),
    table_properties: Mapping[str, str] | None = None,
    create: bool = True,
    catalog: str | Catalog | None = None,
    memory: int | str | None = None,
    engine: Engine = "spark",
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

    Repeating an append of the same files or table snapshots by the same definition does nothing,
    and the report's `status` is `"already loaded"`. Files are the same if path, size and time of
    change are. Databases, streams, data frames, and rows that a Python function transforms are
    loaded each time.

    Args:
        sources: A path, glob or folder of Parquet, ORC, CSV, JSON lines or Arrow files
            (`"data/*.parquet"`, `"s3://bucket/x/*.csv.gz"`), `"table:db.t"`, a JDBC address
            (`"jdbc:postgresql://host/db?table=orders"`), a mapping with options
            (`{"path": ..., "format": "csv", "options": {"delimiter": ";"}}`,
            `{"spark_format": "avro", "path": ...}`), a PyIceberg table, an Arrow stream or a
            function that opens one, a Spark DataFrame; or a list of these: their union, by name.
        into: The table: `"db.t"`, or a PyIceberg table.
        mode: `"append"`, `"replace"` (everything that is there), or `"merge"` by keys.
        keys: The key of a merge; the table's identifier fields by default.
        schema_mode: Where columns are not the table's: `"freeze"` refuses, `"evolve"` changes the
            table in the same commit, `"discard"` drops unknown columns.
        transform: SQL over a view `source`, or a function: of a DataFrame on Spark, of a
            `pa.RecordBatchReader` on the local engine, where DuckDB runs SQL.
        schema: Types for columns of CSV and JSON; by default those of the table, or what the first
            lines look like.
        partition_by: Of a table that is created: `["day(ts)", "bucket(16, id)"]`.
        sort_by: Likewise: `["price desc"]`.
        table_properties: Likewise.
        create: Whether to create the table, in the same commit, if it is not there.
        catalog: A PyIceberg catalog, or its name in PyIceberg's configuration. Where nothing is
            configured, `./icestream_warehouse` is the catalog.
        memory: The most bytes held: by the load, or on Spark by each task.
        engine: `"spark"`, or `"local"` for this process.
        master: Where Spark runs; `"local[*]"` by default.
        remote: A Spark Connect address instead.
        spark: A session to use instead of either.
        branch: The branch that gets the snapshot; it must exist.
        load_id: Names this load: a second one with the same id does nothing.
        properties: For the snapshot's summary.
        bad_records: Lines of CSV and JSON that can't be read: `"fail"`, or `"quarantine"` to store
            them in a table of their own, with the reason.
        quarantine: That table; the table's name with `_quarantine` by default.
        incremental: Load only what is new since the last run: files, or rows of tables.
        checkpoint: The folder that remembers it; in the state folder by default.
        again: Append inputs that were loaded before once more.
        watch: Repeat an incremental load every so many seconds, until interrupted.
        dry_run: Only tell what would be done. Nothing is touched.
        when_matched: This and what follows up to isolation is for merges: see `icestream.merge`.
        name: What the load is called in reports and checkpoints; the table's name by default.
        state: The folder for reports and checkpoints: `./icestream_state`, or what the variable
            `ICESTREAM_STATE` says, by default; an empty text for none.
        progress: Kept up to date while the load runs.
        on_report: Called with every report; with `watch` there are many.

    Returns:
        What happened; with `dry_run`, what would.

    Raises:
        InvalidArgumentError: If an argument can't be used; nothing was read.
        SourceError: If a source can't be read, or has bad records; nothing was changed.
        SchemaMismatchError: If the columns do not fit the table.
        DuplicateKeysError: If rows of a merge have the same key.
        CommitConflictError: If others have changed the same rows meanwhile.
        StreamError: If a checkpoint is of another load, or what is new can't be told.

    Memory: Arrow bytes held stay within `memory`, on Spark in each task.
    """
    told = {key: value for key, value in locals().items() if key in LOAD_OPTIONS}
    spec = LoadSpec.of(sources, into, **told)
    if watch is not None and not spec.incremental:
        raise InvalidArgumentError("watch repeats an incremental load: give incremental=True, too")
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
    """Run one load, as it is described.

    Args:
        spec: The load; `dataclasses.replace` sets another branch or load_id.
        state: As of `load`; likewise spark, progress and on_report.
        gate: What stands between the load and its branch, such as tests on its result.
        naming: Decides under which id the load is committed, if it has none.
    """
    report = LoadRun(spec, _state(state), spark, progress or LoadProgress(), gate, naming).run()
    if on_report is not None:
        on_report(report)
    return report


def _state(state: str | os.PathLike[str] | None) -> StateFolder | None:
    return None if state is not None and not os.fspath(state) else StateFolder(state)
