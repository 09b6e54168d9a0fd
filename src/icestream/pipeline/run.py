"""`run`: runs the loads of a pipeline file in order, and appends the same inputs only once."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, overload

from pyiceberg.catalog import Catalog

from icestream.commit.outcome.load_id import is_inputs_load_id
from icestream.errors import (
    ChecksFailedError,
    CommitUnknownError,
    InvalidArgumentError,
    RunFailedError,
)
from icestream.pipeline.audit.audited_load import AuditGate
from icestream.pipeline.inputs.load_identity import IsCommitted, LoadIdentity
from icestream.pipeline.load import run_load
from icestream.pipeline.reports.load_progress import checked_progress
from icestream.pipeline.reports.load_report import LoadReport
from icestream.pipeline.reports.run_report import (
    LoadOutcome,
    LoadStatus,
    RunPlan,
    RunReport,
    in_words,
)
from icestream.pipeline.reports.state_folder import StateFolder, write_json
from icestream.pipeline.request.pipeline_file import PipelineFile, PipelineLoad
from icestream.pipeline.request.validation import check_keys
from icestream.pipeline.run_order import needs_of, run_order
from icestream.pipeline.run_plan import plan_run
from icestream.pipeline.run_state import RunFile, RunState, audit_name
from icestream.report.counted import counted
from icestream.report.version import __version__

_BEFORE = "already committed by this run, before it crashed"
_SAME_INPUTS = "the same inputs were appended before: --again appends them once more"
_log = logging.getLogger(__name__)


@overload
def run(
    pipeline: str | os.PathLike[str],
    *,
    only: Sequence[str] | str | None = ...,
    variables: Mapping[str, str] | None = ...,
    catalog: str | Catalog | None = ...,
    fresh: bool = ...,
    again: bool = ...,
    dry_run: Literal[False] = ...,
    state: str | os.PathLike[str] | None = ...,
    spark: Any = ...,
    on_load: Callable[[str, LoadOutcome | None], None] | None = ...,
    progress: Any = ...,
) -> RunReport: ...


@overload
def run(
    pipeline: str | os.PathLike[str],
    *,
    only: Sequence[str] | str | None = ...,
    variables: Mapping[str, str] | None = ...,
    catalog: str | Catalog | None = ...,
    fresh: bool = ...,
    again: bool = ...,
    dry_run: Literal[True],
    state: str | os.PathLike[str] | None = ...,
    spark: Any = ...,
    on_load: Callable[[str, LoadOutcome | None], None] | None = ...,
    progress: Any = ...,
) -> RunPlan: ...


def run(
    pipeline: str | os.PathLike[str],
    *,
    only: Sequence[str] | str | None = None,
    variables: Mapping[str, str] | None = None,
    catalog: str | Catalog | None = None,
    fresh: bool = False,
    again: bool = False,
    dry_run: bool = False,
    state: str | os.PathLike[str] | None = None,
    spark: Any = None,
    on_load: Callable[[str, LoadOutcome | None], None] | None = None,
    progress: Any = None,
) -> RunReport | RunPlan:
    """Run the loads of a pipeline file.

    Each load starts after its dependencies. If a load fails, the loads that depend on it are
    blocked. All other loads still run, and the next call starts a new run.

    A second append of the same files or table snapshots with the same options does nothing. Its
    status is `"already loaded"`. Files are the same if path, size and modification time are equal.
    Merges, replaces, and appends from databases or other sources that can't be compared run each
    time.

    If a run crashed, was interrupted, or got no answer to a commit, the next call resumes it.
    Committed loads are not repeated if their options and inputs are unchanged.

    A load with tests writes to a branch first. It is published only if all tests pass.

    Args:
        pipeline: Path of the pipeline file: see docs/pipeline-file.md.
        only: Names of the loads to run; all loads by default.
        variables: Values for `${NAME}` in the file, which override the environment.
        catalog: A PyIceberg catalog or its name, instead of the catalogs in the file.
        fresh: Whether to start a new run even if the last one crashed. Merges, replaces and
            sources that can't be compared are loaded again.
        again: Whether to load everything again: inputs that were appended before, and loads that a
            crashed run has committed. Incremental loads still load each file once.
        dry_run: Whether to return a plan instead of running. A dry run changes nothing.
        state: Folder for the run's progress and report; by default the value of the environment
            variable `ICESTREAM_STATE`, or `./icestream_state`.
        spark: The session for loads on Spark; by default the active session, or a new one.
        on_load: Called with a load's name and None when it starts, and its outcome when it ends.
        progress: A `LoadProgress` that the current load updates.

    Returns:
        The outcome of each load; with `dry_run`, a plan of each load.

    Raises:
        InvalidArgumentError: If the file is invalid (the message names the line), or the pipeline
            is already running.
        ChecksFailedError: If loads failed only because of their tests.
        RunFailedError: If loads failed. The message names them, the cause is the first error, and
            `report` has the outcome of each load.

    Memory: one load runs at a time, within the limit of `icestream.load`. Tests use half of the
    limit and spill to disk.
    """
    file = PipelineFile.read(pipeline, variables=variables, catalog=catalog)
    needs = needs_of(file.loads)
    chosen = _chosen(only, tuple(needs))
    order = [name for name in run_order(needs) if name in chosen]
    checked_progress(progress)
    folder = StateFolder(state)
    run_file = RunFile(folder, file.name)
    if dry_run:
        crashed = None if fresh else run_file.open_run(again=again)
        return plan_run(file, order, needs, crashed, folder, spark, again=again)
    with run_file.locked():
        begun, resumed = run_file.begin(order, fresh=fresh, again=again)
        tools = _Tools(folder, spark, progress, on_load or (lambda name, outcome: None))
        return _Run(file, begun, run_file, tools, resumed=resumed).run(order, needs)


@dataclass(frozen=True, slots=True)
class _Tools:
    """The objects that all loads of a run share."""

    folder: StateFolder
    spark: Any
    progress: Any
    on_load: Callable[[str, LoadOutcome | None], None]


class _Run:
    """One run, from the first load to the report."""

    def __init__(
        self,
        file: PipelineFile,
        state: RunState,
        run_file: RunFile,
        tools: _Tools,
        *,
        resumed: bool,
    ) -> None:
        self._loads = {load.name: load for load in file.loads}
        self._state = state
        self._file = run_file
        self._tools = tools
        self._resumed = resumed
        self._started = time.monotonic()
        self._started_at = datetime.now(UTC)
        self._outcomes: dict[str, LoadOutcome] = {}
        self._errors: dict[str, Exception] = {}

    def run(self, order: Sequence[str], needs: Mapping[str, tuple[str, ...]]) -> RunReport:
        for name in order:
            self._tools.on_load(name, None)
            outcome = self._blocked(name, needs) or self._attempt(name)
            self._outcomes[name] = outcome
            self._tools.on_load(name, outcome)
        self._end()
        report = self._report()
        if self._errors:
            raise self._failure(report) from next(iter(self._errors.values()))
        return report

    def _blocked(self, name: str, needs: Mapping[str, tuple[str, ...]]) -> LoadOutcome | None:
        for each in needs[name]:
            before = self._outcomes.get(each)
            if before is not None and before.status in ("failed", "blocked"):
                verb = "failed" if before.status == "failed" else "was blocked"
                reason = f"{each!r}, which it waits for, {verb}"
                into = self._loads[name].spec.table_name
                return LoadOutcome(name, "blocked", reason=reason, into=into)
        return None

    def _end(self) -> None:
        """Mark the run as ended, unless the next run must find out whether a commit succeeded."""
        unknown = any(isinstance(error, CommitUnknownError) for error in self._errors.values())
        wanted = [name for name in self._state.wanted if name in self._loads]
        left = [
            name
            for name in wanted
            if name not in self._outcomes and self._state.load(name).status != "done"
        ]
        self._state.ended = not unknown and not left
        self._file.keep(self._state)

    def _attempt(self, name: str) -> LoadOutcome:
        load, known, began = self._loads[name], self._state.load(name), time.monotonic()
        gate, by_this_run = self._gate(load), self._resumed and known.status == "done"
        try:
            report = self._load(load, gate)
        except Exception as error:
            self._errors[name] = error
            outcome = LoadOutcome(name, "failed", reason=in_words(error))
        else:
            outcome = _outcome(name, report, by_this_run=by_this_run)
            known.status, known.snapshot_id = "done", report.snapshot_id
            self._file.keep(self._state)
        if gate is not None:
            outcome = replace(
                outcome,
                tests=gate.results,
                attempts=gate.attempts,
                audit_branch=gate.branch if gate.is_left else None,
                report=outcome.report or gate.loaded,
            )
        return replace(outcome, into=load.spec.table_name, seconds=time.monotonic() - began)

    def _load(self, load: PipelineLoad, gate: AuditGate | None) -> LoadReport:
        def name(identity: LoadIdentity, is_committed: IsCommitted) -> str:
            load_id = self._state.name_load(load.spec, identity, is_committed)
            self._file.keep(self._state)  # before anything is committed with it
            return load_id

        tools = self._tools
        return run_load(
            load.spec,
            state=tools.folder.path,
            spark=tools.spark,
            progress=tools.progress,
            gate=gate,
            naming=name,
        )

    def _gate(self, load: PipelineLoad) -> AuditGate | None:
        if not load.tests:
            return None
        return AuditGate(
            load.tests,
            audit_name(self._state.run_id, load.name),
            load.fingerprint,
            self._state.load(load.name),
            keep=lambda: self._file.keep(self._state),
            spark=self._tools.spark,
        )

    def _report(self) -> RunReport:
        report = RunReport(
            pipeline=self._state.pipeline,
            run_id=self._state.run_id,
            resumed=self._resumed,
            completed=self._state.completed,
            ended=self._state.ended,
            loads=tuple(self._outcomes.values()),
            started_at=self._started_at.isoformat(timespec="seconds"),
            seconds=time.monotonic() - self._started,
            version=__version__,
        )
        when = self._started_at.strftime("%Y%m%dT%H%M%S")
        name = f"{when}-run-{report.pipeline}-{report.run_id[-6:]}.json"
        path = self._tools.folder.reports / name
        report = replace(report, report_file=str(path))
        try:
            write_json(path, report.to_dict())
        except OSError as error:
            _log.warning("the report of the run could not be written to %s: %s", path, error)
            return replace(report, report_file=None)
        return report

    def _failure(self, report: RunReport) -> RunFailedError:
        failed = tuple(self._errors)
        tested = all(isinstance(error, ChecksFailedError) for error in self._errors.values())
        kind = ChecksFailedError if tested else RunFailedError
        reasons = [f"{name}: {in_words(error)}" for name, error in self._errors.items()]
        blocked = [outcome.load for outcome in report.loads if outcome.status == "blocked"]
        waiting = f" Not run, because they wait for these: {', '.join(blocked)}." if blocked else ""
        return kind(
            f"{len(failed)} of {counted(len(report.loads), 'load')} of {report.pipeline!r} failed. "
            f"{' | '.join(reasons)}.{waiting} Fix the cause and run it again: inputs that were "
            "appended are not appended twice",
            failed=failed,
            report=report,
        )


def _outcome(name: str, report: LoadReport, *, by_this_run: bool) -> LoadOutcome:
    status: LoadStatus = "done"
    reason = None
    if report.already_committed:
        by_inputs = is_inputs_load_id(report.load_id) and not by_this_run
        status = "already loaded" if by_inputs else "skipped"
        reason = _SAME_INPUTS if by_inputs else _BEFORE
    return LoadOutcome(
        name, status, reason=reason, snapshot_id=report.snapshot_id, attempts=1, report=report
    )


def _chosen(only: Sequence[str] | str | None, names: tuple[str, ...]) -> set[str]:
    if only is None:
        return set(names)
    given = [only] if isinstance(only, str) else list(only)
    check_keys("only", given, names)
    if not given:
        raise InvalidArgumentError("only is empty: name a load, or leave it out to run all loads")
    return set(given)
