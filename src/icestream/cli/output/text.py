"""Text that commands print: aligned columns, sizes, durations and JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import click

from icestream.cli.output.messages import in_options as in_options
from icestream.report.display import moment as moment
from icestream.report.display import seconds as seconds
from icestream.report.display import size as size

_CARET_COLUMNS = 76


class Painted(str):
    """Text with a color, which only terminals show."""

    color: str

    def __new__(cls, text: str, color: str) -> Painted:
        painted = super().__new__(cls, text)
        painted.color = color
        return painted


def paint(text: str, color: str, stream: TextIO | None = None) -> str:
    """Color text (or dim it, if the color is `"dim"`) for a stream, stdout by default."""
    if not has_colors(stream or sys.stdout):
        return text
    return click.style(text, dim=True) if color == "dim" else click.style(text, fg=color)


def has_colors(stream: TextIO) -> bool:
    """Whether a stream is a terminal, and the user has not switched off colors with NO_COLOR."""
    is_off = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not is_off


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document: indented on a terminal, else on one line."""
    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps(ids_as_text(document), indent=indent, ensure_ascii=False, default=str)
    click.echo(text)


def ids_as_text(document: Any, name: str = "") -> Any:
    """Convert snapshot ids to strings: jq and JavaScript round numbers of 19 digits."""
    if isinstance(document, Mapping):
        return {key: ids_as_text(value, str(key)) for key, value in document.items()}
    if isinstance(document, (list, tuple)):
        return [ids_as_text(each, name) for each in document]
    is_id = name.endswith(("snapshot_id", "snapshot_ids")) and isinstance(document, int)
    return str(document) if is_id else document


def caret_lines(error: BaseException) -> list[str]:
    """The filter of an error, and a caret below the wrong character.

    Nothing for other errors, and for an empty filter.
    """
    text, position = getattr(error, "text", None), getattr(error, "position", None)
    if not isinstance(text, str) or not isinstance(position, int) or not text.strip():
        return []
    start = max(0, position - _CARET_COLUMNS // 2) if len(text) > _CARET_COLUMNS else 0
    line = re.sub(r"\s", " ", text[start : start + _CARET_COLUMNS])
    return [f"  {line}", f"  {' ' * (position - start)}^"]


def without_place(error: BaseException) -> str:
    """The message of an error, without the place in a filter that `caret_lines` shows."""
    position = getattr(error, "position", None)
    if not isinstance(position, int):
        return str(error)
    return str(error).rpartition(f" (character {position + 1} of ")[0] or str(error)


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
        all(row[i] is None or isinstance(row[i], (int, float)) for row in rows)
        and any(row[i] is not None for row in rows)
        for i in range(len(header))
    ]
    return [
        "  ".join(
            _padded(cell, width, to_right)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        )
        for line in [list(header), *texts]
    ]


def _padded(cell: str, width: int, to_right: bool) -> str:
    padded = f"{cell:>{width}}" if to_right else f"{cell:<{width}}"
    return paint(padded, cell.color) if isinstance(cell, Painted) else padded


def plain(value: object) -> str:
    """Format a value."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else str(value)


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
