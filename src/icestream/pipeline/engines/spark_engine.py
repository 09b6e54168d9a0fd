"""The engine on Spark: tasks write the rows of all sources, and the driver commits.

The tasks read the sources themselves if they can (`spark_route.py`). Otherwise Spark reads the
sources as one DataFrame.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import icestream.spark as ice_spark
from icestream.errors import MissingExtraError
from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.operations.merge.merge_options import MergeOptions
from icestream.pipeline.engines.engine import Loaded
from icestream.pipeline.engines.spark_files import FileFrames
from icestream.pipeline.engines.spark_frame import SourceFrame, source_frame
from icestream.pipeline.engines.spark_jars import named_jars
from icestream.pipeline.engines.spark_route import Route, choose_route
from icestream.pipeline.engines.spark_watch import CountRows, SparkWatch, make_counts
from icestream.pipeline.inputs.database_source import needs_jdbc
from icestream.pipeline.inputs.load_input import LoadInput, LoadInputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.inputs.quarantine import QuarantineRows
from icestream.pipeline.reports.load_progress import LoadProgress
from icestream.pipeline.request.engine_choice import spark_need
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.read.split import Split
from icestream.report.write_report import MergeReport, WriteReport
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.setup.settings import MEMORY_SETTING, cores_of
from icestream.spark.tasks.direct_write import SourceReader
from icestream.spark.tasks.manifest_tasks import SparkManifests
from icestream.spark.verbs.merge_frame import merge_rows
from icestream.spark.writing.direct_rows import DirectRows
from icestream.spark.writing.table_write import FrameWriteOptions
from icestream.spark.writing.written_frame import Creation, is_case_sensitive, write_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkEngine:
    """Runs loads on Spark.

    Args:
        spec: The load.
        progress: Updated while the load runs.
        spark: The session; by default that of a DataFrame among the sources, the active session,
            or a new one.

    Memory: each task stays within the load's `memory`, in addition to Python and Spark themselves.
    """

    def __init__(self, spec: LoadSpec, progress: LoadProgress, spark: Any) -> None:
        self._spec = spec
        self._progress = progress
        self._spark: SparkSession = spark or session_of(spec)
        setting = self._spark.conf.get(MEMORY_SETTING, None) or DEFAULT_MEMORY
        self.memory_bytes = parse_bytes(spec.memory if spec.memory is not None else setting)

    def write(self, inputs: LoadInputs, target: LoadTarget) -> Loaded:
        """Write the rows of all sources as one snapshot."""
        self._progress.begin(inputs.files or None, budget=None)
        self._progress.limit_bytes = self.memory_bytes
        inputs = inputs.with_memory(self.memory_bytes)
        counts = make_counts(self._spark)
        route = choose_route(
            self._spec,
            inputs,
            target,
            cores=cores_of(self._spark),
            memory_bytes=self.memory_bytes,
            case_sensitive=is_case_sensitive(self._spark),
            workers=SparkManifests(self._spark, self.memory_bytes),
        )
        if route.reader is not None:
            with SparkWatch(self._spark, self._progress, counts) as watch:
                report = self._write_direct(route.reader, route, target, counts)
            rows = self._rows_read_direct(report, counts)
            table_files, table_bytes = _tables_read(route)
        else:
            with ExitStack() as stack:
                source = source_frame(
                    self._spark, self._spec, inputs, counts, self.memory_bytes, stack
                )
                with SparkWatch(self._spark, self._progress, counts, source.footer_rows) as watch:
                    report = self._verb(source.frame, target)
            rows = self._rows_read(report, source, inputs, counts)
            table_files, table_bytes = source.table_files, source.table_bytes
        if report.worker_base_bytes:
            self._progress.worker_base_bytes = report.worker_base_bytes
        if rows is not None:
            self._progress.rows = rows
        self._progress.files, self._progress.bytes = inputs.files, inputs.bytes
        return Loaded(
            report,
            created=target.table is None,
            rows_read=rows,
            may_be_bad=True,
            peak_worker_bytes=max(watch.peak_worker_bytes or 0, report.worker_peak_bytes) or None,
            direct=route.is_direct,
            table_files_read=table_files,
            table_bytes_read=table_bytes,
        )

    def quarantine(
        self, inputs: LoadInputs, target: LoadTarget, load_id: str | None
    ) -> WriteReport | None:
        """Store the bad records of all sources. Return None if there are none."""
        rows = QuarantineRows.of(self._spec)
        files = FileFrames(self._spark, target.name, passes_bad=True)
        frames = [files.bad(each, rows) for each in inputs.inputs if each.has_text]
        # Persist the records, because they are counted first and then written.
        bad: DataFrame = reduce(lambda a, b: a.union(b), frames).persist()
        try:
            if bad.isEmpty():
                return None
            if target.table is None:
                target.make_namespace()
            return ice_spark.append(
                bad,
                target.table or target.name,
                catalog=None if target.table else target.catalog,
                memory=self.memory_bytes,
                load_id=load_id,
                create=target.table is None,
            )
        finally:
            bad.unpersist()

    def _write_direct(
        self, reader: SourceReader, route: Route, target: LoadTarget, counts: Any
    ) -> WriteReport:
        spec = self._spec
        on_read = None if counts is None else CountRows(counts, 0)
        rows = DirectRows(self._spark, reader, route.shares, on_read)
        options = FrameWriteOptions(
            "append" if spec.mode == "append" else "overwrite",
            memory=self.memory_bytes,
            case_sensitive=is_case_sensitive(self._spark),
            **spec.commit_options,
        )
        creation = None
        if target.table is None:
            target.check_new(spec)
            target.make_namespace()
            creation = Creation(spec.partition_by, spec.sort_by, dict(spec.table_properties))
        table = target.table or target.name
        catalog = None if target.table is not None else target.catalog
        if spec.mode == "merge":
            merge = MergeOptions(**spec.merge_options, schema_mode=spec.schema_mode)
            return merge_rows(rows, table, catalog, merge, options, creation=creation)
        return write_rows(rows, table, catalog, options, creation=creation)

    def _verb(self, frame: DataFrame, target: LoadTarget) -> WriteReport:
        spec = self._spec
        options = {**spec.write_options, "memory": self.memory_bytes}
        write: Any = {
            "append": ice_spark.append,
            "replace": ice_spark.overwrite,
            "merge": ice_spark.merge,
        }[spec.mode]
        if target.table is not None:
            return cast(WriteReport, write(frame, target.table, **options))
        target.check_new(spec)
        target.make_namespace()
        report = write(
            frame,
            target.name,
            catalog=target.catalog,
            create=True,
            partition_by=spec.partition_by,
            sort_by=spec.sort_by,
            table_properties=dict(spec.table_properties),
            **options,
        )
        return cast(WriteReport, report)

    def _rows_read_direct(self, report: WriteReport, counts: Any) -> int | None:
        counted = None if counts is None else int(sum(counts.value.values()))
        return self._rows_of(report, counted)

    def _rows_read(
        self, report: WriteReport, source: SourceFrame, inputs: LoadInputs, counts: Any
    ) -> int | None:
        if source.rows is not None and not report.already_committed:
            return source.rows
        counted = all(_is_counted(each) for each in inputs.inputs)
        if counts is not None and counted and counts.value:
            return self._rows_of(report, source.footer_rows + int(sum(counts.value.values())))
        return self._rows_of(report, None)

    def _rows_of(self, report: WriteReport, counted: int | None) -> int | None:
        """The number of rows read; None if unknown.

        Args:
            report: The report of the write.
            counted: The rows that tasks counted while they read, if they did.
        """
        if report.already_committed:
            return 0
        spec = self._spec
        changes_rows = spec.transform is not None or spec.where is not None
        if not changes_rows and spec.mode != "merge":
            return report.rows_inserted
        if counted is not None:
            return counted
        simple = (spec.when_matched, spec.when_not_matched) == ("update", "insert")
        if not changes_rows and simple and spec.delete_when is None:
            assert isinstance(report, MergeReport)
            rows = report.rows_inserted + report.rows_updated + report.rows_unchanged
            return rows + report.rows_superseded - report.target_duplicates
        return None


def session_of(spec: LoadSpec) -> Any:
    """The session of a DataFrame among the sources, the active session, or a new one."""
    for source in spec.sources:
        if source.kind == "frame":
            return source.value.sparkSession  # type: ignore[attr-defined]
    try:
        sessions = pyspark_module("pyspark.sql").SparkSession
    except MissingExtraError as error:
        if spark_need(spec) is None:
            error.add_note("engine='local' loads in this process, without Spark")
        raise
    if spec.master is None and spec.remote is None:
        running = sessions.getActiveSession()
        if running is not None:
            return running
    jars = ",".join(named_jars(spec.sources))
    return ice_spark.session(
        spec.master,
        remote=spec.remote,
        memory=spec.memory if spec.memory is not None else DEFAULT_MEMORY,
        config={"spark.jars": jars} if jars else None,
    )


def _tables_read(route: Route) -> tuple[int, int]:
    """The number and the size in storage of the data files of tables that tasks read."""
    splits = [
        (part.source, part.piece)
        for share in route.shares
        for part in share
        if isinstance(part.piece, Split)
    ]
    files = {(source, split.path) for source, split in splits}
    return len(files), sum(split.bytes for _, split in splits)


def _is_counted(each: LoadInput) -> bool:
    """Whether icestream's tasks read the source, and count its rows."""
    if each.spec.kind == "jdbc":
        return not needs_jdbc(each.spec)
    return each.files is not None or each.spec.kind == "table"
