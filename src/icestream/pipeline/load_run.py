"""One load from its description to its report."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pyiceberg.table.refs import MAIN_BRANCH

from icestream import __version__
from icestream.commit.load_id import CommittedLoad, find_load
from icestream.errors import CommitUnknownError, SchemaMismatchError, SourceError
from icestream.pipeline.checkpoint import Checkpoint, Intent
from icestream.pipeline.load_identity import Naming, load_id_of, name_load
from icestream.pipeline.load_input import LoadInputs, find_inputs
from icestream.pipeline.load_progress import LoadProgress
from icestream.pipeline.load_report import LoadReport, LoadReportStatus
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.load_target import LoadTarget
from icestream.pipeline.local_engine import Loaded, LocalEngine
from icestream.pipeline.quarantine import quarantine_load_id
from icestream.pipeline.report_store import peak_process_bytes, store_report
from icestream.pipeline.stages import Stages
from icestream.pipeline.state_folder import StateFolder
from icestream.report import WriteReport

_logger = logging.getLogger(__name__)


class Engine(Protocol):
    """What runs the load.

    Attributes:
        memory_bytes: The limit: of the load, or of each task.
    """

    memory_bytes: int

    def write(self, inputs: LoadInputs, target: LoadTarget) -> Loaded:
        """Load the rows, as one snapshot."""
        ...

    def quarantine(
        self, inputs: LoadInputs, target: LoadTarget, load_id: str | None
    ) -> WriteReport | None:
        """Store bad records; None if there are none."""
        ...


class Gate(Protocol):
    """What stands between a load and its branch: `icestream.pipeline.audited_load` has one."""

    def __call__(
        self,
        spec: LoadSpec,
        target: LoadTarget,
        load: Callable[[LoadSpec, LoadTarget], LoadReport],
    ) -> LoadReport:
        """Run the load, on another branch if need be. If it raises, nothing counts as loaded.

        Args:
            spec: The load, with its load id.
            target: Its table.
            load: Runs it, as often as it is called.
        """
        ...


class LoadRun:
    """Runs one load.

    Args:
        spec: The load.
        state: Where reports and checkpoints are; None: nothing is stored.
        spark: The session to use, if the engine is Spark.
        progress: Kept up to date.
        gate: What stands between the load and its branch.
        naming: Decides under which id a load is committed that has none, and is not incremental.
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
        self._gate = gate
        self._naming = naming or name_load(spec)
        self._spec = spec
        self._state = state
        self._spark = spark
        self._progress = progress
        self._stages = Stages()
        self._started = datetime.now(UTC)

    def run(self) -> LoadReport:
        """All of it; the report is stored."""
        self._progress.stage = "opening"
        with ExitStack() as stack:
            with self._stages.stage("open"):
                target = stack.enter_context(LoadTarget.open(self._spec))
            if self._spec.incremental:
                report = self._run_increment(target)
            elif self._spec.load_id is not None:
                report = self._run_through_gate(self._spec, target, None)
            else:
                report = self._run_named(target)
        self._progress.stage = "done"
        return store_report(report, self._state)

    def _run_named(self, target: LoadTarget) -> LoadReport:
        """Find the sources first: they decide whether this was loaded before."""
        with self._stages.stage("open"):
            inputs = find_inputs(self._spec, target)
        load_id = load_id_of(self._spec, inputs, target, self._naming)
        return self._run_through_gate(replace(self._spec, load_id=load_id), target, inputs)

    def _run_increment(self, target: LoadTarget) -> LoadReport:
        uuid = str(target.table.metadata.table_uuid) if target.table is not None else None
        with Checkpoint.open(self._checkpoint_folder(), self._spec, uuid) as checkpoint:
            with self._stages.stage("open"):
                found = find_inputs(self._spec, target, may_be_empty=True)
            pending = checkpoint.pending()
            if pending is not None and self._can_replay(checkpoint, pending, target, found):
                report = self._run_intent(checkpoint, pending, target, found)
                if not report.already_committed:
                    return report
                target = _again(target)
            intent = checkpoint.new(found)
            if intent.is_empty:
                return self._report(self._spec, LoadInputs(()), _nothing_done(), None)
            return self._run_intent(checkpoint, intent, target, found)

    def _can_replay(
        self, checkpoint: Checkpoint, intent: Intent, target: LoadTarget, found: LoadInputs
    ) -> bool:
        """Whether a load that was killed is in the table, or its files are still as they were."""
        spec = replace(self._spec, load_id=checkpoint.load_id(intent.number))
        if _committed(spec, target) is not None or intent.is_in(found):
            return True
        _logger.warning(
            "%s was killed before it had loaded anything, and its files have changed since: what "
            "is there now is loaded",
            spec.name,
        )
        checkpoint.abandon(intent)
        return False

    def _run_intent(
        self, checkpoint: Checkpoint, intent: Intent, target: LoadTarget, found: LoadInputs
    ) -> LoadReport:
        spec = replace(self._spec, load_id=checkpoint.load_id(intent.number))
        inputs = intent.narrowed(found)
        checkpoint.begin(intent)
        try:
            report = self._run_through_gate(spec, target, inputs)
        except CommitUnknownError:
            raise
        except Exception:
            with suppress(Exception):  # the catalog may be gone: the intent stays then
                if _committed(spec, _again(target)) is None:
                    checkpoint.abandon(intent)  # nothing was loaded, and files may be mended
            raise
        table = _again(target).table
        uuid = str(table.metadata.table_uuid) if table is not None else None
        checkpoint.finish(intent, found, uuid)
        return report

    def _checkpoint_folder(self) -> Path:
        if self._spec.checkpoint is not None:
            return Path(self._spec.checkpoint)
        return (self._state or StateFolder()).checkpoint(self._spec.name)

    def _run_through_gate(
        self, spec: LoadSpec, target: LoadTarget, inputs: LoadInputs | None
    ) -> LoadReport:
        if self._gate is None:
            return self._run(spec, target, inputs)
        return self._gate(spec, target, lambda spec, target: self._run(spec, target, inputs))

    def _run(self, spec: LoadSpec, target: LoadTarget, inputs: LoadInputs | None) -> LoadReport:
        already = _committed(spec, target)
        if already is not None and spec.bad_records != "quarantine":
            loaded = _already(spec, already)
            return self._report(spec, inputs or LoadInputs(()), loaded, None)
        try:
            with self._stages.stage("open"):
                if inputs is None:
                    inputs = find_inputs(spec, target)
                inputs = inputs.with_columns(spec, target)
        except SourceError as error:
            if already is None:
                raise
            _logger.warning(
                "%s was loaded before; bad records are not looked for: %s", spec.name, error
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
        from icestream.pipeline.spark_engine import SparkEngine

        with self._stages.stage("open"):
            return SparkEngine(spec, self._progress, self._spark)

    def _quarantine(
        self, spec: LoadSpec, engine: Engine, inputs: LoadInputs, target: LoadTarget
    ) -> WriteReport | None:
        own = LoadSpec((), spec.quarantine_name, catalog=target.catalog)
        with LoadTarget.open(own) as place:
            load_id = quarantine_load_id(spec.load_id)
            if place.table is not None:
                found = find_load(place.table.metadata, MAIN_BRANCH, load_id)
                if found is not None:
                    return _write_report("append", found)
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
        return LoadReport(
            load=spec.name,
            into=spec.table_name,
            mode=spec.mode,
            engine=spec.engine,
            sources=tuple(source.text for source in spec.sources),
            branch=spec.branch or MAIN_BRANCH,
            load_id=spec.load_id,
            snapshot_id=write.snapshot_id,
            already_committed=write.already_committed,
            status=_status(write),
            created=loaded.created,
            rows_read=_with_bad(loaded, quarantined),
            rows_inserted=write.rows_inserted,
            rows_updated=write.rows_updated,
            rows_unchanged=write.rows_unchanged,
            rows_deleted=write.rows_deleted,
            rows_quarantined=quarantined.rows_inserted if quarantined else 0,
            quarantine=spec.quarantine_name if quarantined else None,
            quarantine_snapshot_id=quarantined.snapshot_id if quarantined else None,
            files_read=inputs.files if reads else 0,
            bytes_read=inputs.bytes if reads else 0,
            files_added=write.files_added,
            files_removed=write.files_removed,
            bytes_written=write.bytes_written,
            bytes_spilled=write.bytes_spilled,
            schema_changes=write.schema_changes,
            columns_discarded=write.columns_discarded,
            peak_bytes_held=write.peak_bytes_held,
            memory_limit_bytes=memory_bytes or write.memory_limit_bytes,
            peak_driver_bytes=peak_process_bytes(),
            peak_worker_bytes=loaded.peak_worker_bytes,
            worker_base_bytes=write.worker_base_bytes or None,
            stages={name: round(each, 6) for name, each in self._stages.seconds.items()},
            seconds=self._stages.total,
            started_at=self._started.isoformat(timespec="milliseconds"),
            version=__version__,
        )


def _committed(spec: LoadSpec, target: LoadTarget) -> CommittedLoad | None:
    if target.table is None:
        return None
    return find_load(target.table.metadata, spec.branch or MAIN_BRANCH, spec.load_id)


def _again(target: LoadTarget) -> LoadTarget:
    """The target, once a load may have created it."""
    if target.table is not None:
        target.table.refresh()
        return target
    if target.catalog.table_exists(target.name):
        return replace(target, table=target.catalog.load_table(target.name))
    return target


def _explain_folders(error: SchemaMismatchError, inputs: LoadInputs, target: LoadTarget) -> None:
    """Say where a column comes from that is in no file."""
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
    """The rows read, bad records among them."""
    if loaded.rows_read is None or quarantined is None or loaded.write.already_committed:
        return loaded.rows_read
    return loaded.rows_read + quarantined.rows_inserted


def _nothing_done() -> Loaded:
    return Loaded(WriteReport("append", None), created=False, rows_read=0, may_be_bad=False)


def _already(spec: LoadSpec, load: CommittedLoad) -> Loaded:
    report = _write_report(spec.mode, load)
    return Loaded(report, created=False, rows_read=0, may_be_bad=True)


def _write_report(operation: str, load: CommittedLoad) -> WriteReport:
    counts = load.counts
    return WriteReport(
        operation=operation,
        snapshot_id=load.snapshot_id,
        already_committed=True,
        rows_inserted=counts.rows_inserted,
        rows_updated=counts.rows_updated,
        rows_unchanged=counts.rows_unchanged,
        rows_deleted=counts.rows_deleted,
        files_added=counts.files_added,
        files_removed=counts.files_removed,
        bytes_written=counts.bytes_written,
    )
