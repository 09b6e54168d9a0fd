"""Runs one load, from its specification to its report."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from pyiceberg.table.refs import MAIN_BRANCH

from icestream.commit.outcome.load_id import CommittedWrite
from icestream.errors import CommitUnknownError, SchemaMismatchError, SourceError
from icestream.pipeline.engines.engine import Engine, Loaded
from icestream.pipeline.engines.local_engine import LocalEngine
from icestream.pipeline.inputs.checkpoint import Checkpoint, Intent
from icestream.pipeline.inputs.load_identity import Naming, load_id_of, name_load
from icestream.pipeline.inputs.load_input import LoadInputs, find_inputs
from icestream.pipeline.inputs.load_target import LoadTarget
from icestream.pipeline.inputs.quarantine import quarantine_load_id
from icestream.pipeline.reports.load_progress import LoadProgress, Stages, peak_process_bytes
from icestream.pipeline.reports.load_report import LoadReport, LoadReportStatus
from icestream.pipeline.reports.state_folder import StateFolder, store_report
from icestream.pipeline.request.engine_choice import choose_engine
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.report.version import __version__
from icestream.report.write_report import WriteReport

_logger = logging.getLogger(__name__)
# Fields that the report of a load copies from the report of its write.
_FACTS = {each.name for each in fields(WriteReport)} & {each.name for each in fields(LoadReport)}
_FACTS -= {"memory_limit_bytes", "worker_base_bytes", "seconds"}


class Gate(Protocol):
    """Decides whether a load is published. `AuditGate` in `pipeline.audit` is one."""

    def __call__(
        self,
        spec: LoadSpec,
        target: LoadTarget,
        load: Callable[[LoadSpec, LoadTarget], LoadReport],
    ) -> LoadReport:
        """Run the load, if necessary on another branch. An error means that nothing was loaded.

        Args:
            spec: The load, with its load id.
            target: The table.
            load: Runs the load once per call.
        """
        ...


class LoadRun:
    """Runs one load.

    Args:
        spec: The load.
        state: Folder for reports and checkpoints; None stores no report.
        spark: The session to use, if the engine is Spark.
        progress: Updated while the load runs.
        gate: Decides whether the load is published.
        naming: Chooses the load id of a load that has none and is not incremental.
    """

    def __init__(
        self,
        spec: LoadSpec,
        state: StateFolder | None,
        spark: Any,
        progress: LoadProgress,
        gate: Gate | None = None,
        naming: Naming | None = None,
    ) -> None:
        spec, self._engine_reason = choose_engine(spec, spark)
        self._gate = gate
        self._naming = naming or name_load(spec)
        self._spec = spec
        self._state = state
        self._spark = spark
        self._progress = progress
        self._stages = Stages()
        self._started = datetime.now(UTC)

    def run(self) -> LoadReport:
        """Run the load and store its report."""
        self._progress.stage = "opening the table"
        spec = self._spec
        with ExitStack() as stack:
            with self._stages.stage("open"):
                target = stack.enter_context(LoadTarget.open(spec))
            if spec.incremental:
                report = self._run_increment(target)
            elif spec.load_id is not None:
                report = self._run_through_gate(spec, target, None)
            else:
                with self._stages.stage("open"):
                    inputs = self._find_inputs(target)
                load_id = load_id_of(spec, inputs, target, self._naming)
                report = self._run_through_gate(replace(spec, load_id=load_id), target, inputs)
        self._progress.stage = "done"
        return store_report(report, self._state)

    def _find_inputs(self, target: LoadTarget, *, may_be_empty: bool = False) -> LoadInputs:
        self._progress.stage = "finding the sources"
        return find_inputs(self._spec, target, may_be_empty=may_be_empty)

    def _run_increment(self, target: LoadTarget) -> LoadReport:
        with Checkpoint.open(self._state, self._spec, target.table_uuid) as checkpoint:
            with self._stages.stage("open"):
                inputs = self._find_inputs(target, may_be_empty=True)
            pending = checkpoint.pending()
            if pending is not None and self._can_replay(checkpoint, pending, target, inputs):
                report = self._run_intent(checkpoint, pending, target, inputs)
                if not report.already_committed:
                    return report
                target = target.refreshed()
            intent = checkpoint.new(inputs)
            if intent.is_empty:
                nothing = WriteReport("append", None)
                loaded = Loaded(nothing, created=False, rows_read=0, may_be_bad=False)
                return self._report(self._spec, LoadInputs(()), loaded, None)
            return self._run_intent(checkpoint, intent, target, inputs)

    def _can_replay(
        self, checkpoint: Checkpoint, intent: Intent, target: LoadTarget, inputs: LoadInputs
    ) -> bool:
        """Whether a killed load can run again: it was committed, or its files are unchanged."""
        spec = replace(self._spec, load_id=checkpoint.load_id(intent.number))
        if target.committed(spec, spec.load_id) is not None or intent.is_in(inputs):
            return True
        _logger.warning(
            "%s was killed before it committed, and its files have changed since then: loading the "
            "current files",
            spec.name,
        )
        checkpoint.abandon(intent)
        return False

    def _run_intent(
        self, checkpoint: Checkpoint, intent: Intent, target: LoadTarget, inputs: LoadInputs
    ) -> LoadReport:
        spec = replace(self._spec, load_id=checkpoint.load_id(intent.number))
        checkpoint.begin(intent)
        try:
            report = self._run_through_gate(spec, target, intent.narrowed(inputs))
        except CommitUnknownError:
            raise
        except Exception:
            with suppress(Exception):  # if the catalog does not answer, the intent stays
                if target.refreshed().committed(spec, spec.load_id) is None:
                    checkpoint.abandon(intent)  # nothing was loaded, and the files may change
            raise
        checkpoint.finish(intent, inputs, target.refreshed().table_uuid)
        return report

    def _run_through_gate(
        self, spec: LoadSpec, target: LoadTarget, inputs: LoadInputs | None
    ) -> LoadReport:
        if self._gate is None:
            return self._run(spec, target, inputs)
        if spec.engine != "local":
            self._progress.stage = "starting Spark"  # the gate plans the table and runs tests
        return self._gate(spec, target, lambda spec, target: self._run(spec, target, inputs))

    def _run(self, spec: LoadSpec, target: LoadTarget, inputs: LoadInputs | None) -> LoadReport:
        already = target.committed(spec, spec.load_id)
        if already is not None and spec.bad_records != "quarantine":
            loaded = _already(spec, already)
            return self._report(spec, inputs or LoadInputs(()), loaded, None)
        try:
            with self._stages.stage("open"):
                if inputs is None:
                    inputs = self._find_inputs(target)
                self._progress.stage = "reading the schema"
                inputs = inputs.with_columns(spec, target)
        except SourceError as error:
            if already is None:
                raise
            _logger.warning(
                "%s was loaded before; its bad records are not stored: %s", spec.name, error
            )
            return self._report(spec, LoadInputs(()), _already(spec, already), None)
        engine = self._engine(spec)
        if already is not None:
            loaded = _already(spec, already)
        else:
            try:
                with self._stages.stage("load"):
                    loaded = engine.write(inputs, target)
            except SchemaMismatchError as error:
                _explain_folders(error, inputs, target)
                raise
            if loaded.seconds_finishing is not None:
                self._stages.add("load", -loaded.seconds_finishing)
                self._stages.add("commit", loaded.seconds_finishing)
        quarantined = None
        if spec.bad_records == "quarantine" and inputs.has_text and loaded.may_be_bad:
            self._progress.stage = "storing bad records"
            with self._stages.stage("quarantine"):
                quarantined = self._quarantine(spec, engine, inputs, target)
        return self._report(spec, inputs, loaded, quarantined, engine.memory_bytes)

    def _engine(self, spec: LoadSpec) -> Engine:
        if spec.engine == "local":
            return LocalEngine(spec, self._progress)
        self._progress.stage = "starting Spark"
        with self._stages.stage("open"):
            if spec.engine == "iceberg-jar":
                from icestream.pipeline.engines.jar.jar_engine import JarEngine

                return JarEngine(spec, self._progress, self._spark)
            from icestream.pipeline.engines.spark_engine import SparkEngine

            return SparkEngine(spec, self._progress, self._spark)

    def _quarantine(
        self, spec: LoadSpec, engine: Engine, inputs: LoadInputs, target: LoadTarget
    ) -> WriteReport | None:
        own = LoadSpec(sources=(), into=spec.quarantine_name, catalog=target.catalog)
        with LoadTarget.open(own) as place:
            load_id = quarantine_load_id(spec.load_id)
            committed = place.committed(own, load_id)
            if committed is not None:
                return _write_report("append", committed)
            return engine.quarantine(inputs, place, load_id)

    def _report(
        self,
        spec: LoadSpec,
        inputs: LoadInputs,
        loaded: Loaded,
        quarantined: WriteReport | None,
        memory_bytes: int = 0,
    ) -> LoadReport:
        write = loaded.write
        reads = not write.already_committed
        facts: dict[str, Any] = {name: getattr(write, name) for name in _FACTS}
        return LoadReport(
            **facts,
            load=spec.name,
            into=spec.table_name,
            mode=spec.mode,
            engine=spec.engine,
            engine_reason=self._engine_reason,
            direct=loaded.direct,
            sources=tuple(source.text for source in spec.sources),
            branch=spec.branch or MAIN_BRANCH,
            load_id=spec.load_id,
            status=_status(write),
            created=loaded.created,
            rows_read=_with_bad(loaded, quarantined),
            rows_quarantined=quarantined.rows_inserted if quarantined else 0,
            quarantine=spec.quarantine_name if quarantined else None,
            quarantine_snapshot_id=quarantined.snapshot_id if quarantined else None,
            files_read=inputs.files + loaded.table_files_read if reads else 0,
            bytes_read=inputs.bytes + loaded.table_bytes_read if reads else 0,
            memory_limit_bytes=memory_bytes or write.memory_limit_bytes,
            peak_driver_bytes=peak_process_bytes(),
            peak_worker_bytes=loaded.peak_worker_bytes,
            worker_base_bytes=write.worker_base_bytes or None,
            stages={name: round(each, 6) for name, each in self._stages.seconds.items()},
            seconds=self._stages.total,
            started_at=self._started.isoformat(timespec="milliseconds"),
            version=__version__,
        )


def _explain_folders(error: SchemaMismatchError, inputs: LoadInputs, target: LoadTarget) -> None:
    """Add a note about columns that come from folder names."""
    there = set(target.table.schema().column_names) if target.table is not None else set()
    names = {name for each in inputs.inputs for name in each.partitions.schema.names} - there
    if names:
        listed = ", ".join(sorted(map(repr, names)))
        error.add_note(f"{listed}: from names of folders; hive_partitions=False leaves them out")


def _status(write: WriteReport) -> LoadReportStatus:
    if write.already_committed:
        return "already loaded"
    return "unchanged" if write.snapshot_id is None else "loaded"


def _with_bad(loaded: Loaded, quarantined: WriteReport | None) -> int | None:
    """The number of rows read, including bad records."""
    if loaded.rows_read is None or quarantined is None or loaded.write.already_committed:
        return loaded.rows_read
    return loaded.rows_read + quarantined.rows_inserted


def _already(spec: LoadSpec, load: CommittedWrite) -> Loaded:
    report = _write_report(spec.mode, load)
    return Loaded(report, created=False, rows_read=0, may_be_bad=True)


def _write_report(operation: str, load: CommittedWrite) -> WriteReport:
    return WriteReport(operation, load.snapshot_id, already_committed=True, **asdict(load.counts))
