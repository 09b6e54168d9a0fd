"""`icestream run` runs the loads of a pipeline file."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from icestream.cli.command import command
from icestream.cli.options.parameters import Columns, property_option
from icestream.cli.options.settings import Settings
from icestream.cli.output.progress import Progress
from icestream.cli.output.text import Painted, columns, in_options, paint, seconds
from icestream.report.counted import counted

if TYPE_CHECKING:
    from icestream.errors import RunFailedError
    from icestream.pipeline.reports.load_progress import LoadProgress
    from icestream.pipeline.reports.run_report import LoadOutcome, RunPlan, RunReport


def _write_schema(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from icestream.pipeline.request.pipeline_file import pipeline_schema

        click.echo(json.dumps(pipeline_schema(), indent=2))
        context.exit()


@command(
    "run",
    short_help="Run the loads of a pipeline file.",
    examples=(
        "icestream run pipeline.yaml",
        "icestream run pipeline.yaml --dry-run",
        "icestream run pipeline.yaml --only orders,daily --var DAY=2026-11-16",
        "icestream run pipeline.yaml --again --json",
        "icestream run --json-schema > pipeline.schema.json",
    ),
)
@click.argument("pipeline", type=click.Path(dir_okay=False))
@click.option("--only", type=Columns(), metavar="A,B", help="Loads to run.  [default: all]")
@property_option(
    "--var", "variables", "Value for ${NAME} in the file, which overrides the environment"
)
@click.option(
    "--fresh",
    is_flag=True,
    help="If the last run crashed, begin a new run instead of resuming it.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Load everything again, including inputs that are already loaded.",
)
@click.option("--dry-run", is_flag=True, help="Only show what the run would do.")
@click.option(
    "--state",
    metavar="FOLDER",
    help="Folder for reports, checkpoints and the progress of a run.  "
    "[default: $ICESTREAM_STATE or ./icestream_state]",
)
@click.option(
    "--json-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_write_schema,
    help="Print a JSON Schema of pipeline files, for editors, and exit.",
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

    A load runs after the loads that it depends on. If a load fails, the loads that depend on it do
    not run, but all others do. A load with tests is published only if all its tests pass.

    A second append of the same files (same path, size and modification time) or table snapshots
    does nothing and reports "already loaded". Merges, replaces and appends from databases run each
    time.

    If a run crashed, the next run resumes it. Loads that the crashed run committed are skipped if
    their definition and inputs are unchanged.
    """
    import icestream as ice
    from icestream.pipeline.reports.load_progress import LoadProgress

    if settings.memory is not None:
        raise click.UsageError("run has no --memory: set memory in the pipeline file")
    options: dict[str, Any] = {
        "only": only,
        "variables": dict(variables),
        "catalog": settings.catalog,
        "fresh": fresh,
        "again": again,
        "state": state,
    }
    if dry_run:
        plan = ice.run(pipeline, dry_run=True, **options)
        settings.show(plan.to_dict(), lambda: _plan_text(plan))
        return
    progress = LoadProgress()
    with ShownLoads(settings, progress) as shown:
        try:
            report = ice.run(pipeline, on_load=shown.on_load, progress=progress, **options)
        except ice.RunFailedError as error:
            shown.close()
            failed = error.report
            assert isinstance(failed, ice.RunReport)
            settings.show(failed.to_dict(), lambda: report_text(failed))
            if settings.quiet:
                raise
            raise _without_reasons(error, failed) from error.__cause__
        except (KeyboardInterrupt, SystemExit) as stop:
            stop.add_note("run it again to resume this run")
            raise
    settings.show(report.to_dict(), lambda: report_text(report))


