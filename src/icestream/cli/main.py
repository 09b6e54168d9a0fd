"""`icestream`: the commands under one name, and what becomes of errors.

Modules of commands import nothing heavy: what they need of the library is imported when they run,
so that `--help` and completion answer at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import click
from click.shell_completion import shell_complete

from icestream import __version__
from icestream.cli.bench import bench
from icestream.cli.command import shared_options
from icestream.cli.compact import compact
from icestream.cli.completion import PROGRAM, VARIABLE, completion
from icestream.cli.delete import delete
from icestream.cli.demo import demo
from icestream.cli.exit_codes import ExitCode, exit_code_of, listing
from icestream.cli.explain import explain
from icestream.cli.health import health
from icestream.cli.load import load
from icestream.cli.merge import merge
from icestream.cli.orphans import orphans
from icestream.cli.output_file import leave_stdout
from icestream.cli.run import run
from icestream.cli.scan import scan
from icestream.cli.settings import Settings
from icestream.cli.tables import tables
from icestream.cli.wording import in_options

_EXAMPLES = (
    "icestream tables",
    'icestream scan shop.orders --where "price > 10" --limit 10',
    "icestream merge changes.csv --into shop.orders --on id",
    "icestream health shop.orders",
)


class Commands(click.Group):
    """All commands, in the order of a day's work; errors become a line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added."""
        return list(self.commands)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples and exit codes."""
        with formatter.section("Examples"):
            for example in _EXAMPLES:
                formatter.write(f"  {example}\n")
        with formatter.section("Exit codes"):
            formatter.write(f"{listing()}\n")

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command, and end the process with its exit code.

        Click's own has other ideas about pipes that are closed and about Ctrl-C.
        """
        settings = Settings()
        arguments = list(sys.argv[1:] if args is None else args)
        asked = os.environ.get(VARIABLE)
        if asked:
            sys.exit(shell_complete(self, {}, PROGRAM, VARIABLE, asked))

        def run() -> None:
            with self.make_context(PROGRAM, arguments, obj=settings, **extra) as context:
                self.invoke(context)

        sys.exit(_exit_code(run, settings))


def _exit_code(run: Callable[[], None], settings: Settings) -> int:
    """Run it; say what went wrong in one line on stderr."""
    try:
        run()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        leave_stdout()
        return ExitCode.OK
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        return _stopped(error, "interrupted", ExitCode.INTERRUPTED)
    except _Terminated as error:
        return _stopped(error, "terminated", ExitCode.TERMINATED)
    except click.UsageError as error:
        hint = ""
        if error.ctx is not None:
            hint = f" See `{error.ctx.command_path} --help`."
        _fail(f"{error.format_message()}{hint}")
        return ExitCode.USAGE
    except Exception as error:
        return _failed(error, settings)
    return ExitCode.OK


def _failed(error: Exception, settings: Settings) -> int:
    if type(error).__name__ == "ArrowCancelled":  # Arrow heeds Ctrl-C by itself
        return _stopped(error, "interrupted", ExitCode.INTERRUPTED)
    code = exit_code_of(error)
    if settings.debug:
        click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
    text = ". ".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])
    if code is ExitCode.INTERNAL:
        text = f"internal error: {type(error).__name__}: {text}. Run it again with --debug"
    elif not _is_ours(error):
        text = f"{type(error).__name__}: {text}"
    _fail(text)
    return code


def _stopped(error: BaseException, what: str, code: ExitCode) -> ExitCode:
    notes = getattr(error, "__notes__", None)
    _fail(f"{what}: {'; '.join(notes)}" if notes else what)
    return code


def _fail(text: str) -> None:
    click.echo(f"{PROGRAM}: {in_options(text)}", err=True)


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "icestream"


class _Terminated(SystemExit):
    """SIGTERM came: the same clean end as after Ctrl-C."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated(ExitCode.TERMINATED)


@click.group(
    name=PROGRAM,
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=PROGRAM)
@partial(shared_options, memory=True)
def cli() -> None:
    """Apache Iceberg tables, inside a memory limit that you set.

    Catalogs come from PyIceberg's configuration (.pyiceberg.yaml, PYICEBERG_CATALOG__...). Where
    there is none, ./icestream_warehouse is the catalog.
    """


for _each in (
    tables, load, run, scan, explain, merge, delete, compact, orphans, health, demo, bench,
    completion,
):  # fmt: skip
    cli.add_command(_each)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    cli.main(args=None if arguments is None else list(arguments), prog_name=PROGRAM)


if __name__ == "__main__":
    main()
