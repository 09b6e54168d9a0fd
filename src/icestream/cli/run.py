"""`icestream run`: the loads of a pipeline file."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.output import columns, seconds
from icestream.cli.parameters import Columns, Property
from icestream.cli.progress import Progress
from icestream.cli.settings import Settings

if TYPE_CHECKING:
    from icestream.pipeline.load_progress import LoadProgress
    from icestream.pipeline.run_report import LoadOutcome, RunPlan, RunReport


@command(
    "run",
    short_help="The loads of a pipeline file.",
    examples=(
        "icestream run pipeline.yaml",
        "icestream run pipeline.yaml --dry-run",
        "icestream run pipeline.yaml --only orders,daily --var DAY=2026-11-16",
        "icestream run pipeline.yaml --again --json",
    ),
)
@click.argument("pipeline", type=click.Path(dir_okay=False))
@click.option("--only", type=Columns(), metavar="A,B", help="Some loads; all if left out.")
@click.option(
    "--var",
    "variables",
    type=Property(),
    multiple=True,
    metavar="NAME=VALUE",
    help="A value for ${NAME} in the file, over the environment's; as often as needed.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Begin a new run where the last one crashed, instead of resuming it.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Load everything once more, also appends that are already loaded.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be done, and do nothing.")
@click.option(
    "--state",
    metavar="FOLDER",
    help="What knows how far a run is, and gets reports.  [default: ./icestream_state]",
)
def run(
    settings: Settings,
    pipeline: str,
    only: list[str] | None,
    variables: tuple[tuple[str, str], ...],
    fresh: bool,
    again: bool,
    dry_run: bool,
    state: str | None,
) -> None:
    """Run the loads of PIPELINE, a YAML file.

    A load runs after those that it waits for; one that fails blocks those that wait for it, and no
    others. A load with tests is published only if all of them hold.

    Repeating an append of the same files (path, size, time of change) or table snapshots does
    nothing and says "already loaded". Merges and replaces run each time, and so do appends of
    databases. A run that crashed is resumed by the next one: what it has committed is not
    committed again, if its definition and inputs are unchanged. Any other run is a new one.
    """
    import icestream as ice
    from icestream.pipeline.load_progress import LoadProgress

    told: dict[str, Any] = {
        "only": only,
        "variables": dict(variables),
        "catalog": settings.catalog,
        "fresh": fresh,
        "again": again,
        "state": state,
    }
    if dry_run:
        plan = ice.run(pipeline, dry_run=True, **told)
        settings.show(plan.to_dict(), lambda: _plan_text(plan))
        return
    progress = LoadProgress()
    with ShownLoads(settings, progress) as shown:
        try:
            report = ice.run(pipeline, on_load=shown.on_load, progress=progress, **told)
        except ice.RunFailedError as error:
            shown.close()
            failed = error.report
            assert isinstance(failed, ice.RunReport)
            settings.show(failed.to_dict(), lambda: report_text(failed))
            raise
        except (KeyboardInterrupt, SystemExit) as stop:
            stop.add_note("run it again to resume this run")
            raise
    settings.show(report.to_dict(), lambda: report_text(report))


class ShownLoads:
    """The load that runs, on stderr."""

    def __init__(self, settings: Settings, progress: LoadProgress) -> None:
        self._settings = settings
        self._progress = progress
        self._stack = ExitStack()

    def __enter__(self) -> ShownLoads:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Show no more of it."""
        self._stack.close()

    def on_load(self, name: str, outcome: LoadOutcome | None) -> None:
        """A load begins, or has ended."""
        from icestream.cli.load import counts

        self.close()
        if outcome is None:
            shown = not self._settings.quiet
            self._stack.enter_context(
                Progress(f"load {name}", lambda: counts(self._progress), shown=shown)
            )
        else:
            reason = f": {outcome.reason}" if outcome.reason else ""
            self._settings.say(f"{name} {outcome.status}{reason}")


def report_text(report: RunReport) -> list[str]:
    """A line for each load, tests that failed, and how the run ended."""
    rows = [
        (
            outcome.load,
            outcome.status,
            outcome.into,
            *_rows(outcome),
            _tests(outcome),
            seconds(outcome.seconds),
        )
        for outcome in report.loads
    ]
    header = ("load", "status", "table", "inserted", "updated", "deleted", "tests", "time")
    lines = columns(header, rows)
    for outcome in report.loads:
        lines += [
            f"  {outcome.load}: {result.name}: {result.text}"
            for result in outcome.tests
            if not result.passed
        ]
    resumed = ", resumed" if report.resumed else ""
    ended = f"{_end(report)}, {seconds(report.seconds)}"
    return [*lines, "", f"run {report.run_id}{resumed}, {ended}"]


def _end(report: RunReport) -> str:
    if report.completed:
        return "completed"
    if report.ended:
        return "failed: the next run is a new one"
    return "not finished: the next run resumes it"


def _rows(outcome: LoadOutcome) -> tuple[int | None, int | None, int | None]:
    """Rows inserted, updated and deleted by this run."""
    made = outcome.report
    if made is None or made.already_committed:
        return None, None, None
    return made.rows_inserted, made.rows_updated, made.rows_deleted


def _tests(outcome: LoadOutcome) -> str:
    if not outcome.tests:
        return "-"
    passed = sum(result.passed for result in outcome.tests)
    return f"{passed} of {len(outcome.tests)} hold"


def _plan_text(plan: RunPlan) -> list[str]:
    from icestream.cli.load_text import plan_text

    resumes = f"would resume run {plan.resumes}" if plan.resumes else "would be a new run"
    lines = [f"{plan.pipeline}: {resumes}"]
    for load in plan.loads:
        after = f", after {', '.join(load.after)}" if load.after else ""
        lines += ["", f"{load.load}: {load.status}, {load.mode} into {load.into}{after}"]
        if load.plan is not None and load.status == "run":
            lines += [f"  {line}" for line in plan_text(load.plan)]
        if load.reason:
            lines.append(f"  can't be told yet: {load.reason}")
        if load.tests:
            lines.append(f"  tests: {'; '.join(load.tests)}")
    return lines
