"""The dry run of a load: a plan from file lists, footers and metadata. It changes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH

from icestream.catalogs import lookup as catalogs
from icestream.commit.landing import check_branch
from icestream.commit.new_table import new_table_schema
from icestream.commit.outcome.retry import whole_number
from icestream.memory.budget import MemoryBudget
from icestream.memory.machine import cores
from icestream.operations.write_files import write_target
from icestream.pipeline.inputs.checkpoint import Checkpoint
from icestream.pipeline.inputs.database_source import database_schema, is_embedded
from icestream.pipeline.inputs.load_identity import Naming, load_id_of, name_load
from icestream.pipeline.inputs.load_input import LoadInputs, find_inputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.inputs.table_increment import explained_point, schema_scan
from icestream.pipeline.reports.state_folder import StateFolder, newest_reports
from icestream.pipeline.request.engine_choice import choose_engine
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.report.display import Displayed
from icestream.report.scan_report import ScanExplanation
from icestream.spark.setup.installed import pyspark_module
from icestream.write.partition.spec_text import partition_spec, sort_order
from icestream.write.rules.duckdb_query import duckdb_module
from icestream.write.schema.schema_plan import plan_schema
from icestream.write.sources.arrow_source import open_source
from icestream.write.sources.batch_columns import one_schema, read_errors
from icestream.write.sources.file_rows import stored_file
from icestream.write.sources.stored_batches import ReadingShare

_MOST_FOOTERS = 1000
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,.*)?\])?")


@dataclass(frozen=True, slots=True, repr=False)
class LoadPlan(Displayed):
    """What a load would do. Returned by `icestream.load` with `dry_run`.

    Attributes:
        load: The load's name.
        into: The table.
        mode: `"append"`, `"replace"` or `"merge"`.
        engine: `"spark"`, `"local"` or `"iceberg-jar"`.
        engine_reason: Why this engine was chosen; None if the load names its engine.
        sources: Descriptions of the sources.
        branch: The branch that the load would write to.
        already_committed: Whether the load was committed before, so that it would do nothing.
        load_id: The id of that load, if it is derived from the inputs.
        files: Number of files to read; for an incremental load, only new files.
        bytes: Size of these files.
        rows: Number of rows in these files, if their footers record it; else None.
        columns: Names and types of the columns; None if they are only known when the load runs.
        creates_table: Whether the table would be created.
        new_columns: Columns of a new table, with Iceberg's type names.
        partition_by: Partition fields of a new table.
        sort_by: Sort order of a new table.
        schema_changes: Descriptions of the changes to the table's schema.
        columns_discarded: Columns that would be dropped.
        operation: The snapshot's operation; None if there is nothing to do.
        files_removed_at_most: Maximum number of data files to remove or rewrite.
        bytes_removed_at_most: Size of these files.
        files_predicted: Approximate number of data files to write.
        memory_limit_bytes: The memory limit; on Spark, the limit of each task.
        tasks: Number of tasks that run in parallel; None if unknown.
        direct: On Spark, whether tasks would read the sources themselves; None if unknown.
        route: On Spark, how the rows get to the table, and why; None if unknown.
        memory_bytes: The limit of all these tasks together; None if unknown.
        seconds_predicted: Approximate duration; None without an earlier load to compare with.
        prediction: The load that the duration is based on.
        notes: Other remarks.
    """

    load: str
    into: str
    mode: str
    engine: str
    sources: tuple[str, ...] = ()
    branch: str = MAIN_BRANCH
    already_committed: bool = False
    load_id: str | None = None
    files: int = 0
    bytes: int = 0
    rows: int | None = None
    columns: Mapping[str, str] | None = None
    creates_table: bool = False
    new_columns: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    schema_changes: tuple[str, ...] = ()
    columns_discarded: tuple[str, ...] = ()
    operation: str | None = None
    files_removed_at_most: int = 0
    bytes_removed_at_most: int = 0
    files_predicted: int = 0
    memory_limit_bytes: int = 0
    tasks: int | None = None
    memory_bytes: int | None = None
    direct: bool | None = None
    route: str | None = None
    seconds_predicted: float | None = None
    prediction: str | None = None
    notes: tuple[str, ...] = ()
    engine_reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The plan as a dictionary that `json.dumps` takes."""
        return asdict(self)


def plan_load(
    spec: LoadSpec,
    *,
    state: StateFolder | None = None,
    spark: Any = None,
    naming: Naming | None = None,
) -> LoadPlan:
    """Plan a load without changing anything.

    Args:
        spec: The load.
        state: Folder with earlier reports and checkpoints.
        spark: The session that the load would run on.
        naming: Chooses the load id, if the load has none.

    Raises:
        SourceError: If a source can't be found.
        SchemaMismatchError: If its columns do not fit the table.
        MissingExtraError: If the load needs a package that is not installed.
    """
    spec, reason = choose_engine(spec, spark)
    with _target(spec) as target:
        plan = _Plan(spec, target, state, spark, naming or name_load(spec)).plan()
    return replace(plan, engine_reason=reason)


