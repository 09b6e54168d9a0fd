"""Text that commands print: aligned columns, sizes, durations, JSON and messages."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from icestream.operations.merge.merge_options import MERGE_RULES

# Arguments of Python functions that are options of commands with the same name.
_OPTIONS = "|".join(MERGE_RULES) + (
    "|as_of|bad_records|branch|catalog|checkpoint|columns|engine|format|keys|limit|load_id|master|"
    "memory|min_files|mode|order|other_tables|quarantine|schema_mode|snapshot_id|tag|transform|where"
)
_ARGUMENT = re.compile(rf"(?<![\w./'\"-])({_OPTIONS})=(['\"]?)([\w.*-]*)\2")
_CALL = re.compile(r"ice\.(compact|orphans|health)\(table(?:, (delete)=True)?\)")
_LIMIT = re.compile(r"\braise memory\b")
_FLAG = re.compile(r"\b(incremental|only_catalog)=True")
_READER_OPTION = re.compile(r"\boption (\w+)=(['\"])([\w-]+)\2")
_COLUMNS_OPTION = "--option columns=id,price, too"
_DROPPED = re.compile(r"\bdropped=\['([\w-]+)'\]")


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document: indented on a terminal, else on one line."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(document, indent=indent, ensure_ascii=False, default=str))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of text."""
    for line in lines:
        click.echo(line.rstrip())


def pairs(rows: Iterable[tuple[str, object]]) -> list[str]:
    """Align names and values in two columns. Values that are None are left out."""
    shown = [(name, plain(value)) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    return [f"{name:<{width}}  {value}" for name, value in shown]


def columns(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Align rows under a header. Columns of numbers are aligned to the right."""
    texts = [[plain(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    right = [
        bool(rows) and all(isinstance(row[i], (int, float)) for row in rows)
        for i in range(len(header))
    ]
    return [
        "  ".join(
            f"{cell:>{width}}" if to_right else f"{cell:<{width}}"
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        for line in [list(header), *texts]
    ]


def plain(value: object) -> str:
    """Format a value."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def size(count: int) -> str:
    """Format a number of bytes."""
    for unit, bytes_each in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= bytes_each:
            return f"{count / bytes_each:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} B"


def seconds(count: float) -> str:
    """Format a duration."""
    if count < 1:
        return f"{count * 1000:.0f} ms"
    if count < 120:
        return f"{count:.1f} s"
    return f"{count / 60:.1f} min"


def moment(milliseconds: int | None) -> str | None:
    """Format a time in UTC, to the second."""
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def can_draw(text: str) -> bool:
    """Whether the encoding of stdout has these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def worker_text(peak_bytes: int, base_bytes: int | None, limit_bytes: int) -> str:
    """Format the memory of the largest Spark worker: in total, and by its task."""
    if not base_bytes:
        return f"largest worker {size(peak_bytes)} in all"
    held = max(0, peak_bytes - base_bytes)
    return (
        f"largest worker {size(peak_bytes)} = base {size(base_bytes)} + {size(held)} of "
        f"{size(limit_bytes)}"
    )


def in_options(message: str, table: str | None = None) -> str:
    """Write Python calls and arguments in a message as commands and options, on one line."""
    text = " ".join(message.split())
    text = _CALL.sub(lambda match: _command(match, table or "NAME"), text)
    text = _LIMIT.sub("raise --memory", text)
    text = _DROPPED.sub(r"--dropped \1", text)
    text = _FLAG.sub(lambda match: f"--{match.group(1).replace('_', '-')}", text)
    text = text.replace("hive_partitions=False", "--no-hive-partitions")
    text = text.replace("give schema= other types", "give --type COLUMN=TYPE")
    text = text.replace("schema= the types", "--type COLUMN=TYPE, the types")
    text = _READER_OPTION.sub(r"--option \1=\3", text)
    text = _ARGUMENT.sub(_option, text)
    return text.replace("the option columns, too, as in ['id', 'price']", _COLUMNS_OPTION)


def _command(match: re.Match[str], table: str) -> str:
    delete = " --delete" if match.group(2) else ""
    return f"icestream {match.group(1)} {table}{delete}"


def _option(match: re.Match[str]) -> str:
    return f"--{match.group(1).replace('_', '-')} {match.group(3)}".rstrip()
