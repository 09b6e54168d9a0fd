"""The help of the program: where to start, all commands by subject, options and exit codes."""

from __future__ import annotations

from collections.abc import Mapping

import click

from icestream.cli.exit_codes import listing

ABOUT = "Read, write and maintain Apache Iceberg tables inside a memory limit."
# Five commands to begin with, each with what it does.
START = (
    ("load FILES --into TABLE", "create a table from files, or append to it"),
    ("tables [TABLE]", "list tables, or show columns and snapshots"),
    ("scan TABLE", "show rows, or write them to a file"),
    ("merge FILES --into TABLE", "update and insert rows by key"),
    ("health TABLE", "show what to maintain, and how"),
)
# The tests run them.
EXAMPLES = (
    "icestream load 'data/orders/*.parquet' --into shop.orders",
    'icestream scan shop.orders --where "price > 10" --memory 64MB -o some.parquet',
    "icestream merge changes.csv --into shop.orders --on id",
)
# A command without a group is listed at the end.
GROUPS = {
    "Read": ("tables", "scan", "sql", "explain"),
    "Load and change": ("load", "run", "merge", "delete"),
    "Tables and history": ("schema", "rename", "drop", "snapshots", "rollback", "branch", "tag"),
    "Maintain": ("health", "compact", "orphans"),
    "History": ("snapshots", "rollback", "branch", "tag"),
    "Tables": ("schema", "rename", "drop"),
    "Try and set up": ("demo", "bench", "completion"),
}
_OTHERS = "More"
_CATALOGS = (
    "Catalogs come from PyIceberg's configuration (.pyiceberg.yaml, PYICEBERG_CATALOG__...). If no "
    "catalog is configured, icestream uses the local catalog in ./icestream_warehouse."
)


def short_screen() -> str:
    """Format what `icestream` shows without a command: at most 24 lines of 80 columns."""
    return "\n".join(
        [
            ABOUT,
            "",
            *_start_lines(),
            "",
            "Examples:",
            *(f"  {line}" for line in EXAMPLES),
            "",
            "All commands:  icestream --help",
            "One command:   icestream load --help",
            "A first try:   icestream demo",
        ]
    )


def write_start(formatter: click.HelpFormatter) -> None:
    """Write what the program does, the five commands to begin with, and about catalogs."""
    formatter.write("\n")
    with formatter.indentation():
        formatter.write_text(ABOUT)
    formatter.write("\n" + "\n".join(_start_lines()) + "\n\n")
    with formatter.indentation():
        formatter.write_text(_CATALOGS)


def write_commands(commands: Mapping[str, click.Command], formatter: click.HelpFormatter) -> None:
    """Write all commands by subject, and the examples."""
    width = max(map(len, commands))
    for title, names in _grouped(commands).items():
        with formatter.section(title):
            for name in names:
                text = commands[name].get_short_help_str(100)
                formatter.write(f"  {name:<{width}}  {text}\n")
    with formatter.section("Examples"):
        for line in EXAMPLES:
            formatter.write(f"  {line}\n")


def write_exit_codes(formatter: click.HelpFormatter) -> None:
    """Write all exit codes with their meanings."""
    with formatter.section("Exit codes"):
        formatter.write(f"{listing()}\n")


def _start_lines() -> list[str]:
    width = max(len(line) for line, _ in START)
    return ["Start here:", *(f"  icestream {line:<{width}}  {what}" for line, what in START)]


def _grouped(commands: Mapping[str, click.Command]) -> dict[str, list[str]]:
    grouped = {
        title: [name for name in names if name in commands] for title, names in GROUPS.items()
    }
    known = {name for names in grouped.values() for name in names}
    others = [name for name, each in commands.items() if name not in known and not each.hidden]
    return grouped | ({_OTHERS: others} if others else {})
