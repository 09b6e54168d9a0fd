"""The engine on Spark: sources as a frame, written by tasks, committed here."""

from __future__ import annotations

from contextlib import ExitStack
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import icestream.spark as ice_spark
from icestream.errors import InvalidArgumentError
from icestream.memory import DEFAULT_MEMORY, parse_bytes
from icestream.pipeline.load_input import LoadInputs
from icestream.pipeline.load_progress import LoadProgress
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.load_target import LoadTarget
from icestream.pipeline.local_engine import Loaded
from icestream.pipeline.quarantine import QuarantineRows
from icestream.pipeline.spark_counts import make_counts
from icestream.pipeline.spark_files import FileFrames
from icestream.pipeline.spark_frame import SourceFrame, source_frame
from icestream.pipeline.spark_jars import named_jars
from icestream.pipeline.spark_watch import SparkWatch
from icestream.report import MergeReport, WriteReport
from icestream.spark.installed import pyspark_module
from icestream.spark.settings import MEMORY_SETTING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkEngine:
    """Runs loads on Spark.

    Args:
        spec: The load.
        progress: Kept up to date.
        spark: The session; by default that of a frame among the sources, the one that runs, or a
            new one.

    Memory: each running task stays within the load's `memory`, beside Python and Spark themselves.
    """

    def __init__(self, spec: LoadSpec, progress: LoadProgress, spark: Any) -> None:
        self._spec = spec
        self._progress = progress
        self._spark: SparkSession = spark or session_of(spec)
        setting = self._spark.conf.get(MEMORY_SETTING, None) or DEFAULT_MEMORY
        self.memory_bytes = parse_bytes(spec.memory if spec.memory is not None else setting)

    def write(self, inputs: LoadInputs, target: LoadTarget) -> Loaded:
        """Load the rows, as one snapshot."""
        self._progress.begin(inputs.files or None, budget=None)
        self._progress.limit_bytes = self.memory_bytes
        counts = make_counts(self._spark)
        with ExitStack() as stack:
            made = source_frame(self._spark, self._spec, inputs, counts, self.memory_bytes, stack)
            with SparkWatch(self._spark, self._progress, counts, made.footer_rows) as watch:
                report = self._verb(made.frame, target)
        if report.worker_base_bytes:
            self._progress.worker_base_bytes = report.worker_base_bytes
        rows = self._rows_read(report, made, inputs, counts)
        if rows is not None:
            self._progress.rows = rows
        self._progress.files, self._progress.bytes = inputs.files, inputs.bytes
        return Loaded(
            report,
            created=target.table is None,
            rows_read=rows,
            may_be_bad=True,
            peak_worker_bytes=max(watch.peak_worker_bytes or 0, report.worker_peak_bytes) or None,
        )

    def quarantine(
        self, inputs: LoadInputs, target: LoadTarget, load_id: str | None
    ) -> WriteReport | None:
        """Store the bad records of a load; None if there are none."""
        made = QuarantineRows.of(self._spec)
        files = FileFrames(self._spark, target.name, passes_bad=True)
        frames = [files.bad(each, made) for each in inputs.inputs if each.has_text]
        # Looked at twice, and read once: whether there are any, and to be stored.
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

    def _verb(self, frame: DataFrame, target: LoadTarget) -> WriteReport:
        spec = self._spec
        options: dict[str, Any] = {
            "memory": self.memory_bytes,
            "schema_mode": spec.schema_mode,
            "branch": spec.branch,
            "properties": spec.properties,
            "load_id": spec.load_id,
        }
        write: Any = {
            "append": ice_spark.append,
            "replace": ice_spark.overwrite,
            "merge": ice_spark.merge,
        }[spec.mode]
        if spec.mode == "merge":
            options |= spec.merge_options
        if target.table is not None:
            return cast(WriteReport, write(frame, target.table, **options))
        if spec.mode == "merge" and spec.keys is None:
            raise InvalidArgumentError(
                f"{target.name} is not there yet and has no identifier fields: give keys="
            )
        if spec.branch not in (None, "main"):
            raise InvalidArgumentError(
                f"{target.name} is not there yet and has no branch {spec.branch!r}: leave branch "
                "out"
            )
        target.make_namespace()
        made = write(
            frame,
            target.name,
            catalog=target.catalog,
            create=True,
            partition_by=spec.partition_by,
            sort_by=spec.sort_by,
            table_properties=dict(spec.table_properties),
            **options,
        )
        return cast(WriteReport, made)

    def _rows_read(
        self, report: WriteReport, made: SourceFrame, inputs: LoadInputs, counts: Any
    ) -> int | None:
        """How many rows sources gave, if it can be told."""
        if report.already_committed:
            return 0
        if made.rows is not None:
            return made.rows
        spec = self._spec
        if spec.transform is None and spec.mode != "merge":
            return report.rows_inserted
        counted = all(each.files is not None or each.spec.kind == "table" for each in inputs.inputs)
        if counts is not None and counted and counts.value:
            return made.footer_rows + int(sum(counts.value.values()))
        simple = (spec.when_matched, spec.when_not_matched) == ("update", "insert")
        if spec.transform is None and simple and spec.delete_when is None:
            assert isinstance(report, MergeReport)
            found = report.rows_inserted + report.rows_updated + report.rows_unchanged
            return found + report.rows_superseded - report.target_duplicates
        return None


def session_of(spec: LoadSpec) -> Any:
    """The session of a frame among the sources, the one that runs, or a new one."""
    for source in spec.sources:
        if source.kind == "frame":
            return source.value.sparkSession  # type: ignore[attr-defined]
    sessions = pyspark_module("pyspark.sql").SparkSession
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
