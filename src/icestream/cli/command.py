"""Define a command: with the common options, and with examples at the end of its help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from icestream.cli.options.parameters import Command, Option, add_options
from icestream.cli.options.settings import Settings

_LEAST_MEMORY_BYTES = 1_000_000
_ENOUGH_MEMORY_BYTES = 4_000_000


class ExampleCommand(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = tuple(examples)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Messages then use its words."""
        ctx.ensure_object(Settings).command = self.name
        return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples without wrapping, so that they can be pasted."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"  {example}\n")


class CommandGroup(ExampleCommand, click.Group):
    """Commands behind one name, such as `branch list` and `branch create`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order in which they were added."""
        return list(self.commands)


def command(
    name: str, *, examples: Sequence[str], memory: bool = False, **settings: Any
) -> Callable[[Command], click.Command]:
    """Turn a function into a command. The function gets `Settings` as its first argument.

    Args:
        name: Name of the command.
        examples: Complete command lines for the help.
        memory: Whether the help shows `--memory`, because the command holds data.
        **settings: Passed to `click.command`.
    """

    def decorate(function: Command) -> click.Command:
        decorator = click.command(name, cls=ExampleCommand, examples=examples, **settings)
        with_settings: Command = click.pass_obj(function)
        result: click.Command = decorator(shared_options(with_settings, memory=memory))
        return result

    return decorate


def group(
    name: str, *, short_help: str, help: str, commands: Sequence[click.Command]
) -> CommandGroup:
    """Put commands behind one name. Their examples are also those of the group."""

    @click.pass_context
    def help_without_command(ctx: click.Context) -> None:
        """Show the help if no command of the group is named."""
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)

    examples = [line for each in commands for line in getattr(each, "examples", ())]
    function = shared_options(help_without_command, memory=False)
    decorator = click.group(
        name,
        cls=CommandGroup,
        examples=examples,
        short_help=short_help,
        help=help,
        invoke_without_command=True,
    )
    result: CommandGroup = decorator(function)
    for each in commands:
        result.add_command(each)
    return result


def shared_options(function: Command, *, memory: bool) -> Command:
    """Add the options that all commands share. Their values go to the context's `Settings`."""
    options = (
        _option(
            "--catalog",
            metavar="NAME",
            help="Name of a catalog in PyIceberg's configuration, if not the default one.",
        ),
        _option(
            "--memory",
            metavar="SIZE",
            hidden=not memory,
            help="Maximum number of bytes to hold, such as 64MB or 1.5GiB.  [default: 256MB]",
        ),
        _option("--json", is_flag=True, help="Print one JSON document on stdout."),
        _option("-q", "--quiet", is_flag=True, help="Print only errors on stderr."),
        _option("--debug", is_flag=True, help="Print errors with their traceback."),
    )
    return add_options(function, options)


def _option(*names: str, **settings: Any) -> Option:
    return click.option(*names, expose_value=False, callback=_keep, **settings)


def _check_memory(text: str) -> None:
    """Refuse a limit that is not a size, or with which no command can work, before anything runs.

    Raises:
        InvalidArgumentError: If it is not a size.
        MemoryBudgetError: If it is too small for every table.
    """
    from icestream.memory.budget import over_limit, parse_bytes

    limit = parse_bytes(text)
    if limit < _LEAST_MEMORY_BYTES:
        raise over_limit(
            "the smallest tables need 4 MB",
            needed_bytes=_ENOUGH_MEMORY_BYTES,
            limit_bytes=limit,
        )


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value and parameter.name == "memory":
        _check_memory(value)
    if value:
        setattr(ctx.ensure_object(Settings), str(parameter.name), value)
