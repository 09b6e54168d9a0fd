"""`icestream bench` runs the benchmarks of the repository."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click

from icestream.cli.command import command
from icestream.cli.options.settings import Settings
from icestream.cli.output.text import seconds

_SUITES = {"read": "run", "write": "write", "merge": "merge", "spark": "spark"}


@command(
    "bench",
    short_help="Run the benchmarks of the repository.",
    examples=("icestream bench read --quick", "icestream bench merge --quick"),
    context_settings={"ignore_unknown_options": True},
)
@click.argument("suite", type=click.Choice(list(_SUITES)))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(settings: Settings, suite: str, arguments: tuple[str, ...]) -> None:
    """Run a benchmark SUITE: icestream, PyIceberg, and other tools if they are installed.

    The benchmarks are in the repository, not in the package. ARGUMENTS, such as --quick, go to the
    suite. Its output goes to stdout, or to stderr with --json.
    """
    repository = _repository()
    line = [sys.executable, "-m", f"benchmarks.{_SUITES[suite]}", *arguments]
    started = time.monotonic()
    done = subprocess.run(
        line, cwd=repository, stdout=sys.stderr if settings.json else None, check=False
    )
    took = time.monotonic() - started
    document = {
        "suite": suite,
        "command": line,
        "folder": str(repository),
        "exit_code": done.returncode,
        "seconds": took,
    }
    settings.show(document, lambda: [f"bench {suite} took {seconds(took)}"])
    if done.returncode:
        raise click.exceptions.Exit(done.returncode)


def _repository() -> Path:
    from icestream.errors import MissingExtraError

    for folder in (Path.cwd(), Path(__file__).resolve().parents[4]):
        if (folder / "benchmarks" / "run.py").exists():
            return folder
    raise MissingExtraError(
        "the benchmarks are not installed with the package: they are in icestream's repository. "
        "Clone it, and run this command or make bench in its folder"
    )
