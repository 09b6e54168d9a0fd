"""`run`: the loads of a pipeline file, in order; the same inputs are appended once."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, overload

from pyiceberg.catalog import Catalog

from icestream import __version__
from icestream.commit.load_id import is_inputs_load_id
from icestream.errors import (
    ChecksFailedError,
    CommitUnknownError,
    InvalidArgumentError,
    RunFailedError,
)
from icestream.pipeline.audited_load import AuditGate
from icestream.pipeline.choice import check_keys
from icestream.pipeline.load import run_load
from icestream.pipeline.load_identity import IsCommitted, LoadIdentity
from icestream.pipeline.load_report import LoadReport
from icestream.pipeline.pipeline_file import PipelineFile, PipelineLoad
from icestream.pipeline.run_order import needs_of, run_order
from icestream.pipeline.run_plan import plan_run
from icestream.pipeline.run_report import LoadOutcome, LoadStatus, RunPlan, RunReport, in_words
from icestream.pipeline.run_state import RunFile, RunState, audit_name
from icestream.pipeline.state_folder import StateFolder, write_json

_BEFORE = "committed before, by the same run"
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

    A load runs after those that it waits for. One that fails blocks those that wait for it; all
    others still run, and the run ends: the next call is a new run.

    Repeating an append of the same files or table snapshots by the same definition does nothing:
    its status is `"already loaded"`. Files are the same if path, size and time of change are.
    Merges and replaces run each time, and so do appends of databases and of other sources that
    can't be known again.

    A run that crashed (or was interrupted, or whose commit got no answer) is resumed by the next
    call: a load whose definition and inputs are unchanged is not committed again.

    A load with tests goes to a branch first, and is published only if all tests hold.

    Args:
        pipeline: The file: see docs/pipeline-file.md.
        only: The names of some loads; all by default.
        variables: Values for `${NAME}` in the file, over those of the environment.
        catalog: A PyIceberg catalog or its name, in place of those that the file names.
        fresh: Whether to begin a new run where the last one crashed. Its merges, replaces and
            sources that can't be known again are loaded once more.
        again: Whether to load everything once more: appends of inputs that were loaded before,
            and what a crashed run has loaded. Incremental loads still take each file once.
        dry_run: Whether to tell what would be done, instead of doing it. Touches nothing.
        state: The folder that knows how far a run is, and gets the report; `./icestream_state` or
            what `ICESTREAM_STATE` says by default.
        spark: The session for loads on Spark; by default the one that runs, or a new one.
        on_load: Called with a load's name and None when it begins, and with its outcome after.
        progress: A `LoadProgress` that is kept up to date with the load that runs.

    Returns:
        What became of each load; with `dry_run`, what each would do.

    Raises:
        InvalidArgumentError: If the file is wrong, with the line; or the pipeline runs already.
        ChecksFailedError: If tests failed, and nothing else did.
        RunFailedError: If loads failed; the error of the first is the cause. The message names all
            of them, and `report` has what became of each load.

    Memory: as of `icestream.load`, one load at a time; tests in half of the limit, more on disk.
    """
    file = PipelineFile.read(pipeline, variables=variables, catalog=catalog)
    needs = needs_of(file.loads)
    chosen = _chosen(only, tuple(needs))
    order = [name for name in run_order(needs) if name in chosen]
    folder = StateFolder(state)
    run_file = RunFile(folder, file.name)
    if dry_run:
        crashed = None if fresh else run_file.open_run(again=again)
        return plan_run(file, order, needs, crashed, folder, spark, again=again)
    with run_file.locked():
        begun, resumed = run_file.begin(order, fresh=fresh, again=again)
        tools = _Tools(folder, spark, progress, on_load or _nobody)
        return _Run(file, begun, run_file, tools, resumed=resumed).run(order, needs)


@dataclass(frozen=True, slots=True)
class _Tools:
    """What loads are run with."""

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
                reason = f"{each!r}, which it waits for, {_was(before)}"
                into = self._loads[name].spec.table_name
                return LoadOutcome(name, "blocked", reason=reason, into=into)
        return None

    def _end(self) -> None:
        """Let the next run be a new one, unless it has to find out what became of a commit."""
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
        told = [f"{name}: {in_words(error)}" for name, error in self._errors.items()]
        blocked = [outcome.load for outcome in report.loads if outcome.status == "blocked"]
        waiting = f" Not run, since they wait for these: {', '.join(blocked)}." if blocked else ""
        return kind(
            f"{len(failed)} of {len(report.loads)} loads of {report.pipeline!r} failed. "
            f"{' | '.join(told)}.{waiting} Fix that and run it again: inputs that are appended "
            "already are not appended twice",
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
        raise InvalidArgumentError("only names no load: name one, or leave it out for all")
    return set(given)


def _was(outcome: LoadOutcome) -> str:
    return "failed" if outcome.status == "failed" else "was blocked"


def _nobody(name: str, outcome: LoadOutcome | None) -> None:
    """Nobody wants to know."""
