"""The program `icestream`: collects the commands, and turns errors into messages and exit codes.

The modules of commands import the library only when a command runs, so that `--help` and completion
answer at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import click
from click.shell_completion import get_completion_class, shell_complete

from icestream.cli.command import command, shared_options
from icestream.cli.commands.bench import bench
from icestream.cli.commands.compact import compact
from icestream.cli.commands.delete import delete
from icestream.cli.commands.demo import demo
from icestream.cli.commands.health import health
from icestream.cli.commands.load import load
from icestream.cli.commands.merge import merge
from icestream.cli.commands.metadata.history import rollback, snapshots
from icestream.cli.commands.metadata.refs import branch, tag
from icestream.cli.commands.metadata.schema import schema
from icestream.cli.commands.metadata.table_entry import drop, rename
from icestream.cli.commands.orphans import orphans
from icestream.cli.commands.run import run
from icestream.cli.commands.scan import explain, scan
from icestream.cli.commands.sql import sql
from icestream.cli.commands.tables import tables
from icestream.cli.exit_codes import ExitCode, exit_code_of, is_disk_full
from icestream.cli.help_screen import (
    short_screen,
    write_commands,
    write_exit_codes,
    write_start,
)
from icestream.cli.interrupts import Interrupts, Terminated
from icestream.cli.options.settings import Settings
from icestream.cli.output.output_file import leave_stdout
from icestream.cli.output.text import caret_lines, in_options, paint, without_place
from icestream.cli.usage_errors import usage_text
from icestream.report.version import __version__

_PROGRAM = "icestream"
_COMPLETION_VARIABLE = "_ICESTREAM_COMPLETE"


class Commands(click.Group):
    """All commands. An error becomes one line on stderr and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order in which they were added."""
        return list(self.commands)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the program does, and where to start."""
        write_start(formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by subject and the examples, and then the options."""
        write_commands(self.commands, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes."""
        write_exit_codes(formatter)

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

        This replaces Click's method, which handles closed pipes and Ctrl-C differently.
        """
        settings = Settings()
        arguments = list(sys.argv[1:] if args is None else args)
        request = os.environ.get(_COMPLETION_VARIABLE)
        if request:
            sys.exit(shell_complete(self, {}, _PROGRAM, _COMPLETION_VARIABLE, request))

        def run() -> None:
            with self.make_context(_PROGRAM, arguments, obj=settings, **extra) as context:
                self.invoke(context)

        sys.exit(_exit_code(run, settings, arguments))


def _exit_code(run: Callable[[], None], settings: Settings, arguments: list[str]) -> int:
    """Run a command. If it fails, print one line on stderr."""
    try:
        run()
        sys.stdout.flush()
    except BrokenPipeError:  # such as `| head`, which stops early
        leave_stdout()
        return ExitCode.OK
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        return _stopped(error, "interrupted", ExitCode.INTERRUPTED)
    except Terminated as error:
        return _stopped(error, "terminated", ExitCode.TERMINATED)
    except click.UsageError as error:
        _fail(usage_text(error, arguments))
        return ExitCode.USAGE
    except Exception as error:
        return _failed(error, settings)
    return ExitCode.OK


def _failed(error: Exception, settings: Settings) -> int:
    if type(error).__name__ == "ArrowCancelled":  # Arrow handles Ctrl-C itself
        return _stopped(error, "interrupted", ExitCode.INTERRUPTED)
    from icestream.catalogs.configuration import broken_configuration

    code = exit_code_of(error)
    broken = broken_configuration() if code is ExitCode.INTERNAL else None
    if settings.debug:
        click.echo("".join(traceback.format_exception(error)).rstrip(), err=True)
    message = without_place(error) or type(error).__name__
    text = ". ".join([message, *getattr(error, "__notes__", ())])
    if broken is not None:
        code, text = ExitCode.STORAGE, broken
    elif code is ExitCode.INTERNAL:
        text = f"internal error: {type(error).__name__}: {text}. Run the command again with --debug"
    elif type(error).__module__.partition(".")[0] != _PROGRAM:
        text = f"{type(error).__name__}: {text}"
    if is_disk_full(error) and "free some space" not in text:
        text = f"{text.removesuffix('.')}. Free some space, or work in a folder on another disk"
    _fail(text, *caret_lines(error), settings=settings)
    return code


def _stopped(error: BaseException, what: str, code: ExitCode) -> ExitCode:
    notes = getattr(error, "__notes__", None)
    _fail(f"{what}: {'; '.join(notes)}" if notes else what)
    return code


def _fail(text: str, *lines: str, settings: Settings | None = None) -> None:
    known = settings or Settings()
    shown = in_options(text, known.table, catalog=known.catalog, command=known.command)
    click.echo("\n".join([f"{paint(_PROGRAM, 'red', sys.stderr)}: {shown}", *lines]), err=True)


@click.group(
    name=_PROGRAM,
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=_PROGRAM)
@partial(shared_options, memory=True)
@click.pass_context
def cli(context: click.Context) -> None:
    """Run a command, or show where to start."""
    if context.invoked_subcommand is None:
        click.echo(short_screen())


@command(
    "completion",
    short_help="Print the completion script of a shell.",
    examples=(
        'eval "$(icestream completion bash)"                                    # ~/.bashrc',
        'eval "$(icestream completion zsh)"                                     # ~/.zshrc',
        "icestream completion fish > ~/.config/fish/completions/icestream.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, settings: Settings, shell: str) -> None:
    """Print the script that completes commands, options and tables in a SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, _PROGRAM, _COMPLETION_VARIABLE).source()
    settings.show({"shell": shell, "script": script}, lambda: script.splitlines())


for _each in (
    tables, load, run, scan, sql, explain, merge, delete, compact, orphans, health, snapshots,
    rollback, branch, tag, schema, rename, drop, demo, bench, completion,
):  # fmt: skip
    cli.add_command(_each)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program: the entry point of the package."""
    interrupts = Interrupts()
    interrupts.install()
    try:
        cli.main(args=None if arguments is None else list(arguments), prog_name=_PROGRAM)
    finally:
        interrupts.ended()
