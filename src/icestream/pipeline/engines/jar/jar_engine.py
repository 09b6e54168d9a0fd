"""The engine `iceberg-jar`: Spark reads the sources, and Iceberg's runtime for Spark writes them.

It is for sites that must write with Iceberg's own code. Sources, transforms, load ids, tests and
reports are those of the engine on Spark. The jar writes in the JVM, so the memory limit applies to
reading only.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from icestream.commit.outcome.load_id import LOAD_ID_KEY, WRITE_IDS_KEY, History, load_of
from icestream.errors import (
    CommitConflictError,
    CommitUnknownError,
    DuplicateKeysError,
    InvalidArgumentError,
    InvalidDataError,
    SchemaMismatchError,
    TaskFailedError,
)
from icestream.operations.merge.merge_options import MergeOptions
from icestream.operations.merge.merge_plan import written_columns
from icestream.operations.write_files import write_target
from icestream.pipeline.engines.engine import Loaded
from icestream.pipeline.engines.jar.jar_catalog import add_catalog
from icestream.pipeline.engines.spark_engine import SparkEngine
from icestream.pipeline.engines.spark_frame import as_view, source_frame
from icestream.pipeline.engines.spark_watch import SparkWatch, make_counts
from icestream.pipeline.inputs.load_input import LoadInputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.reports.load_progress import LoadProgress
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.report.write_report import WriteReport
from icestream.spark.arrow.frame_schema import arrow_schema
from icestream.spark.setup.installed import is_classic, pyspark_module
from icestream.write.schema.schema_plan import plan_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SNAPSHOT_SETTING = "spark.sql.iceberg.snapshot-property."
_VIEW = "__icestream_source"
_TIME_TRANSFORM = re.compile(r"(year|month|day|hour)\((.+)\)")
_DELETE = "__icestream_delete"
_RANK = "__icestream_rank"
_lock = threading.Lock()  # the settings of a session apply to all its writes


class JarEngine(SparkEngine):
    """Runs loads on Spark, and writes with Iceberg's runtime.

    Args:
        spec: The load.
        progress: Updated while the load runs.
        spark: The session, with the runtime on its class path.

    Raises:
        InvalidArgumentError: If the load has an option that the runtime can't follow.
    """

    def __init__(self, spec: LoadSpec, progress: LoadProgress, spark: Any) -> None:
        super().__init__(spec, progress, spark)
        self._written: list[str] = []
        self._write_id = uuid.uuid4().hex
        if not is_classic(self._spark):
            raise InvalidArgumentError(
                "engine='iceberg-jar' does not run through Spark Connect: give a session that "
                "runs in this process, or engine='spark'"
            )

    def write(self, inputs: LoadInputs, target: LoadTarget) -> Loaded:
        """Write the rows of all sources as one snapshot."""
        began = time.monotonic()
        self._progress.begin(inputs.files or None, budget=None)
        inputs = inputs.with_memory(self.memory_bytes)
        catalog = add_catalog(self._spark, target.catalog)
        counts = make_counts(self._spark)
        with ExitStack() as stack:
            source = source_frame(self._spark, self._spec, inputs, counts, self.memory_bytes, stack)
            with SparkWatch(self._spark, self._progress, counts, source.footer_rows) as watch:
                table = self._run(source.frame, target, catalog)
        report = self._report(self._committed(table), time.monotonic() - began)
        rows = self._rows_read(report, source, inputs, counts)
        if rows is not None:
            self._progress.rows = rows
        self._progress.files, self._progress.bytes = inputs.files, inputs.bytes
        return Loaded(
            report,
            created=target.table is None,
            rows_read=rows,
            may_be_bad=True,
            peak_worker_bytes=watch.peak_worker_bytes,
            table_files_read=source.table_files,
            table_bytes_read=source.table_bytes,
        )

    def _run(self, frame: DataFrame, target: LoadTarget, catalog: str) -> Table:
        spec = self._spec
        name = ".".join(f"`{part}`" for part in (catalog, *target.name.split(".")))
        try:
            with _lock, self._settings():
                if target.table is None:
                    self._create(frame, target, name)
                    return target.catalog.load_table(target.name)
                frame = self._fitted(frame, target.table)
                place = name if spec.branch is None else f"{name}.`branch_{spec.branch}`"
                if spec.mode == "merge":
                    self._merge(frame, target.table, place)
                elif spec.mode == "replace":
                    frame.writeTo(place).overwrite(self._functions.lit(True))
                else:
                    frame.writeTo(place).append()
        except _spark_errors() as error:
            raise _shown(error, target.name) from error
        return target.table.refresh()

    @property
    def _functions(self) -> Any:
        return pyspark_module("pyspark.sql.functions")

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """Settings that add the load's id and properties to the snapshot."""
        spec, conf = self._spec, self._spark.conf
        properties = {**spec.properties, WRITE_IDS_KEY: self._write_id}
        if spec.load_id is not None:
            properties[LOAD_ID_KEY] = spec.load_id
        settings = {_SNAPSHOT_SETTING + key: str(value) for key, value in properties.items()}
        before = {name: conf.get(name, None) for name in settings}
        for name, text in settings.items():
            conf.set(name, text)
        try:
            yield
        finally:
            for name, earlier in before.items():
                if earlier is None:
                    conf.unset(name)
                else:
                    conf.set(name, earlier)

    def _create(self, frame: DataFrame, target: LoadTarget, name: str) -> None:
        spec = self._spec
        target.check_new(spec)
        if spec.sort_by:
            raise InvalidArgumentError(
                f"engine='iceberg-jar' can't create {target.name} with a sort order: create the "
                "table first, or leave sort_by out"
            )
        target.make_namespace()
        if spec.mode == "merge":
            frame = self._one_row_per_key(frame, list(spec.keys or ()))
        parts = ", ".join(_TIME_TRANSFORM.sub(r"\1s(\2)", part) for part in spec.partition_by)
        properties = {"format-version": "2", **dict(spec.table_properties)}
        listed = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in properties.items())
        partitioned = f"PARTITIONED BY ({parts}) " if parts else ""
        with as_view(self._spark, frame, _VIEW):
            self._spark.sql(
                f"CREATE TABLE {name} USING iceberg {partitioned}TBLPROPERTIES ({listed}) "
                f"AS SELECT * FROM {_VIEW}"
            )

    def _fitted(self, frame: DataFrame, table: Table) -> DataFrame:
        """The columns that the table has. With `evolve`, the table gets the others first."""
        stream, target = arrow_schema(frame.schema), write_target(table)
        if self._spec.mode == "merge":
            options = MergeOptions(schema_mode=self._spec.schema_mode, **self._spec.merge_options)
            stream = written_columns(options, stream, target)
        plan = plan_schema(target, stream, mode=self._spec.schema_mode)
        if plan.changes:
            with table.update_schema() as update:
                update.union_by_name(plan.schema)
        self._written = [name for name in stream.names if name not in plan.discarded]
        if self._spec.mode == "merge":
            return frame
        return frame.select(*(self._functions.col(f"`{name}`") for name in self._written))

    def _merge(self, frame: DataFrame, table: Table, place: str) -> None:
        spec = self._spec
        keys = list(spec.keys or _identifiers(table))
        frame = self._one_row_per_key(frame, keys)
        delete = self._functions.lit(False)
        if spec.delete_when is not None:
            delete = self._functions.coalesce(self._functions.expr(spec.delete_when), delete)
        with as_view(self._spark, frame.withColumn(_DELETE, delete), _VIEW):
            equal = " AND ".join(f"t.`{name}` = s.`{name}`" for name in keys)
            clauses = " ".join(self._clauses(keys))
            self._spark.sql(f"MERGE INTO {place} t USING {_VIEW} s ON {equal} {clauses}")

    def _clauses(self, keys: list[str]) -> Iterator[str]:
        spec, names = self._spec, self._written
        changed = [name for name in names if name not in keys]
        if spec.update_columns is not None:
            changed = [name for name in changed if name in set(spec.update_columns)]
        if spec.delete_when is not None:
            yield f"WHEN MATCHED AND s.{_DELETE} THEN DELETE"
        if spec.when_matched == "delete":
            yield "WHEN MATCHED THEN DELETE"
        elif spec.when_matched == "update" and changed:
            same = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in changed)
            condition = f" AND NOT ({same})" if spec.skip_unchanged else ""
            pairs = ", ".join(f"`{name}` = s.`{name}`" for name in changed)
            yield f"WHEN MATCHED{condition} THEN UPDATE SET {pairs}"
        if spec.when_not_matched == "insert":
            columns = ", ".join(f"`{name}`" for name in names)
            values = ", ".join(f"s.`{name}`" for name in names)
            yield f"WHEN NOT MATCHED AND NOT s.{_DELETE} THEN INSERT ({columns}) VALUES ({values})"

    def _one_row_per_key(self, frame: DataFrame, keys: list[str]) -> DataFrame:
        """Check the keys as `icestream.merge` does. The runtime would insert duplicates."""
        spec, functions = self._spec, self._functions
        columns = [functions.col(f"`{name}`") for name in keys]
        has_null = functions.lit(False)
        for column in columns:
            has_null = has_null | column.isNull()
        if spec.null_keys == "error" and not frame.where(has_null).isEmpty():
            raise InvalidDataError(
                "rows have a null in their key: fill in the nulls, or merge with "
                "null_keys='insert' to insert such rows without looking for matches",
                column=keys[0],
            )
        keyed = frame.where(~has_null)
        repeated = keyed.groupBy(*columns).count().where("count > 1").limit(3).collect()
        if not repeated:
            return frame
        if spec.on_duplicate == "error" or spec.last_by is None:
            shown = tuple(str(tuple(row)[:-1]) for row in repeated)
            raise DuplicateKeysError(
                f"rows have the same key as another, such as {'; '.join(shown)}: remove them, or "
                "merge with on_duplicate='last' and last_by= the column that says which row is "
                "the last. The table was not changed",
                column=", ".join(keys),
                examples=shown,
            )
        window = pyspark_module("pyspark.sql.window").Window.partitionBy(*columns)
        newest = functions.col(f"`{spec.last_by}`").desc_nulls_last()
        rank = functions.row_number().over(window.orderBy(newest))
        ranked = keyed.withColumn(_RANK, rank).where(f"{_RANK} = 1").drop(_RANK)
        return ranked.unionByName(frame.where(has_null))

    def _committed(self, table: Table) -> Snapshot | None:
        """The snapshot of this load; None if the load changed nothing."""
        branch = self._spec.branch or MAIN_BRANCH
        for snapshot in History.of(table.metadata, branch).snapshots.values():
            if snapshot.summary and snapshot.summary[WRITE_IDS_KEY] == self._write_id:
                return snapshot
        return None

    def _report(self, snapshot: Snapshot | None, seconds: float) -> WriteReport:
        operation = {"append": "append", "replace": "overwrite", "merge": "merge"}[self._spec.mode]
        if snapshot is None:
            return WriteReport(operation, None, seconds=seconds)
        counts = asdict(load_of(snapshot).counts)
        return WriteReport(
            operation, snapshot.snapshot_id, commit_attempts=1, seconds=seconds, **counts
        )


