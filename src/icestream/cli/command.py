"""A command with the options that all share, and examples in its help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from icestream.cli.settings import Settings


class ExampleCommand(click.Command):
    """A command whose help ends with examples, as they are typed."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, unwrapped, so that they can be pasted."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"  {example}\n")


def command(
    name: str, *, examples: Sequence[str], memory: bool = False, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function, which gets `Settings` first.

    Args:
        name: What is typed.
        examples: Whole lines, as they are typed.
        memory: Whether the command holds data, so that `--memory` means something.
        **settings: For `click.command`.
    """

    def make(function: Callable[..., Any]) -> click.Command:
        made = click.command(name, cls=ExampleCommand, examples=examples, **settings)
        passed: Callable[..., Any] = click.pass_obj(function)
        result: click.Command = made(shared_options(passed, memory=memory))
        return result

    return make


def shared_options(function: Callable[..., Any], *, memory: bool) -> Callable[..., Any]:
    """Add the options that all commands share; what is given goes to the context's `Settings`."""
    options = (
        click.option(
            "--catalog",
            metavar="NAME",
            expose_value=False,
            callback=_keep,
            help="The catalog's name in PyIceberg's configuration; the default one if left out.",
        ),
        click.option(
            "--memory",
            metavar="SIZE",
            expose_value=False,
            callback=_keep,
            hidden=not memory,
            help="The most bytes held, such as 64MB or 1.5GiB.  [default: 256MB]",
        ),
        click.option(
            "--json",
            is_flag=True,
            expose_value=False,
            callback=_keep,
            help="One JSON document on stdout.",
        ),
        click.option(
            "-q",
            "--quiet",
            is_flag=True,
            expose_value=False,
            callback=_keep,
            help="Nothing on stderr but errors.",
        ),
        click.option(
            "--debug",
            is_flag=True,
            expose_value=False,
            callback=_keep,
            help="Errors with their traceback.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _keep(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        setattr(ctx.ensure_object(Settings), str(parameter.name), value)
