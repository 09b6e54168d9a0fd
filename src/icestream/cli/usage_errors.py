"""Messages for wrong calls: a name that does not exist is answered with the one that does."""

from __future__ import annotations

import difflib
import re

import click

_UNKNOWN_COMMAND = re.compile("No such command '(.*?)'")
# For each option that people try, the options that may have the same meaning.
_OPTIONS = {
    **dict.fromkeys(("--key", "--keys", "--on", "--primary-key", "--by"), ("--on", "--keys")),
    **dict.fromkeys(("--to", "--table", "--target", "--destination"), ("--into", "--to")),
    **dict.fromkeys(("--filter", "--row-filter", "--condition"), ("--where",)),
    **dict.fromkeys(("--column", "--select", "--fields"), ("--columns", "--select")),
    **dict.fromkeys(("--out", "--file"), ("--output",)),
    **dict.fromkeys(("--snapshot", "--snapshot-id"), ("--snapshot-id", "--to")),
    **dict.fromkeys(("--mem", "--memory-limit", "--max-memory"), ("--memory",)),
    **dict.fromkeys(("--head", "--rows", "--n"), ("--limit",)),
    **dict.fromkeys(("--partition", "--partitioned-by"), ("--partition-by",)),
    **dict.fromkeys(("--sep", "--separator", "--delimiter"), ("--option delimiter=...",)),
    **dict.fromkeys(("--encoding", "--header"), ("--option {}=...",)),
    **dict.fromkeys(("--force", "--no-input", "-y"), ("--yes",)),
    "--verbose": ("--debug",),
    "-v": ("--version", "--debug"),
    "-V": ("--version",),
}
# For each command that people try, the one to use.
_COMMANDS = {
    **dict.fromkeys(("table", "list", "ls", "describe", "desc", "catalogs"), "tables"),
    **dict.fromkeys(("read", "show", "cat", "head", "export", "dump", "preview"), "scan"),
    **dict.fromkeys(("append", "insert", "ingest", "import", "copy", "create", "write"), "load"),
    **dict.fromkeys(("history", "log", "versions"), "snapshots"),
    **dict.fromkeys(("optimize", "optimise", "rewrite", "compaction"), "compact"),
    **dict.fromkeys(("vacuum", "clean", "gc", "expire"), "orphans"),
    **dict.fromkeys(("restore", "undo", "revert", "reset"), "rollback"),
    **dict.fromkeys(("query", "select", "count"), "sql"),
    **dict.fromkeys(("upsert", "update"), "merge"),
    **dict.fromkeys(("mv", "move"), "rename"),
    **dict.fromkeys(("rm", "remove"), "drop"),
    **dict.fromkeys(("columns", "alter"), "schema"),
    **dict.fromkeys(("stats", "check", "doctor", "info"), "health"),
    "branches": "branch",
    "tags": "tag",
    "plan": "explain",
    "version": "--version",
    "help": "--help",
}


def usage_text(error: click.UsageError, arguments: list[str]) -> str:
    """Write the error of a wrong call on one line, with what to do.

    Args:
        error: The error.
        arguments: All arguments of the call.
    """
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        message = f"{error.message.removesuffix('.')}{_near_option(error)}"
    elif unknown := _UNKNOWN_COMMAND.match(message):
        message = f"{unknown[0]}{_near_command(error.ctx, unknown[1], arguments)}"
    elif "unexpected extra argument" in message:
        message = f"{message}: options have names, and a value with spaces needs quotes"
    if error.ctx is None:
        return message.removesuffix(".")
    end = "" if message.endswith("?") else "."
    return f"{message.removesuffix('.')}{end} See `{error.ctx.command_path} --help`."


def _near_option(error: click.NoSuchOption) -> str:
    command = error.ctx.command if error.ctx is not None else None
    known = {name for each in getattr(command, "params", ()) for name in each.opts}
    for other in _OPTIONS.get(error.option_name, ()):
        if other.split()[0] in known - {error.option_name}:
            return f": use {other.format(error.option_name.lstrip('-'))}"
    return f": did you mean {error.possibilities[0]}?" if error.possibilities else ""


def _near_command(ctx: click.Context | None, given: str, arguments: list[str]) -> str:
    if ctx is None or not isinstance(ctx.command, click.Group):
        return ""
    name = _COMMANDS.get(given) if ctx.parent is None else None
    if name == "--help":
        after = [each for each in arguments if each in ctx.command.commands][:1]
        return f": use `icestream {' '.join([*after, name])}`"
    if name is not None:
        return f": use `icestream {name}`"
    near = difflib.get_close_matches(given, ctx.command.list_commands(ctx))
    return f": did you mean {' or '.join(map(repr, near))}?" if near else ""