def _identifiers(table: Table) -> list[str]:
    names = sorted(table.schema().identifier_field_names())
    if not names:
        raise InvalidArgumentError(
            f"{'.'.join(table.name())} has no identifier fields: give keys= the key columns"
        )
    return names


def _text(value: object) -> str:
    """A string in Spark's SQL."""
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _spark_errors() -> tuple[type[BaseException], ...]:
    """Errors of PySpark, and those of the runtime, which PySpark passes on as they are."""
    java: type[BaseException] = pyspark_module("py4j.protocol").Py4JJavaError
    return pyspark_module("pyspark.errors").PySparkException, java


def _shown(error: BaseException, table: str) -> Exception:
    """Icestream's error for an error of Spark or of the runtime."""
    whole = str(error)
    text = " ".join(whole.split("\n\nJVM stacktrace")[0].split())[:500]
    if "CommitStateUnknownException" in whole:  # first, because its text may quote other errors
        return CommitUnknownError(
            f"the catalog gave no answer, so {table} may have changed: load again with the same "
            f"load_id, which does nothing if the rows are there: {text}",
            snapshot_id=-1,  # only the runtime knows it
        )
    if "ValidationException" in whole or "CommitFailedException" in whole:
        return CommitConflictError(f"another writer changed {table} at the same time: {text}")
    if type(error).__name__ == "AnalysisException":
        return SchemaMismatchError(f"the rows do not fit {table}: {text}", differences=(text,))
    return TaskFailedError(f"writing to {table} failed: {text}")
