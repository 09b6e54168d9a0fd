"""What a load would do, from listings, footers and metadata: nothing is touched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH

from icestream import catalogs
from icestream.commit.landing import check_branch
from icestream.commit.load_id import find_load
from icestream.commit.new_table import new_table_schema
from icestream.commit.table_property import whole_number
from icestream.commit.write_files import write_target
from icestream.machine import cores
from icestream.memory import DEFAULT_MEMORY, parse_bytes
from icestream.pipeline.checkpoint import Checkpoint
from icestream.pipeline.file_columns import one_schema
from icestream.pipeline.load_identity import Naming, load_id_of, name_load
from icestream.pipeline.load_input import LoadInputs, find_inputs
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.load_target import LoadTarget
from icestream.pipeline.report_store import newest_reports
from icestream.pipeline.state_folder import StateFolder
from icestream.pipeline.table_increment import schema_scan
from icestream.write.schema import plan_schema
from icestream.write.source import ArrowSource, open_source
from icestream.write.spec_text import partition_spec, sort_order

_MOST_FOOTERS = 1000
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,.*)?\])?")


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load would do.

    Attributes:
        load: The load's name.
        into: The table.
        mode: `"append"`, `"replace"` or `"merge"`.
        engine: `"spark"` or `"local"`.
        sources: What would be read, in words.
        branch: The branch that would get the snapshot.
        already_committed: Whether a load with this id was committed: nothing would be done.
        load_id: That id, if the load is known by its inputs.
        files: Files that would be read; of an incremental load only new ones.
        bytes: Their size.
        rows: Their rows, where footers and metadata tell; None where not.
        columns: Names and types of the columns; None where only running the load would tell.
        creates_table: Whether the table would be created.
        new_columns: Of a table that is created: its columns, as Iceberg names types.
        partition_by: Of a table that is created: its partition fields.
        sort_by: Of a table that is created: its sort order.
        schema_changes: What would change in the table's schema, in words.
        columns_discarded: Columns that would be dropped.
        operation: How the snapshot would call itself; None if there is nothing to do.
        files_removed_at_most: Files of the table that might be removed or written again.
        bytes_removed_at_most: Their size.
        files_predicted: About how many data files would be written.
        memory_limit_bytes: The limit; on Spark it is each task's.
        tasks: How many tasks run at once; None where not known.
        memory_bytes: The limit for all of them together; None where not known.
        seconds_predicted: About how long it would take; None where there is nothing to go by.
        prediction: What that is based on.
        notes: What else there is to know.
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
    seconds_predicted: float | None = None
    prediction: str | None = None
    notes: tuple[str, ...] = ()

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
    """Work out what a load would do. Touches nothing.

    Args:
        spec: The load.
        state: Where earlier reports and checkpoints are, if anywhere.
        spark: The session that it would run on, if there is one.
        naming: Decides under which id the load would be committed, if it has none.

    Raises:
        SourceError: If a source can't be found.
        SchemaMismatchError: If its columns do not fit the table.
    """
    with _target(spec) as target:
        return _Plan(spec, target, state, spark, naming or name_load(spec)).plan()


@contextmanager
def _target(spec: LoadSpec) -> Iterator[LoadTarget]:
    """The table; where there is no catalog yet, one that is never stored."""
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
    """One plan in the making."""

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
        told: dict[str, Any] = {
            "load": spec.name,
            "into": spec.table_name,
            "mode": spec.mode,
            "engine": spec.engine,
            "sources": tuple(source.text for source in spec.sources),
            "branch": branch,
        }
        if table is not None and find_load(table.metadata, branch, spec.load_id) is not None:
            return LoadPlan(**told, already_committed=True)
        inputs = self._inputs()
        if table is not None and not spec.incremental and spec.load_id is None:
            load_id = load_id_of(spec, inputs, self._target, self._naming)
            if find_load(table.metadata, branch, load_id) is not None:
                return LoadPlan(**told, already_committed=True, load_id=load_id)
        inputs = inputs.with_columns(spec, self._target)
        columns = self._columns(inputs)
        nothing = spec.incremental and not inputs.files and not _has_tables(inputs)
        told |= {"files": inputs.files, "bytes": inputs.bytes, "rows": self._rows(inputs)}
        told |= self._schema(columns) | self._memory() | self._time(inputs)
        if not nothing:
            told |= self._change(inputs, branch)
        return LoadPlan(**told, notes=tuple(self._notes))

    def _inputs(self) -> LoadInputs:
        spec, target = self._spec, self._target
        found = find_inputs(spec, target, may_be_empty=spec.incremental)
        if spec.incremental:
            folder = (
                Path(spec.checkpoint)
                if spec.checkpoint is not None
                else (self._state or StateFolder()).checkpoint(spec.name)
            )
            uuid = str(target.table.metadata.table_uuid) if target.table is not None else None
            checkpoint = Checkpoint.look(folder, spec, uuid)
            if checkpoint.pending() is not None:
                self._notes.append("a load that was killed would be done again first")
            found = checkpoint.new(found).narrowed(found)
        return found

    def _columns(self, inputs: LoadInputs) -> pa.Schema | None:
        """The columns that the load would write, if they can be told without running anything."""
        if self._spec.transform is not None:
            self._notes.append("which columns the transform makes is known when it runs")
            return None
        schemas = []
        for each in inputs.inputs:
            if each.columns is not None:
                schemas.append(each.columns)
            elif each.point is not None:
                schemas.append(schema_scan(each.spec, each.point).schema)
            elif each.files is not None:
                continue
            elif each.spec.kind == "arrow" and hasattr(each.spec.value, "schema"):
                with_schema: Any = each.spec.value
                schemas.append(_arrow_schema(with_schema))
            else:
                self._notes.append(f"the columns of {each.spec.text} are known when it is read")
                return None
        return one_schema(schemas, "the sources' columns") if schemas else None

    def _schema(self, columns: pa.Schema | None) -> dict[str, Any]:
        spec, table = self._spec, self._target.table
        creates = table is None
        told: dict[str, Any] = {"creates_table": creates}
        if creates:
            told |= {"partition_by": spec.partition_by, "sort_by": spec.sort_by}
        if columns is None:
            return told
        told["columns"] = {column.name: str(column.type) for column in columns}
        if table is None:
            planned = new_table_schema(spec.table_name, columns, spec.table_properties)
            partition_spec(spec.partition_by, planned.schema)  # refuse what does not fit
            sort_order(spec.sort_by, planned.schema)
            named = {each.name: str(each.field_type) for each in planned.schema.fields}
            return told | {"new_columns": named, "columns_discarded": planned.discarded}
        planned = plan_schema(write_target(table), columns, mode=spec.schema_mode)
        return told | {
            "schema_changes": planned.changes,
            "columns_discarded": planned.discarded,
        }

    def _change(self, inputs: LoadInputs, branch: str) -> dict[str, Any]:
        spec, table = self._spec, self._target.table
        properties = table.properties if table is not None else spec.table_properties
        target_bytes = whole_number(
            properties,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
        )
        told: dict[str, Any] = {
            "operation": "append" if spec.mode == "append" or table is None else "overwrite",
            "files_predicted": max(1, ceil(inputs.bytes / target_bytes)),
        }
        if table is not None and spec.mode != "append":
            files, size = _live(table, branch)
            told |= {"files_removed_at_most": files, "bytes_removed_at_most": size}
        return told

    def _rows(self, inputs: LoadInputs) -> int | None:
        rows = 0
        if inputs.files > _MOST_FOOTERS:
            return None
        for each in inputs.inputs:
            if each.files is not None:
                for file in each.files.files:
                    if file.format != "parquet":
                        return None
                    with each.files.store.open_file(file.path) as opened:
                        rows += pq.read_metadata(opened).num_rows
            else:
                return None
        return rows

    def _memory(self) -> dict[str, Any]:
        spec = self._spec
        limit = parse_bytes(spec.memory if spec.memory is not None else DEFAULT_MEMORY)
        tasks = self._tasks()
        whole = None if tasks is None else limit * tasks
        return {"memory_limit_bytes": limit, "tasks": tasks, "memory_bytes": whole}

    def _tasks(self) -> int | None:
        if self._spec.engine == "local":
            return 1
        if self._spark is not None:
            from icestream.spark.cores import cores_of

            return cores_of(self._spark)
        found = _LOCAL.fullmatch(self._spec.master or "local[*]")
        if found is None or self._spec.remote is not None:
            return None
        return cores() if found[1] == "*" else int(found[1] or 1)

    def _time(self, inputs: LoadInputs) -> dict[str, Any]:
        if self._state is None:
            return {}
        for report in newest_reports(self._state, self._spec.name):
            same = report.get("engine") == self._spec.engine
            read = report.get("bytes_read") or 0
            if same and read and not report.get("already_committed"):
                seconds = float(report["seconds"]) * inputs.bytes / read
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
    """Files and bytes of a branch, as its head's summary has them."""
    head = table.metadata.snapshot_by_name(branch)
    summary = head.summary.additional_properties if head is not None and head.summary else {}
    return int(summary.get("total-data-files", 0)), int(summary.get("total-files-size", 0))


def _arrow_schema(value: Any) -> pa.Schema:
    if isinstance(value.schema, pa.Schema):
        return value.schema
    with open_source(value) as opened:
        stream: ArrowSource = opened
        return stream.schema or pa.schema([])
