"""Results on stdout: aligned text for people, one JSON document for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click


def print_json(document: Mapping[str, Any]) -> None:
    """One document, on one line if it is piped and indented on a terminal."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(document, indent=indent, ensure_ascii=False, default=str))


def print_lines(lines: Iterable[str]) -> None:
    """Lines of text."""
    for line in lines:
        click.echo(line.rstrip())


def pairs(rows: Iterable[tuple[str, object]]) -> list[str]:
    """Names and values in two aligned columns; values that are None are left out."""
    shown = [(name, plain(value)) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    return [f"{name:<{width}}  {value}" for name, value in shown]


def columns(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Rows under a header, numbers to the right."""
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
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def size(count: int) -> str:
    """Bytes as people read them."""
    for unit, bytes_each in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= bytes_each:
            return f"{count / bytes_each:.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} B"


def seconds(count: float) -> str:
    """A duration as people read it."""
    if count < 1:
        return f"{count * 1000:.0f} ms"
    if count < 120:
        return f"{count:.1f} s"
    return f"{count / 60:.1f} min"


def moment(milliseconds: int | None) -> str | None:
    """A moment in UTC, to the second."""
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def can_draw(text: str) -> bool:
    """Whether stdout's encoding has these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def worker_text(peak_bytes: int, base_bytes: int | None, limit_bytes: int) -> str:
    """What the largest worker of Spark took in all, and how much of it was its task's."""
    if not base_bytes:
        return f"largest worker {size(peak_bytes)} in all"
    held = max(0, peak_bytes - base_bytes)
    return (
        f"largest worker {size(peak_bytes)} = base {size(base_bytes)} + {size(held)} of "
        f"{size(limit_bytes)}"
    )
