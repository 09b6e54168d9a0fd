"""What a run did, load by load; and what one would do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from icestream.errors import IcestreamError
from icestream.pipeline.checks import CheckResult
from icestream.pipeline.load_report import LoadReport

LoadStatus = Literal["done", "already loaded", "skipped", "failed", "blocked"]


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What became of one load.

    Attributes:
        load: Its name.
        status: `"done"`; `"already loaded"`, since the same inputs were appended before;
            `"skipped"`, since the run that is resumed had committed it; `"failed"`; or
            `"blocked"`, since one that it waits for failed.
        reason: Why it failed, is blocked or was skipped.
        into: The table.
        snapshot_id: The snapshot that it made.
        tests: What the tests on its result found.
        audit_branch: The branch that a load whose tests failed can be looked at on.
        attempts: How often it was loaded, since others had committed to the table meanwhile.
        report: What it read and wrote; None if it did not get that far.
        seconds: From its begin to its end.
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


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did.

    Attributes:
        pipeline: The pipeline's name.
        run_id: The run's; one that is resumed keeps it.
        resumed: Whether it went on with a run that had crashed.
        completed: Whether all loads of the run are done.
        ended: Whether the run came to its end: the next one is new. If not, the next one resumes
            this one.
        loads: What became of each load, in the order they ran.
        started_at: When it began, in UTC, as ISO 8601 writes it.
        seconds: All of it.
        version: Of icestream.
        report_file: Where the report is stored, if it is.
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
        """What became of the load of that name."""
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
        load: Its name.
        status: `"run"`; `"already loaded"`, since the same inputs were appended before; or
            `"skip"`, since the run that would be resumed has committed it.
        into: The table.
        mode: How rows get there.
        engine: What would run it.
        after: The loads that it waits for.
        tests: The names of the tests on its result.
        plan: What `icestream.load` says of it; None where that can't be told yet.
        reason: Why it can't be told: often a table that another load is still to create.
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


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run would do. Making it touches nothing.

    Attributes:
        pipeline: The pipeline's name.
        resumes: The id of the run that it would go on with; None: it would be a new one.
        loads: What each load would do, in the order they would run.
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
