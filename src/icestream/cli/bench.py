"""`icestream bench`: the benchmarks, where the repository is."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click

from icestream.cli.command import command
from icestream.cli.output import seconds
from icestream.cli.settings import Settings

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
    """Run a benchmark SUITE, beside PyIceberg and the peers that are installed.

    Benchmarks are part of the repository, not of the package. ARGUMENTS, such as --quick, are the
    suite's own. What it prints goes to stdout, or to stderr with --json.
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

    places = (Path.cwd(), Path(__file__).resolve().parents[3])
    for place in places:
        if (place / "benchmarks" / "run.py").exists():
            return place
    raise MissingExtraError(
        "the benchmarks are not here: they are in icestream's repository. Clone it, and run this "
        "command, or make bench, in its folder"
    )