class ShownLoads:
    """Shows the progress of the running load on stderr."""

    def __init__(self, settings: Settings, progress: LoadProgress) -> None:
        self._settings = settings
        self._progress = progress
        self._stack = ExitStack()

    def __enter__(self) -> ShownLoads:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop showing progress."""
        self._stack.close()

    def on_load(self, name: str, outcome: LoadOutcome | None) -> None:
        """Handle the start of a load, or its end if there is an outcome."""
        from icestream.cli.commands.load import counts

        self.close()
        if outcome is None:
            shown = not self._settings.quiet
            self._stack.enter_context(
                Progress(f"load {name}", lambda: counts(self._progress), shown=shown)
            )
        else:
            reason = f": {in_options(outcome.reason, command='run')}" if outcome.reason else ""
            status = _status(outcome.status)
            self._settings.say(f"{name} {paint(status, status.color, sys.stderr)}{reason}")


def _without_reasons(error: RunFailedError, report: RunReport) -> RunFailedError:
    """Return the error without the reasons, which are on stderr already."""
    count = f"{len(error.failed)} of {counted(len(report.loads), 'load')}"
    return type(error)(
        f"{count} of {report.pipeline!r} failed: {', '.join(error.failed)}. Fix the cause and run "
        "it again: inputs that were appended are not appended twice",
        failed=error.failed,
        report=report,
    )


def report_text(report: RunReport) -> list[str]:
    """Format a run: a line for each load, and how the run ended.

    The reasons for failures are not included: stderr has them already.
    """
    rows = [
        (
            outcome.load,
            _status(outcome.status),
            outcome.into,
            *_rows(outcome),
            _tests(outcome),
            seconds(outcome.seconds),
        )
        for outcome in report.loads
    ]
    header = ("load", "status", "table", "inserted", "updated", "deleted", "tests", "time")
    lines = columns(header, rows)
    lines += _engines(report)
    resumed = ", resumed" if report.resumed else ""
    ended = f"{_end(report)}, {seconds(report.seconds)}"
    return [*lines, "", f"run {report.run_id}{resumed}, {ended}"]


def _words(reason: str) -> str:
    return in_options(reason, command="run")


def _status(status: str) -> Painted:
    colors = {"failed": "red", "blocked": "yellow"}
    return Painted(status, colors.get(status, "green"))


def _engines(report: RunReport) -> list[str]:
    """Say which engines were chosen, and why, once each."""
    from icestream.pipeline.request.engine_choice import engine_text

    chosen = [
        engine_text(outcome.report.engine, outcome.report.engine_reason)
        for outcome in report.loads
        if outcome.report is not None
    ]
    return [f"loaded {text}" for text in dict.fromkeys(chosen) if text is not None]


def _end(report: RunReport) -> str:
    if report.completed:
        return paint("completed", "green")
    if report.ended:
        return f"{paint('failed', 'red')}: the next run is a new one"
    return "not finished: the next run resumes it"


def _rows(outcome: LoadOutcome) -> tuple[int | None, int | None, int | None]:
    """Return the numbers of rows that this run published: inserted, updated and deleted."""
    report = outcome.report
    if outcome.status in ("failed", "blocked"):
        return 0, 0, 0
    if report is None or report.already_committed:
        return None, None, None
    return report.rows_inserted, report.rows_updated, report.rows_deleted


def _tests(outcome: LoadOutcome) -> str:
    if not outcome.tests:
        return "-"
    passed = sum(result.passed for result in outcome.tests)
    return f"{passed} of {len(outcome.tests)} passed"


def _plan_text(plan: RunPlan) -> list[str]:
    from icestream.cli.output.report_text import plan_text

    resumes = f"would resume run {plan.resumes}" if plan.resumes else "would be a new run"
    lines = [f"{plan.pipeline}: {resumes}"]
    for load in plan.loads:
        after = f", after {', '.join(load.after)}" if load.after else ""
        lines += ["", f"{load.load}: {load.status}, {load.mode} into {load.into}{after}"]
        if load.plan is not None and load.status == "run":
            lines += [f"  {line}" for line in plan_text(load.plan)]
        if load.reason:
            lines.append(f"  not known yet: {in_options(load.reason, command='run')}")
        if load.tests:
            lines.append(f"  tests: {'; '.join(load.tests)}")
    return lines
