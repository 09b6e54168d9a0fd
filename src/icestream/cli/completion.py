"""`icestream completion`: the script that makes a shell complete commands and tables."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from icestream.cli.command import command
from icestream.cli.settings import Settings

PROGRAM = "icestream"
VARIABLE = "_ICESTREAM_COMPLETE"


@command(
    "completion",
    short_help="Print a shell's completion script.",
    examples=(
        'eval "$(icestream completion bash)"                                    # ~/.bashrc',
        'eval "$(icestream completion zsh)"                                     # ~/.zshrc',
        "icestream completion fish > ~/.config/fish/completions/icestream.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, settings: Settings, shell: str) -> None:
    """Print the completion script for a SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source()
    settings.show({"shell": shell, "script": script}, lambda: script.splitlines())
