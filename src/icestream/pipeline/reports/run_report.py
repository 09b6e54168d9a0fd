"""The report of a run, and the plan of a dry run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from icestream.errors import IcestreamError
from icestream.pipeline.reports.load_report import LoadReport
from icestream.pipeline.request.checks import CheckResult
from icestream.report.display import Displayed

LoadStatus = Literal["done", "already loaded", "skipped", "failed", "blocked"]


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """The outcome of one load.

    Attributes:
        load: The load's name.
        status: `"done"`, `"already loaded"` (the same inputs were appended before), `"skipped"`
            (the resumed run had already committed it), `"failed"`, or `"blocked"` (a load that it
            waits for failed).
        reason: Why the load failed, is blocked or was skipped.
        into: The table.
        snapshot_id: The snapshot that the load committed.
        tests: Results of the tests.
        audit_branch: The branch with the rows of a load whose tests failed.
        attempts: Number of times the load ran. It repeats if others commit during the tests.
        report: The report of the load; None if it failed before it wrote.
        seconds: Duration of the load.
    """

    load: str
    status: LoadStatus
    reason: str | None = None
    into: str = ""
    snapshot_id: int | None = None
    tests: tuple[CheckResult, ...] = ()
    audit_branch: str | None = None
    attempts: int = 0
    report: LoadReport | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class RunReport(Displayed):
    """What a run did. Returned by `icestream.run`.

    Attributes:
        pipeline: The pipeline's name.
        run_id: The run's id. A resumed run keeps its id.
        resumed: Whether the run resumed a run that had crashed.
        completed: Whether all loads of the run are done.
        ended: Whether the run has ended. If not, the next run resumes it.
        loads: The outcome of each load, in the order they ran.
        started_at: Start time in UTC, in ISO 8601.
        seconds: Total duration.
        version: Version of icestream.
        report_file: Path of the stored report, if it is stored.
    """

    pipeline: str
    run_id: str
    resumed: bool
    completed: bool
    ended: bool
    loads: tuple[LoadOutcome, ...]
    started_at: str = ""
    seconds: float = 0.0
    version: str = ""
    report_file: str | None = None

    def __getitem__(self, load: str) -> LoadOutcome:
        """The outcome of a load, by name."""
        for outcome in self.loads:
            if outcome.load == load:
                return outcome
        raise KeyError(load)

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary that `json.dumps` takes."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """What one load would do.

    Attributes:
        load: The load's name.
        status: `"run"`, `"already loaded"` (the same inputs were appended before), or `"skip"`
            (the run that would be resumed has already committed it).
        into: The table.
        mode: `"append"`, `"replace"` or `"merge"`.
        engine: `"spark"`, `"local"` or `"iceberg-jar"`.
        after: The loads that it waits for.
        tests: Names of the tests on its result.
        plan: The plan of the load; None if it can't be planned yet.
        reason: Why it can't be planned. Often it reads a table that another load creates.
    """

    load: str
    status: Literal["run", "already loaded", "skip"]
    into: str
    mode: str
    engine: str
    after: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    plan: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class RunPlan(Displayed):
    """What a run would do. Returned by `icestream.run` with `dry_run`.

    Attributes:
        pipeline: The pipeline's name.
        resumes: The id of the crashed run that would be resumed; None for a new run.
        loads: The plan of each load, in the order they would run.
    """

    pipeline: str
    resumes: str | None
    loads: tuple[PlannedLoad, ...]

    def to_dict(self) -> dict[str, Any]:
        """The plan as a dictionary that `json.dumps` takes."""
        return asdict(self)


def in_words(error: BaseException) -> str:
    """An error as a part of a sentence."""
    text = str(error).rstrip(".") or type(error).__name__
    return text if isinstance(error, IcestreamError) else f"{type(error).__name__}: {text}"