def check_packages(spec: LoadSpec, spark: Any) -> None:
    """Refuse a load whose engine or transform needs a package that is not installed.

    Args:
        spec: The load, with its engine.
        spark: The session that the load would run on.

    Raises:
        MissingExtraError: If PySpark or DuckDB is missing.
    """
    if spec.engine == "local":
        if isinstance(spec.transform, str):
            duckdb_module()
    elif spark is None:
        pyspark_module()


@contextmanager
def _target(spec: LoadSpec) -> Iterator[LoadTarget]:
    """The target; if the local catalog does not exist yet, in a catalog that is never stored."""
    unset = spec.catalog is None and not catalogs.is_configured()
    local = unset or spec.catalog == catalogs.LOCAL_NAME
    if isinstance(spec.into, str) and local and spec.create and not catalogs.has_local_catalog():
        catalog: Catalog = InMemoryCatalog("none")
        try:
            yield LoadTarget(catalog, spec.into, None)
        finally:
            catalog.close()
        return
    with LoadTarget.open(spec, make=False) as target:
        yield target


class _Plan:
    """Builds one plan."""

    def __init__(
        self,
        spec: LoadSpec,
        target: LoadTarget,
        state: StateFolder | None,
        spark: Any,
        naming: Naming,
    ) -> None:
        self._naming = naming
        self._spec = spec
        self._target = target
        self._state = state
        self._spark = spark
        self._notes: list[str] = []

    def plan(self) -> LoadPlan:
        spec, table = self._spec, self._target.table
        branch = spec.branch or MAIN_BRANCH
        if table is not None:
            check_branch(table.metadata, branch, table=spec.table_name)
        facts: dict[str, Any] = {
            "load": spec.name,
            "into": spec.table_name,
            "mode": spec.mode,
            "engine": spec.engine,
            "sources": tuple(source.text for source in spec.sources),
            "branch": branch,
        }
        if self._target.committed(spec, spec.load_id) is not None:
            return LoadPlan(**facts, already_committed=True)
        inputs = self._inputs()
        if table is not None and not spec.incremental and spec.load_id is None:
            load_id = load_id_of(spec, inputs, self._target, self._naming)
            if self._target.committed(spec, load_id) is not None:
                return LoadPlan(**facts, already_committed=True, load_id=load_id)
        check_packages(spec, self._spark)
        inputs = inputs.with_columns(spec, self._target)
        columns = self._columns(inputs)
        nothing = spec.incremental and not inputs.files and not _has_tables(inputs)
        explained = self._explained(inputs)
        size = inputs.bytes + sum(each.compressed_bytes for each in explained)
        facts |= {
            "files": inputs.files + sum(each.files for each in explained),
            "bytes": size,
            "rows": self._rows(inputs),
        }
        facts |= self._schema(columns) | self._memory() | self._time(size)
        if not nothing:
            facts |= self._change(size, branch) | self._route(inputs)
        return LoadPlan(**facts, notes=tuple(self._notes))

    def _inputs(self) -> LoadInputs:
        spec, target = self._spec, self._target
        inputs = find_inputs(spec, target, may_be_empty=spec.incremental)
        if spec.incremental:
            checkpoint = Checkpoint.look(self._state, spec, target.table_uuid)
            if checkpoint.pending() is not None:
                self._notes.append("a load that was killed would be repeated first")
            inputs = checkpoint.new(inputs).narrowed(inputs)
        return inputs

    def _explained(self, inputs: LoadInputs) -> list[ScanExplanation]:
        """What reading the tables among the sources would take."""
        memory = self._spec.memory_bytes
        points = [(each.spec, each.point) for each in inputs.inputs if each.point is not None]
        explained = [explained_point(spec, point, memory) for spec, point in points]
        return [each for each in explained if each is not None]

    def _columns(self, inputs: LoadInputs) -> pa.Schema | None:
        """The columns that the load would write; None if they are only known when it runs."""
        spec = self._spec
        if spec.transform is not None and spec.transform_engine == "spark":
            self._notes.append("the columns of the transform are only known when it runs")
            return None
        schemas = []
        for each in inputs.inputs:
            if each.columns is not None:
                schemas.append(each.columns)
            elif each.point is not None:
                schemas.append(schema_scan(each.spec, each.point).schema)
            elif each.files is not None:
                continue
            elif is_embedded(each.spec):
                schemas.append(database_schema(each.spec, spec.memory_bytes))
            elif each.spec.kind == "arrow" and hasattr(each.spec.value, "schema"):
                schemas.append(_arrow_schema(each.spec.value))
            else:
                self._notes.append(
                    f"the columns of {each.spec.text} are only known when it is read"
                )
                return None
        if not schemas:
            return None
        columns = spec.rules.schema(one_schema(schemas, "the sources' columns"))
        query = spec.task_query(columns, spec.memory_bytes)
        return columns if query is None else query.schema(columns)

    def _schema(self, columns: pa.Schema | None) -> dict[str, Any]:
        spec, table = self._spec, self._target.table
        creates = table is None
        facts: dict[str, Any] = {"creates_table": creates}
        if creates:
            facts |= {"partition_by": spec.partition_by, "sort_by": spec.sort_by}
        if columns is None:
            return facts
        facts["columns"] = {column.name: str(column.type) for column in columns}
        if table is None:
            planned = new_table_schema(spec.table_name, columns, spec.table_properties)
            partition_spec(spec.partition_by, planned.schema)  # raises if they do not fit
            sort_order(spec.sort_by, planned.schema)
            named = {each.name: str(each.field_type) for each in planned.schema.fields}
            return facts | {"new_columns": named, "columns_discarded": planned.discarded}
        planned = plan_schema(write_target(table), columns, mode=spec.schema_mode)
        return facts | {
            "schema_changes": planned.changes,
            "columns_discarded": planned.discarded,
        }

    def _change(self, source_bytes: int, branch: str) -> dict[str, Any]:
        spec, table = self._spec, self._target.table
        properties = table.properties if table is not None else spec.table_properties
        target_bytes = whole_number(
            properties,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
        )
        change: dict[str, Any] = {
            "operation": "append" if spec.mode == "append" or table is None else "overwrite",
            "files_predicted": max(1, ceil(source_bytes / target_bytes)),
        }
        if table is not None and spec.mode != "append":
            files, size = _live(table, branch)
            change |= {"files_removed_at_most": files, "bytes_removed_at_most": size}
        return change

    def _rows(self, inputs: LoadInputs) -> int | None:
        rows = 0
        if inputs.files > _MOST_FOOTERS:
            return None
        share = ReadingShare(MemoryBudget(self._spec.memory_bytes))
        for each in inputs.inputs:
            if each.files is None:
                return None
            for file in each.files.files:
                if file.format != "parquet":
                    return None
                with read_errors(file.path):
                    rows += stored_file(file, each.files.store, share).parquet_columns().rows
        return rows

    def _memory(self) -> dict[str, Any]:
        limit, tasks = self._spec.memory_bytes, self._tasks()
        whole = None if tasks is None else limit * tasks
        return {"memory_limit_bytes": limit, "tasks": tasks, "memory_bytes": whole}

    def _tasks(self) -> int | None:
        if self._spec.engine == "local":
            return 1
        if self._spark is not None:
            from icestream.spark.setup.settings import cores_of

            return cores_of(self._spark)
        local = _LOCAL.fullmatch(self._spec.master or "local[*]")
        if local is None or self._spec.remote is not None:
            return None
        return cores() if local[1] == "*" else int(local[1] or 1)

    def _route(self, inputs: LoadInputs) -> dict[str, Any]:
        """How the rows would get to the table, if the engine is Spark."""
        spec, cores_at_once = self._spec, self._tasks()
        if spec.engine == "local" or cores_at_once is None:
            return {}
        from icestream.pipeline.engines.spark_route import choose_route

        route = choose_route(
            spec, inputs, self._target, cores=cores_at_once, memory_bytes=spec.memory_bytes
        )
        return {"direct": route.is_direct, "route": route.reason}

    def _time(self, read_bytes: int) -> dict[str, Any]:
        if self._state is None:
            return {}
        for report in newest_reports(self._state, self._spec.name):
            same = report.get("engine") == self._spec.engine
            read = report.get("bytes_read") or 0
            if same and read and not report.get("already_committed"):
                seconds = float(report["seconds"]) * read_bytes / read
                return {
                    "seconds_predicted": round(seconds, 3),
                    "prediction": f"the load of {report.get('started_at')}, by bytes read",
                }
        return {}


def _has_tables(inputs: LoadInputs) -> bool:
    return any(
        each.point is not None and each.point.since != each.point.snapshot_id
        for each in inputs.inputs
    )


def _live(table: Table, branch: str) -> tuple[int, int]:
    """Number and size of a branch's files, from the summary of its head."""
    head = table.metadata.snapshot_by_name(branch)
    summary = head.summary.additional_properties if head is not None and head.summary else {}
    return int(summary.get("total-data-files", 0)), int(summary.get("total-files-size", 0))


def _arrow_schema(value: Any) -> pa.Schema:
    if isinstance(value.schema, pa.Schema):
        return value.schema
    with open_source(value) as stream:
        return stream.schema or pa.schema([])
